// cox up: coordinator, ranks and HTTP server on this host.
import type { CommandModule } from 'yargs';
import { serve } from '../serve.ts';
import { addSettings, type Flags, readSettings, SERVING, TOPOLOGY } from '../settings.ts';

const NAMES = [...TOPOLOGY, ...SERVING] as const;

export const upCommand: CommandModule<object, Flags> = {
  command: 'up [model]',
  describe: 'Serve a model from this host: coordinator, ranks, HTTP',
  builder: (yargs) =>
    addSettings(yargs, NAMES)
      .positional('model', { type: 'string', describe: 'GGUF file or catalogue name' })
      .option('json', { type: 'boolean', default: false, describe: 'Ready line as JSON' }) as never,
  handler: async (flags) => {
    const config = readSettings(flags, NAMES);
    await serve({
      start: { flags, config, ranks: 'local', logLevel: config.logLevel, liveReuse: true },
      config,
      json: flags['json'] === true,
    });
  },
};
