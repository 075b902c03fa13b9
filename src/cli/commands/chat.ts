// cox chat: a conversation at the terminal. Each turn reuses the state of the turns before.
import { createInterface } from 'node:readline/promises';
import type { CommandModule } from 'yargs';
import { type Cluster, withCluster } from '../cluster.ts';
import { answer, requestOf } from '../inference.ts';
import { DEFAULT_MODEL } from '../pull/catalogue.ts';
import { addSampling } from '../sampling-flags.ts';
import { addSettings, type Flags, readSettings, TOPOLOGY } from '../settings.ts';
import { print, say } from '../terminal.ts';

interface Turn {
  readonly role: 'system' | 'user' | 'assistant';
  readonly content: string;
}

export const chatCommand: CommandModule<object, Flags> = {
  command: 'chat [model]',
  describe: 'Talk with a model at the terminal',
  builder: (yargs) =>
    addSampling(addSettings(yargs, TOPOLOGY))
      .positional('model', {
        type: 'string',
        describe: 'GGUF file or catalogue name [the default model]',
      })
      .option('system', { type: 'string', requiresArg: true, describe: 'System message' }) as never,
  handler: async (flags) => {
    const config = readSettings(flags, TOPOLOGY);
    const model = flags['model'] ?? config.model ?? DEFAULT_MODEL;
    await withCluster(
      { flags: { ...flags, model }, config, ranks: 'local', logLevel: 'error', liveReuse: true },
      (cluster, signal) => converse(cluster, flags, signal),
    );
  },
};

async function converse(cluster: Cluster, flags: Flags, signal: AbortSignal): Promise<void> {
  const system = flags['system'];
  const turns: Turn[] = typeof system === 'string' ? [{ role: 'system', content: system }] : [];
  const terminal = createInterface({ input: process.stdin, output: process.stderr, prompt: '> ' });
  signal.addEventListener('abort', () => terminal.close(), { once: true });
  terminal.on('SIGINT', () => process.emit('SIGINT'));
  say('An empty line or Ctrl-D ends.');
  terminal.prompt();
  for await (const line of terminal) {
    if (line.trim() === '' || signal.aborted) break;
    turns.push({ role: 'user', content: line });
    const { text, usage } = await answer(
      cluster,
      requestOf({ kind: 'chat', messages: turns }, flags),
      signal,
      (part) => process.stdout.write(part),
    );
    print('');
    say(`(${usage.promptTokens} tokens, ${usage.cachedTokens} of them reused)`);
    turns.push({ role: 'assistant', content: text });
    terminal.prompt();
  }
  terminal.close();
}
