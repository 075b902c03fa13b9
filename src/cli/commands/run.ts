// cox run: one question, the answer on stdout, the ranks gone afterwards.
import type { CommandModule } from 'yargs';
import { withCluster } from '../cluster.ts';
import { answer, requestOf } from '../inference.ts';
import { DEFAULT_MODEL } from '../pull/catalogue.ts';
import { addSampling } from '../sampling-flags.ts';
import { addSettings, type Flags, readSettings, TOPOLOGY } from '../settings.ts';
import { print, say } from '../terminal.ts';

const NAMES = [...TOPOLOGY, 'model'] as const;

export const runCommand: CommandModule<object, Flags> = {
  command: 'run <prompt>',
  describe: 'Answer one question and end',
  builder: (yargs) =>
    addSampling(addSettings(yargs, NAMES))
      .positional('prompt', { type: 'string', demandOption: true })
      .option('raw', {
        type: 'boolean',
        default: false,
        describe: 'No chat template: continue the text',
      }) as never,
  handler: async (flags) => {
    const config = readSettings(flags, NAMES);
    const model = config.model ?? DEFAULT_MODEL;
    const content = String(flags['prompt']);
    const prompt =
      flags['raw'] === true
        ? ({ kind: 'text', text: content } as const)
        : ({ kind: 'chat', messages: [{ role: 'user', content }] } as const);
    await withCluster(
      { flags: { ...flags, model }, config, ranks: 'local', logLevel: 'error', liveReuse: true },
      async (cluster, signal) => {
        const start = performance.now();
        const { usage } = await answer(cluster, requestOf(prompt, flags), signal, (text) =>
          process.stdout.write(text),
        );
        print('');
        say(
          `${usage.promptTokens} + ${usage.completionTokens} tokens in ${((performance.now() - start) / 1000).toFixed(2)} s`,
        );
      },
    );
  },
};
