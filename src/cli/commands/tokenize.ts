// cox tokenize: text on stdin, a JSON array of ids on stdout.
import type { CommandModule } from 'yargs';
import { withCodec } from '../codec.ts';
import { modelFile } from '../models-directory.ts';
import { printJson, readStdin } from '../terminal.ts';

interface TokenizeArguments {
  readonly model: string;
  readonly special: boolean;
  readonly bos: boolean;
}

const TEXT_BYTES_MAX = 256 * 2 ** 20;

export const tokenizeCommand: CommandModule<object, TokenizeArguments> = {
  command: 'tokenize <model>',
  describe: 'Text on stdin to token ids (JSON)',
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
        describe: 'Control tokens spelled in the text become tokens',
      })
      .option('bos', {
        type: 'boolean',
        default: false,
        describe: 'Add BOS and EOS as the model wants them',
      }),
  handler: async (args) => {
    const text = await readStdin(TEXT_BYTES_MAX);
    const model = await modelFile(args.model, process.env);
    await withCodec(model, (codec) => {
      printJson(codec.encode(text, { parseSpecial: args.special, addSpecial: args.bos }));
    });
  },
};
