// Our side: `cox bench` on a model and topology, one counted run after one that is not.
import { join } from 'node:path';
import { jsonLines, output, root } from './run.mjs';

export const program = join(root, 'dist', 'cli', 'main.js');

/**
 * Tokens a second of all streams together. `order`: {model, test, tokens, depth, streams, flags, env}; flags are
 * those of the topology, as the command line takes them.
 */
export function ours(order) {
  const { model, test, tokens, depth = 1, streams = 1, flags = [], env = {} } = order;
  const [p, n] = test === 'prefill' ? [tokens, 0] : [0, tokens];
  const rows = jsonLines(
    process.execPath,
    [
      program,
      'bench',
      model,
      ...['-p', p, '-n', n, '--depth', depth, '--streams', streams, '--runs', 1],
      ...['--json', '--no-limits', ...flags],
    ],
    { env },
  );
  return rows[0].tokens_per_second.median;
}

/** The planner's answer for one rank: bytes of weights and of cache a token. */
export function planOf(model) {
  return JSON.parse(output(process.execPath, [program, 'plan', model, '--json'])).ranks[0];
}
