// cox detokenize: a JSON array of ids on stdin, their exact bytes on stdout.
import type { CommandModule } from 'yargs';
import { withCodec } from '../codec.ts';
import { modelFile } from '../models-directory.ts';
import { readStdin, writeBytes } from '../terminal.ts';
import { parseTokens } from '../token-file.ts';

interface DetokenizeArguments {
  readonly model: string;
  readonly special: boolean;
}

const IDS_BYTES_MAX = 256 * 2 ** 20;

export const detokenizeCommand: CommandModule<object, DetokenizeArguments> = {
  command: 'detokenize <model>',
  describe: 'Token ids (JSON) on stdin to bytes',
  builder: (yargs) =>
    yargs
      .positional('model', {
        type: 'string',
        demandOption: true,
        describe: 'GGUF file or catalogue name',
      })
      .option('special', {
        type: 'boolean',
        default: false,
        describe: 'Show control tokens as their text',
      }),
  handler: async (args) => {
    const json = (await readStdin(IDS_BYTES_MAX)).toString('utf8');
    const model = await modelFile(args.model, process.env);
    await withCodec(model, async (codec) => {
      await writeBytes(
        codec.decode(parseTokens(json, codec.vocabSize, 'stdin'), { special: args.special }),
      );
    });
  },
};
