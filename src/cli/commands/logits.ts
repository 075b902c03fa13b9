// cox logits: teacher-forced logits of a token file, one JSON line a position.
import { type FileHandle, open, readFile } from 'node:fs/promises';
import type { CommandModule } from 'yargs';
import { CoxswainError } from '../../base/errors.ts';
import { type OutputResult, STEP_ROWS_MAX } from '../../base/step-record.ts';
import { type Cluster, withCluster } from '../cluster.ts';
import { withCodec } from '../codec.ts';
import { summarizeLogits } from '../logits-summary.ts';
import { addSettings, type Flags, modelOf, readSettings, TOPOLOGY } from '../settings.ts';
import { printJson } from '../terminal.ts';
import { parseTokens } from '../token-file.ts';

export const logitsCommand: CommandModule<object, Flags> = {
  command: 'logits [model]',
  describe: 'Logits at every position of a token file (JSON lines)',
  builder: (yargs) =>
    addSettings(yargs, TOPOLOGY)
      .positional('model', { type: 'string', describe: 'GGUF file or catalogue name' })
      .option('tokens', {
        type: 'string',
        demandOption: true,
        requiresArg: true,
        describe: 'JSON array of token ids',
      })
      .option('chunk', {
        type: 'number',
        requiresArg: true,
        describe: 'Rows in one step [by predicted time]',
      })
      .option('out', {
        type: 'string',
        requiresArg: true,
        describe: 'Write all logits, float32 little-endian, (positions, vocabulary)',
      }) as never,
  handler: async (flags) => {
    const config = readSettings(flags, TOPOLOGY);
    const chunk = chunkOf(flags['chunk']);
    const file = String(flags['tokens']);
    const json = await readFile(file, 'utf8').catch((cause) => {
      throw new CoxswainError('FILE_UNREADABLE', `${file} (--tokens) cannot be read`, { cause });
    });
    const model = await modelOf(flags, config);
    const tokens = await withCodec(model, (codec) => parseTokens(json, codec.vocabSize, file));
    if (tokens.length === 0) return;
    const out = typeof flags['out'] === 'string' ? await openOutput(flags['out']) : null;
    try {
      await withCluster(
        { flags: { ...flags, model }, config, ranks: 'local', logLevel: 'error', liveReuse: false },
        (cluster, signal) => printScores(cluster, { tokens, chunk, out, signal }),
      );
      await out?.sync();
    } finally {
      await out?.close();
    }
  },
};

interface PrintOptions {
  readonly tokens: readonly number[];
  readonly chunk: number | null;
  readonly out: FileHandle | null;
  readonly signal: AbortSignal;
}

async function printScores(
  cluster: Cluster,
  { tokens, chunk, out, signal }: PrintOptions,
): Promise<void> {
  const want =
    out === null ? ({ want: 'score', target: null } as const) : ({ want: 'logits' } as const);
  const wants = new Map(tokens.map((_, pos) => [pos, want]));
  for await (const { pos, result } of cluster.score({ tokens, wants, chunk }, signal)) {
    printJson({ pos, ...lineOf(result) });
    if (out !== null && result.want === 'logits' && !result.skipped)
      await append(out, result.logits);
  }
}

function lineOf(result: OutputResult) {
  if (result.skipped || result.want === 'token')
    throw new CoxswainError('INTERNAL', 'a scored row was skipped');
  if (result.want === 'logits') return summarizeLogits(result.logits);
  const { argmax, gap, logsumexp, top } = result;
  return { argmax, gap, logsumexp, top };
}

/** Every machine this runs on is little-endian, as the file format is. */
async function append(out: FileHandle, logits: Float32Array): Promise<void> {
  // Not write(), which may take a part only.
  await out.appendFile(new Uint8Array(logits.buffer, logits.byteOffset, logits.byteLength));
}

async function openOutput(path: string): Promise<FileHandle> {
  try {
    return await open(path, 'w');
  } catch (cause) {
    throw new CoxswainError('FILE_UNREADABLE', `${path} (--out) cannot be written`, { cause });
  }
}

function chunkOf(value: unknown): number | null {
  if (value === undefined) return null;
  if (!Number.isInteger(value) || (value as number) < 1 || (value as number) > STEP_ROWS_MAX) {
    throw new CoxswainError(
      'USAGE_INVALID',
      `--chunk must be a whole number from 1 to ${STEP_ROWS_MAX}`,
    );
  }
  return value as number;
}
