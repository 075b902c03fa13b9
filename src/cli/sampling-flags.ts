// The sampling flags of run and chat.
import type { Argv } from 'yargs';

export function addSampling<T>(yargs: Argv<T>): Argv<T> {
  return yargs
    .option('max-tokens', {
      type: 'number',
      requiresArg: true,
      describe: 'Longest answer [to the end of the context]',
    })
    .option('temperature', { type: 'number', default: 0, describe: '0 is greedy' })
    .option('top-p', { type: 'number', default: 1, describe: 'Nucleus' })
    .option('seed', {
      type: 'number',
      requiresArg: true,
      describe: 'Same seed, same text [drawn]',
    }) as never;
}
