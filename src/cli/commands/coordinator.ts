// cox coordinator: like `cox up`, but its ranks join from anywhere with `cox rank`.
import type { CommandModule } from 'yargs';
import { serve } from '../serve.ts';
import { addSettings, type Flags, readSettings, SERVING, TOPOLOGY } from '../settings.ts';
import { printJson, say } from '../terminal.ts';

const NAMES = [...TOPOLOGY, ...SERVING, 'listen', 'ranks', 'tokenFile'] as const;

export const coordinatorCommand: CommandModule<object, Flags> = {
  command: 'coordinator [model]',
  describe: 'Serve a model whose ranks join from other hosts',
  builder: (yargs) =>
    addSettings(yargs, NAMES)
      .positional('model', { type: 'string', describe: 'GGUF file or catalogue name' })
      .option('json', {
        type: 'boolean',
        default: false,
        describe: 'Events as JSON lines',
      }) as never,
  handler: async (flags) => {
    const config = readSettings(flags, NAMES);
    const json = flags['json'] === true;
    const onListening = (address: { host: string; port: number }) => {
      if (json) printJson({ event: 'listening', ...address });
      else say(`waiting for ranks: cox rank --join ${address.host}:${address.port} --model FILE`);
    };
    await serve({
      start: {
        flags,
        config,
        ranks: 'remote',
        logLevel: config.logLevel,
        liveReuse: true,
        onListening,
      },
      config,
      json,
    });
  },
};
