// cox bench: prefill and decode rates of a model on a topology, through the whole cluster but HTTP, each
// beside the limit of this machine that applies to it.
import { cpus } from 'node:os';
import type { CommandModule } from 'yargs';
import {
  type ArithmeticPeak,
  inspectModel,
  type MachineLimits,
  measureLimits,
  type Plan,
} from '../../base/addon.ts';
import { CoxswainError } from '../../base/errors.ts';
import { createPrng, type Prng } from '../../base/prng.ts';
import { type Cluster, withCluster } from '../cluster.ts';
import { withCodec } from '../codec.ts';
import { decodeShare, type MachineShare, prefillShare } from '../machine-share.ts';
import { addSettings, type Flags, modelOf, readSettings, TOPOLOGY } from '../settings.ts';
import { table } from '../table.ts';
import { print, printJson } from '../terminal.ts';

interface Shape {
  readonly prefill: number;
  readonly decode: number;
  readonly streams: number;
  readonly runs: number;
  /** Tokens of context that decode starts after. One: an empty context, as in llama.cpp's own benchmark. */
  readonly depth: number;
}

interface Rates {
  readonly min: number;
  readonly median: number;
  readonly max: number;
}

/** What the cluster measured, before the machine's limits are known. */
interface Row {
  readonly test: 'prefill' | 'decode';
  readonly tokens: number;
  readonly streams: number;
  readonly threads: number;
  readonly topology: string;
  readonly tokens_per_second: Rates;
  readonly step_overhead_us_p50: number | null;
}

interface Measured {
  readonly rows: readonly Row[];
  readonly plan: Plan;
  /** Of all ranks. */
  readonly threads: number;
}

const COUNT_MAX = 1_000_000;

export const benchCommand: CommandModule<object, Flags> = {
  command: 'bench [model]',
  describe: 'Measure prefill and decode rates',
  builder: (yargs) =>
    addSettings(yargs, TOPOLOGY)
      .positional('model', { type: 'string', describe: 'GGUF file or catalogue name' })
      .option('p', {
        type: 'number',
        default: 512,
        describe: 'Tokens of prefill (0: no prefill test)',
      })
      .option('n', {
        type: 'number',
        default: 64,
        describe: 'Tokens of decode (0: no decode test)',
      })
      .option('streams', { type: 'number', default: 1, describe: 'Sessions at once' })
      .option('depth', {
        type: 'number',
        default: 1,
        describe: 'Tokens of context before decode',
      })
      .option('runs', {
        type: 'number',
        default: 5,
        describe: 'Runs counted, after one that is not',
      })
      .option('no-limits', {
        type: 'boolean',
        default: false,
        describe: "Do not measure the machine's limits (which takes two seconds)",
      })
      .option('json', { type: 'boolean', default: false, describe: 'Result as JSON' }) as never,
  handler: async (flags) => {
    const config = readSettings(flags, TOPOLOGY);
    const shape = {
      prefill: count(flags, 'p'),
      decode: count(flags, 'n'),
      streams: count(flags, 'streams'),
      runs: count(flags, 'runs'),
      depth: count(flags, 'depth'),
    };
    if (shape.streams < 1 || shape.runs < 1 || shape.depth < 1)
      throw new CoxswainError('USAGE_INVALID', '--streams, --runs and --depth must be at least 1');
    const model = await modelOf(flags, config);
    const vocab = await withCodec(model, (codec) => codec.vocabSize);
    const measured = await withCluster(
      {
        flags: { ...flags, model },
        config: { ...config, slots: shape.streams },
        ranks: 'local',
        logLevel: 'error',
        liveReuse: false,
      },
      (cluster, signal) => new Bench(cluster, { shape, vocab, signal }).run(),
    );
    // The ranks have ended: their cores are free.
    const limits =
      flags['no-limits'] === true
        ? null
        : await measureLimits(Math.min(measured.threads, cpus().length));
    const shares = limits === null ? [] : await sharesOf(model, { measured, shape, limits });
    if (flags['json'] === true) {
      printJson(
        measured.rows.map((row, index) => ({
          ...row,
          ...(limits === null ? {} : { machine: shares[index], limits }),
        })),
      );
      return;
    }
    print(table([HEADING, ...measured.rows.map((row, index) => cells(row, shares[index]))]));
    if (limits !== null) print(`\n${describeLimits(limits)}`);
  },
};

const HEADING = ['test', 'tokens', 'streams', 'tok/s min', 'median', 'max', 'of the machine'];

function cells(row: Row, share: MachineShare | null | undefined): (string | number)[] {
  const rates = Object.values(row.tokens_per_second).map((rate) => rate.toFixed(1));
  const of = share ? `${(100 * share.share).toFixed(0)} % of ${share.limit}` : '';
  return [row.test, row.tokens, row.streams, ...rates, of];
}

interface Shared {
  readonly measured: Measured;
  readonly shape: Shape;
  readonly limits: MachineLimits;
}

async function sharesOf(path: string, shared: Shared): Promise<(MachineShare | null)[]> {
  const { measured, shape, limits } = shared;
  const model = await inspectModel(path);
  const kvPerToken = measured.plan.ranks.reduce((sum, rank) => sum + rank.kv_bytes_per_token, 0);
  return measured.rows.map((row) => {
    const rate = { tokensPerSecond: row.tokens_per_second.median, streams: shape.streams };
    if (row.test === 'prefill') return prefillShare(model, limits, rate);
    const kvBytes = kvPerToken * (shape.depth + shape.decode / 2);
    return decodeShare(model, limits, { ...rate, kvBytes });
  });
}

function describeLimits(limits: MachineLimits): string {
  const peak = (name: string, value: ArithmeticPeak | null) =>
    value === null
      ? `no ${name}`
      : `${name} ${(value.opsPerSecond / 1e9).toFixed(0)} G/s (${value.instruction})`;
  const arithmetic = [
    peak('int8', limits.int8),
    peak('bf16', limits.bf16),
    peak('f32', limits.f32),
  ].join(', ');
  return `This machine with ${limits.threads} ${limits.threads === 1 ? 'thread' : 'threads'}: reads ${(limits.readBytesPerSecond / 1e9).toFixed(1)} GB/s; operations: ${arithmetic}`;
}

interface BenchOptions {
  readonly shape: Shape;
  readonly vocab: number;
  readonly signal: AbortSignal;
}

class Bench {
  private readonly cluster: Cluster;
  private readonly options: BenchOptions;
  private readonly random: Prng = createPrng(1);

  constructor(cluster: Cluster, options: BenchOptions) {
    this.cluster = cluster;
    this.options = options;
  }

  async run(): Promise<Measured> {
    const { prefill, decode, streams } = this.options.shape;
    const { plan } = this.cluster;
    const threads = this.cluster.describe().ranks.map((rank) => rank.threads);
    const common = {
      streams,
      threads: Math.max(...threads),
      topology: `tp${plan.tp} pp${plan.pp}`,
    };
    const rows: Omit<Row, 'step_overhead_us_p50'>[] = [];
    if (prefill > 0) {
      rows.push({
        test: 'prefill',
        tokens: prefill,
        ...common,
        tokens_per_second: await this.measure(() => this.prefill()),
      });
    }
    if (decode > 0) {
      rows.push({
        test: 'decode',
        tokens: decode,
        ...common,
        tokens_per_second: await this.measure(() => this.decode()),
      });
    }
    const overheads = this.cluster.stepOverheadsUs().toSorted((a, b) => a - b);
    const step_overhead_us_p50 = overheads[overheads.length >> 1] ?? null;
    return {
      rows: rows.map((row) => ({ ...row, step_overhead_us_p50 })),
      plan,
      threads: threads.reduce((sum, value) => sum + value, 0),
    };
  }

  /** Tokens a second of all streams together, of RUNS runs after a warm-up. */
  private async measure(once: () => Promise<number>): Promise<Rates> {
    await once();
    const rates: number[] = [];
    for (let run = 0; run < this.options.shape.runs; run += 1) rates.push(await once());
    rates.sort((a, b) => a - b);
    return { min: rates[0] ?? 0, median: rates[rates.length >> 1] ?? 0, max: rates.at(-1) ?? 0 };
  }

  private async prefill(): Promise<number> {
    const { prefill, streams } = this.options.shape;
    const prompts = Array.from({ length: streams }, () => this.prompt(prefill));
    const start = performance.now();
    await Promise.all(prompts.map((tokens) => this.generate(tokens, 1)));
    return perSecond(prefill * streams, performance.now() - start);
  }

  /** From the first token of the last stream that got one to the end. */
  private async decode(): Promise<number> {
    const { decode, depth, streams } = this.options.shape;
    const firsts = await Promise.all(
      Array.from({ length: streams }, () => this.generate(this.prompt(depth), decode + 1)),
    );
    return perSecond(decode * streams, performance.now() - Math.max(...firsts));
  }

  /** Resolves with the time of the first token. */
  private async generate(tokens: readonly number[], maxTokens: number): Promise<number> {
    let first = 0;
    for await (const _id of this.cluster.generateTokens(
      { tokens, maxTokens, temperature: 0, seed: 0n, stopIds: [] },
      this.options.signal,
    )) {
      if (first === 0) first = performance.now();
    }
    return first;
  }

  private prompt(length: number): number[] {
    return Array.from({ length }, () => this.random.below(this.options.vocab));
  }
}

function perSecond(tokens: number, ms: number): number {
  return (tokens / ms) * 1000;
}

function count(flags: Flags, name: string): number {
  const value = flags[name];
  if (!Number.isInteger(value) || (value as number) < 0 || (value as number) > COUNT_MAX) {
    throw new CoxswainError(
      'USAGE_INVALID',
      `-${name.length > 1 ? '-' : ''}${name} must be a whole number up to ${COUNT_MAX}`,
    );
  }
  return value as number;
}
