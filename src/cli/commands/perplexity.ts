// cox perplexity: llama.cpp's rule. Whole windows, BOS first in each where the model adds it, the second
// half of every window counted.
import { readFile } from 'node:fs/promises';
import type { CommandModule } from 'yargs';
import { CoxswainError } from '../../base/errors.ts';
import { type Cluster, withCluster } from '../cluster.ts';
import { withCodec } from '../codec.ts';
import { addSettings, type Flags, modelOf, readSettings, TOPOLOGY } from '../settings.ts';
import { print, printJson } from '../terminal.ts';

const WINDOW_MIN = 4;

export const perplexityCommand: CommandModule<object, Flags> = {
  command: 'perplexity [model]',
  describe: 'Perplexity of a text, by the rule of llama.cpp',
  builder: (yargs) =>
    addSettings(yargs, TOPOLOGY)
      .positional('model', { type: 'string', describe: 'GGUF file or catalogue name' })
      .option('file', {
        type: 'string',
        demandOption: true,
        requiresArg: true,
        describe: 'Text file',
      })
      .option('window', { type: 'number', default: 512, describe: 'Tokens in a window' })
      .option('json', { type: 'boolean', default: false, describe: 'Result as JSON' }) as never,
  handler: async (flags) => {
    const config = readSettings(flags, TOPOLOGY);
    const window = Number(flags['window']);
    if (!Number.isInteger(window) || window < WINDOW_MIN) {
      throw new CoxswainError(
        'USAGE_INVALID',
        `--window must be a whole number of at least ${WINDOW_MIN}`,
      );
    }
    const file = String(flags['file']);
    const text = await readFile(file).catch((cause) => {
      throw new CoxswainError('FILE_UNREADABLE', `${file} (--file) cannot be read`, { cause });
    });
    const model = await modelOf(flags, config);
    const { ids, bos } = await withCodec(model, (codec) => ({
      ids: codec.encode(text, { addSpecial: true }),
      bos: codec.addBos ? codec.bos : null,
    }));
    const windows = cut(ids, window, bos);
    if (windows.length === 0) {
      throw new CoxswainError(
        'USAGE_INVALID',
        `${file} has ${ids.length} tokens, fewer than one window of ${window}`,
      );
    }
    const result = await withCluster(
      { flags: { ...flags, model }, config, ranks: 'local', logLevel: 'error', liveReuse: false },
      (cluster, signal) => measure(cluster, windows, signal),
    );
    if (flags['json'] === true) printJson(result);
    else
      print(
        `perplexity ${result.perplexity.toFixed(4)} over ${result.tokens} tokens in ${result.windows} windows`,
      );
  },
};

function cut(ids: readonly number[], window: number, bos: number | null): number[][] {
  const count = Math.floor(ids.length / window);
  return Array.from({ length: count }, (_, index) => {
    const part = ids.slice(index * window, (index + 1) * window);
    if (bos !== null) part[0] = bos;
    return part;
  });
}

async function measure(
  cluster: Cluster,
  windows: readonly (readonly number[])[],
  signal: AbortSignal,
) {
  let negativeLog = 0;
  let tokens = 0;
  for (const part of windows) {
    for await (const { result } of cluster.score(
      { tokens: part, wants: wantsOf(part), chunk: null },
      signal,
    )) {
      if (result.want !== 'score' || result.skipped)
        throw new CoxswainError('INTERNAL', 'a scored row was skipped');
      negativeLog += result.logsumexp - result.targetLogit;
      tokens += 1;
    }
  }
  return { perplexity: Math.exp(negativeLog / tokens), tokens, windows: windows.length };
}

/** Row p predicts token p + 1; tokens of the second half are counted, except the one after the last row. */
function wantsOf(part: readonly number[]) {
  const first = Math.floor(part.length / 2);
  const entries = part
    .map((_, pos) => [pos, { want: 'score', target: part[pos + 1] ?? null } as const] as const)
    .filter(([pos]) => pos >= first && pos < part.length - 1);
  return new Map(entries);
}
