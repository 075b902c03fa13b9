// Drives real engines in this process: one NativeEngine a rank, joined over loopback, fed with step records
// as the coordinator would feed them. Owns steps, slots' blocks and the engines' lives.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { present } from '../../src/base/assert.ts';
import type {
  Output,
  OutputResult,
  Run,
  SamplerParams,
  SlotOp,
  StepResult,
} from '../../src/base/step-record.ts';
import { KV_BLOCK_TOKENS } from '../../src/base/step-record.ts';
import type { Transport } from '../../src/base/transport.ts';
import type { EngineEvent, EngineFacts, LinkSpec, Topology } from '../../src/engine/engine.ts';
import { NativeEngine } from '../../src/engine/native-engine.ts';
import { decodeStepResult, encodeStepRecord } from '../../src/wire/step-codec.ts';

const ORACLE = join(import.meta.dirname, '../vectors/oracle');
const GENERATED = join(import.meta.dirname, '../.generated');

/** The path of an oracle model; float models are generated on first use. */
export function oracleModel(name: string): string {
  const shipped = join(ORACLE, 'models', `${name}.gguf`);
  if (existsSync(shipped)) return shipped;
  const path = join(GENERATED, `${name}.gguf`);
  if (existsSync(path)) return path;
  // Test files run side by side: each makes its own copy, the last rename wins, all are equal.
  const scratch = join(GENERATED, `making-${process.pid}-${name}`);
  mkdirSync(scratch, { recursive: true });
  const made = spawnSync(process.execPath, [join(ORACLE, 'make-tiny.mjs'), '--out', scratch, name]);
  if (made.status !== 0) throw new Error(made.stderr.toString());
  renameSync(join(scratch, `${name}.gguf`), path);
  rmSync(scratch, { recursive: true });
  return path;
}

export const GREEDY: SamplerParams = {
  temperature: 0,
  topK: 0,
  topP: 1,
  minP: 0,
  repetitionPenalty: 1,
  presencePenalty: 0,
  frequencyPenalty: 0,
  seed: 0n,
  choice: 0,
  promptLength: 0,
  lengthMax: 1 << 20,
  topLogprobs: 0,
  wantLogprob: false,
  stopIds: [],
  bias: [],
};

export interface ClusterOptions {
  readonly model: string;
  readonly topology?: Partial<Topology>;
  readonly threads?: number;
  readonly transport?: Transport;
  readonly kvBlocks?: number;
  readonly slotsMax?: number;
  readonly stepRowsMax?: number;
  /** The kernel set of each rank; all ranks have the environment's or the best one otherwise. */
  readonly isas?: readonly string[];
}

export interface StepParts {
  readonly slotOps?: readonly SlotOp[];
  readonly runs?: readonly Run[];
  readonly outputs?: readonly Output[];
}

interface Pending {
  readonly results: Map<number, StepResult>;
  resolve(result: StepResult): void;
  reject(error: Error): void;
}

export class EngineFailure extends Error {
  readonly code: string;
  readonly rank: number;
  constructor(rank: number, code: string, message: string) {
    super(`rank ${rank}: ${code}: ${message}`);
    this.code = code;
    this.rank = rank;
  }
}

export class Cluster {
  readonly engines: readonly NativeEngine[];
  readonly facts: readonly EngineFacts[];
  private readonly leader: number;
  private readonly transport: Transport;
  private readonly pending = new Map<number, Pending>();
  private epoch = 0;
  private nextStep = 0;
  private nextBlock = 0;

  private constructor(options: {
    engines: readonly NativeEngine[];
    facts: readonly EngineFacts[];
    leader: number;
    transport: Transport;
  }) {
    this.engines = options.engines;
    this.facts = options.facts;
    this.leader = options.leader;
    this.transport = options.transport;
    this.engines.forEach((engine, rank) => {
      engine.onEvent((event) => this.onEvent(rank, event));
    });
  }

  static async start(options: ClusterOptions): Promise<Cluster> {
    const topology: Topology = {
      split: [1],
      pp: 1,
      layers: [],
      kvType: 'f32',
      exact: true,
      context: 0,
      ...options.topology,
    };
    const count = topology.split.length * topology.pp;
    const engines = Array.from({ length: count }, () => new NativeEngine());
    const load = (engine: NativeEngine, rank: number) =>
      engine.load({
        path: options.model,
        topology,
        rank,
        threads: options.threads ?? 1,
        kvBlocks: options.kvBlocks ?? 16,
        slotsMax: options.slotsMax ?? 8,
        stepRowsMax: options.stepRowsMax ?? 1024,
        shareCores: count * (options.threads ?? 1) > 2,
        dataHost: '127.0.0.1',
      });
    const facts =
      options.isas === undefined
        ? await Promise.all(engines.map(load))
        : await loadWithKernels(engines, options.isas, load);
    const leader = (topology.pp - 1) * topology.split.length;
    const transport = options.transport ?? 'auto';
    const cluster = new Cluster({ engines, facts, leader, transport });
    await cluster.openEpoch();
    return cluster;
  }

  async openEpoch(): Promise<void> {
    this.epoch += 1;
    this.nextStep = 1;
    this.nextBlock = 0;
    this.pending.clear();
    const incarnation = this.epoch.toString(16).padStart(32, '0');
    if (this.transport === 'grpc') this.joinFrames();
    await Promise.all(
      this.engines.map((engine, rank) =>
        engine.openEpoch({
          epoch: this.epoch,
          incarnation,
          rank,
          dataKey: new Uint8Array(32).fill(7),
          links: this.linksOf(rank),
          firstStep: 1,
          openTimeoutMs: 20_000,
        }),
      ),
    );
  }

  /** The frames of the grpc transport, handed over as two JavaScript ends of a stream would do it. */
  private joinFrames(): void {
    this.engines.forEach((engine, rank) => {
      engine.grpc.onOutgoing((peer, frame) => {
        const copy = Uint8Array.from(frame);
        setImmediate(() => this.engines[peer]?.grpc.deliver(rank, copy));
      });
    });
  }

  private linksOf(rank: number): LinkSpec[] {
    return this.facts.flatMap((facts, peer) =>
      peer === rank
        ? []
        : [{ peer, transport: this.transport, host: '127.0.0.1', port: facts.dataPort }],
    );
  }

  /** The number that the next submitted step will have. */
  get step(): number {
    return this.nextStep;
  }

  /** Blocks that no slot has yet. */
  takeBlocks(tokens: number): number[] {
    const count = Math.ceil(tokens / KV_BLOCK_TOKENS);
    const first = this.nextBlock;
    this.nextBlock += count;
    return Array.from({ length: count }, (_, index) => first + index);
  }

  /** Submits one step to all ranks; resolves with the leader's result when all have answered. */
  submit(parts: StepParts): Promise<StepResult> {
    const step = this.nextStep;
    this.nextStep += 1;
    const record = encodeStepRecord({
      epoch: this.epoch,
      step,
      slotOps: parts.slotOps ?? [],
      runs: parts.runs ?? [],
      outputs: parts.outputs ?? [],
    });
    return new Promise((resolve, reject) => {
      this.pending.set(step, { results: new Map(), resolve, reject });
      for (const engine of this.engines) engine.submit(record);
    });
  }

  private onEvent(rank: number, event: EngineEvent): void {
    const pending = this.pending.get(event.step);
    if (pending === undefined) return;
    if (event.kind === 'failed') {
      this.pending.delete(event.step);
      pending.reject(new EngineFailure(rank, event.code, event.message));
      return;
    }
    pending.results.set(rank, decodeStepResult(event.bytes));
    if (pending.results.size < this.engines.length) return;
    this.pending.delete(event.step);
    pending.resolve(present(pending.results.get(this.leader), 'the leader answered'));
  }

  async close(): Promise<void> {
    await Promise.all(this.engines.map((engine) => engine.close()));
  }
}

/** One after the other, since engines read the name of their kernel set from the process's environment. */
async function loadWithKernels(
  engines: readonly NativeEngine[],
  isas: readonly string[],
  load: (engine: NativeEngine, rank: number) => Promise<EngineFacts>,
): Promise<EngineFacts[]> {
  const facts: EngineFacts[] = [];
  try {
    for (const [rank, engine] of engines.entries()) {
      process.env['COX_ISA'] = present(isas[rank], 'a kernel set a rank');
      facts.push(await load(engine, rank));
    }
  } finally {
    delete process.env['COX_ISA'];
  }
  return facts;
}

/** Runs `body` with a cluster that is closed afterwards. */
export async function withCluster<T>(
  options: ClusterOptions,
  body: (cluster: Cluster) => Promise<T>,
): Promise<T> {
  const cluster = await Cluster.start(options);
  try {
    return await body(cluster);
  } finally {
    await cluster.close();
  }
}

/** One slot and its tokens. */
export class Session {
  readonly tokens: number[] = [];
  private readonly cluster: Cluster;
  private readonly slot: number;
  private readonly blockCount: number;

  private constructor(cluster: Cluster, slot: number, blockCount: number) {
    this.cluster = cluster;
    this.slot = slot;
    this.blockCount = blockCount;
  }

  static async create(
    cluster: Cluster,
    options: { slot: number; tokensMax: number; sampler?: SamplerParams },
  ): Promise<Session> {
    const { slot, tokensMax, sampler = GREEDY } = options;
    const blocks = cluster.takeBlocks(tokensMax);
    await cluster.submit({
      slotOps: [
        { kind: 'create', slot, blocks, tokens: [] },
        { kind: 'sampler', slot, params: sampler },
      ],
    });
    return new Session(cluster, slot, blocks.length);
  }

  /** The run that appends `tokens`; the caller submits it. */
  run(tokens: readonly number[]): Run {
    const pos0 = this.tokens.length;
    this.tokens.push(...tokens);
    return { slot: this.slot, pos0, tokens };
  }

  /** Feeds tokens in chunks and gives all logits of every one. */
  async feed(tokens: readonly number[], chunk = tokens.length): Promise<Float32Array[]> {
    const logits: Float32Array[] = [];
    for (let at = 0; at < tokens.length; at += chunk) {
      const part = tokens.slice(at, at + chunk);
      const runs = [this.run(part)];
      const outputs: Output[] = part.map((_, row) => ({ row, want: 'logits' }));
      const result = await this.cluster.submit({ runs, outputs });
      logits.push(...result.outputs.map(logitsOf));
    }
    return logits;
  }

  /** Samples `count` tokens after feeding `last`; each step takes its token from the one before. */
  async generate(last: number, count: number): Promise<OutputResult[]> {
    const results: Promise<StepResult>[] = [];
    for (let index = 0; index < count; index += 1) {
      const source = { step: this.cluster.step - 1, output: 0 };
      const pos0 = this.tokens.length + index;
      const tokens = index === 0 ? [last] : source;
      results.push(
        this.cluster.submit({
          runs: [{ slot: this.slot, pos0, tokens }],
          outputs: [{ row: 0, want: 'token' }],
        }),
      );
      // Stages + 1 steps in flight are what the coordinator allows itself; two suffice here.
      if (index > 1) await results[index - 2];
    }
    const outputs = (await Promise.all(results)).map((result) =>
      present(result.outputs[0], 'one output'),
    );
    this.tokens.push(last);
    for (const output of outputs.slice(0, -1)) {
      const goesOn = !output.skipped && output.want === 'token' && output.finish === 'no';
      if (goesOn) this.tokens.push(output.id);
    }
    return outputs;
  }

  /** Takes tokens back; the blocks stay. */
  async truncate(length: number): Promise<void> {
    this.tokens.length = length;
    const { slot, blockCount } = this;
    await this.cluster.submit({ slotOps: [{ kind: 'truncate', slot, length, blockCount }] });
  }
}

export function logitsOf(output: OutputResult): Float32Array {
  if (output.skipped || output.want !== 'logits') throw new Error('no logits in this output');
  return output.logits;
}

export function idOf(output: OutputResult): number {
  if (output.skipped || output.want !== 'token') throw new Error('no token in this output');
  return output.id;
}
