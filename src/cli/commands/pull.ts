// cox pull: gets a model into the models directory.
import type { CommandModule } from 'yargs';
import { modelsDirectory } from '../models-directory.ts';
import { CATALOGUE } from '../pull/catalogue.ts';
import { createProgress } from '../pull/progress.ts';
import { pull } from '../pull/pull.ts';
import { parseTarget } from '../pull/target.ts';
import { print, printJson, say } from '../terminal.ts';

interface PullArguments {
  readonly what: string;
  readonly sha256: string | undefined;
  readonly json: boolean;
}

export const pullCommand: CommandModule<object, PullArguments> = {
  command: 'pull <what>',
  describe: 'Get a model: a catalogue name, hf:OWNER/REPO/FILE, a URL or a path',
  builder: (yargs) =>
    yargs
      .positional('what', { type: 'string', demandOption: true })
      .option('sha256', { type: 'string', describe: 'Refuse the file unless it has this SHA-256' })
      .option('json', { type: 'boolean', default: false, describe: 'Result as one JSON line' })
      .epilogue(CATALOGUE.map((entry) => `${entry.name}: ${entry.about}`).join('\n')) as never,
  handler: async (args) => {
    const target = parseTarget(args.what);
    const progress = createProgress(args.what);
    try {
      const pulled = await pull(target, {
        directory: modelsDirectory(process.env),
        progress: progress.update,
        say,
        sha256: args.sha256?.toLowerCase() ?? null,
        verify: true,
      });
      if (args.json) printJson(pulled);
      else
        print(`${pulled.path} (sha256 ${pulled.sha256}${pulled.present ? ', already there' : ''})`);
    } finally {
      progress.stop();
    }
  },
};
