// cox quantize: a model file into another of fewer bits (or more), tensor by tensor.
import { existsSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { resolve } from 'node:path';
import { Presets, SingleBar } from 'cli-progress';
import type { CommandModule } from 'yargs';
import { CoxswainError } from '../../base/errors.ts';
import {
  type Quantized,
  type QuantizedTensor,
  type QuantizeOptions,
  quantizeModel,
} from '../../base/quantize.ts';
import { modelFile } from '../models-directory.ts';
import { bytes, table } from '../table.ts';
import { print, printJson, say } from '../terminal.ts';

interface QuantizeArguments {
  readonly model: string;
  readonly type: string;
  readonly out: string;
  readonly threads: number;
  readonly pure: boolean;
  readonly force: boolean;
  readonly 'dry-run': boolean;
  readonly json: boolean;
}

const THREADS_MAX = 1024;
const MILLION = 1e6;
const BITS = 8;

export const quantizeCommand: CommandModule<object, QuantizeArguments> = {
  command: 'quantize <model> <type> <out>',
  describe: 'Write a model file with other weight types',
  builder: (yargs) =>
    yargs
      .positional('model', { type: 'string', describe: 'GGUF file or catalogue name' })
      .positional('type', {
        type: 'string',
        describe:
          'F32, F16, BF16, Q8_0, Q6_K, Q5_K, Q5_1, Q5_0, Q4_K_M (mixture), Q4_K, Q4_1 or Q4_0',
      })
      .positional('out', { type: 'string', describe: 'The new file' })
      .option('threads', {
        type: 'number',
        requiresArg: true,
        default: Math.min(availableParallelism(), THREADS_MAX),
        defaultDescription: 'processors',
        describe: 'Threads; the result does not depend on them',
      })
      .option('pure', {
        type: 'boolean',
        default: false,
        describe: 'One type for all matrices; else the output matrix has at least Q6_K',
      })
      .option('force', { type: 'boolean', default: false, describe: 'Replace an existing file' })
      .option('dry-run', {
        type: 'boolean',
        default: false,
        describe: 'Print what would be written, write nothing',
      })
      .option('json', { type: 'boolean', default: false, describe: 'Result as JSON' })
      .epilogue(
        'Rows that 256 does not divide: Q5_0 for Q4_K, Q5_1 for Q5_K, Q8_0 for Q6_K; rows that 32 does not divide: F16.',
      ) as never,
  handler: async (args) => {
    const options = await optionsOf(args);
    const plan = await quantizeModel(
      { ...options, dryRun: true },
      () => undefined,
      AbortSignal.any([]),
    );
    if (plan.requantizes) say(REQUANTIZES);
    if (!options.dryRun) await writeFile(options);
    if (args.json) printJson({ path: options.out, ...plan });
    else print(describe(plan, options.dryRun ? 'would have' : options.out));
  },
};

const REQUANTIZES =
  'cox: the model is quantised already; rounding it again loses quality that its F16 or F32 file would keep';

async function optionsOf(args: QuantizeArguments): Promise<QuantizeOptions> {
  const { threads } = args;
  if (!Number.isInteger(threads) || threads < 1 || threads > THREADS_MAX) {
    throw new CoxswainError(
      'USAGE_INVALID',
      `--threads must be a whole number from 1 to ${THREADS_MAX}`,
    );
  }
  const out = resolve(args.out);
  // The writer asks again; here it spares reading the model.
  if (!args['dry-run'] && !args.force && existsSync(out)) {
    throw new CoxswainError(
      'FILE_UNREADABLE',
      `${out} exists already; choose another path or use --force`,
    );
  }
  return {
    path: await modelFile(args.model, process.env),
    type: args.type,
    out,
    pure: args.pure,
    force: args.force,
    dryRun: args['dry-run'],
    threads,
  };
}

/** SIGINT and SIGTERM end the work and leave no file. */
async function writeFile(options: QuantizeOptions): Promise<void> {
  const stop = new AbortController();
  // They stay on until the process ends, so that a second one cannot cut the clean end short.
  const onSignal = () => stop.abort(new CoxswainError('REQUEST_CANCELLED', 'interrupted'));
  process.on('SIGINT', onSignal).on('SIGTERM', onSignal);
  const bar = process.stderr.isTTY
    ? new SingleBar(
        {
          format: `${options.type} {bar} {percentage}% | {value}/{total} M weights | {eta_formatted}`,
          stream: process.stderr,
        },
        Presets.shades_classic,
      )
    : null;
  bar?.start(0, 0);
  try {
    await quantizeModel(
      options,
      (done, total) => {
        bar?.setTotal(Math.round(total / MILLION));
        bar?.update(Math.round(done / MILLION));
      },
      stop.signal,
    );
  } finally {
    bar?.stop();
  }
}

const HEADER = ['tensor', 'shape', 'from', 'to', 'bytes', ''];

function describe(plan: Quantized, target: string): string {
  const weights = plan.tensors.reduce((sum, tensor) => sum + count(tensor), 0);
  const before = plan.tensors.reduce((sum, tensor) => sum + tensor.from_bytes, 0);
  const after = plan.tensors.reduce((sum, tensor) => sum + tensor.bytes, 0);
  const types = [...new Set(plan.tensors.map(({ to }) => to))].map((type) => {
    const of = plan.tensors.filter(({ to }) => to === type);
    return `${type} ${of.length} (${bytes(of.reduce((sum, tensor) => sum + tensor.bytes, 0))})`;
  });
  const each = weights === 0 ? '' : `, ${((BITS * after) / weights).toFixed(2)} bits each`;
  return [
    table([HEADER, ...plan.tensors.map(row)]),
    `${plan.tensors.length} tensors: ${types.join(', ')}`,
    `${(weights / MILLION).toFixed(1)} M weights: ${bytes(before)} -> ${bytes(after)}${each}`,
    `${target} ${bytes(plan.file_bytes)}`,
  ].join('\n');
}

const count = ({ dims }: QuantizedTensor) => dims.reduce((product, size) => product * size, 1);

function row(tensor: QuantizedTensor): (string | number)[] {
  const { name, dims, from, to, note } = tensor;
  return [name, dims.join(' x '), from, to, tensor.bytes, note];
}
