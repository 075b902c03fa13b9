// FakeEngine: a RankEngine without a model, for simulations and tests of everything above the engine.
// It obeys step records exactly (order, checks, slot ops, skipped rows, finish flags, tokens taken from
// earlier outputs) and answers with fake-model.ts, so that any mistake in slots, blocks, positions or
// order changes the text. Time, codec and data plane are passed in; nothing here reads a clock.
//
// A step goes through: planned (tokens of earlier outputs known) -> begun (seen by the peers) ->
// computing (for as long as `stepUs` says) -> ended; the leader then waits for all ranks, samples,
// publishes the verdict and answers.
import { present } from '../base/assert.ts';
import { CoxswainError, toCoxswainError } from '../base/errors.ts';
import { KV_BLOCK_TOKENS, type StepRecord, type StepResult } from '../base/step-record.ts';
import type {
  EngineCounters,
  EngineEvent,
  EngineFacts,
  EngineOptions,
  EpochSpec,
  GrpcFrames,
  LinkReport,
  LoadPages,
  Progress,
  RankEngine,
  SavedPages,
  SavePages,
} from './engine.ts';
import { FakeKv } from './fake-kv.ts';
import { type FakeShape, fakeLogits, fakeOutput } from './fake-model.ts';
import type { FakePlane } from './fake-plane.ts';
import { FakeSlots } from './fake-slots.ts';
import { type FakePlan, planFakeStep } from './fake-step.ts';

/** Steps that may wait, as in the native engine. */
const QUEUE_MAX = 64;
const STEP_DEADLINE_MS = 2_000;

export interface FakeWorld {
  readonly shape: FakeShape;
  readonly plane: FakePlane;
  readonly codec: {
    decodeRecord(bytes: Uint8Array): StepRecord;
    encodeResult(result: StepResult): Uint8Array;
  };
  /** Runs `run` after so many milliseconds. */
  after(ms: number, run: () => void): void;
  /** Compute time of a step of so many rows on one rank. */
  stepUs(rows: number): number;
  /** 256, but for simulations. */
  readonly blockTokens?: number;
  /** The files of this host that pages are saved to and loaded from, by path. */
  readonly files?: Map<string, Int32Array>;
  /** Asked before a step is computed; true: the rank dies of it instead (a poisonous request). */
  readonly dies?: (rank: number, record: StepRecord) => boolean;
}

interface OpenEpoch {
  readonly key: string;
  readonly epoch: number;
  nextStep: number;
  failed: boolean;
}

interface Queued {
  readonly record: StepRecord;
  plan: FakePlan | null;
  phase: 'waiting' | 'begun' | 'computing' | 'ended';
}

export class FakeEngine implements RankEngine {
  readonly grpc: GrpcFrames = {
    onOutgoing: () => {},
    deliver: () => {},
    closed: () => {},
  };
  rank = -1;
  private readonly world: FakeWorld;
  private options: EngineOptions | null = null;
  private slots: FakeSlots | null = null;
  private kv: FakeKv | null = null;
  private epoch: OpenEpoch | null = null;
  private opening: { readonly reject: (error: Error) => void; check(): void } | null = null;
  private queue: Queued[] = [];
  private listener: (event: EngineEvent) => void = () => {};
  private dead: boolean = false;
  private stalled: boolean = false;
  private advancing: boolean = false;
  private advanceAgain: boolean = false;

  constructor(world: FakeWorld) {
    this.world = world;
  }

  load(options: EngineOptions): Promise<EngineFacts> {
    const { shape, plane } = this.world;
    this.options = options;
    this.rank = options.rank;
    this.kv = new FakeKv(shape, options, this.blockTokens);
    this.resetSlots(options);
    const { topology } = options;
    return Promise.resolve({
      fingerprint: 'fake',
      planHash: `fake-${topology.split.join(',')}-${topology.pp}-${plane.rankCount}`,
      numericsId: 'fake',
      isa: 'fake',
      weightBytes: 0,
      kvBytes: this.kv.bytes,
      residentBytes: 0,
      context: topology.context,
      vocab: shape.vocab,
      loadMs: 0,
      dataPort: 0,
    });
  }

  openEpoch(spec: EpochSpec): Promise<readonly LinkReport[]> {
    const options = present(this.options, 'an epoch is opened after load');
    this.leaveEpoch('a new epoch begins');
    this.resetSlots(options);
    const key = `${spec.epoch}/${spec.incarnation}`;
    this.epoch = { key, epoch: spec.epoch, nextStep: spec.firstStep, failed: false };
    return new Promise((resolve, reject) => {
      const check = () => {
        if (!this.world.plane.isComplete(key)) return;
        this.opening = null;
        const { links } = spec;
        resolve(
          links.map(({ peer }) => ({ peer, transport: 'fake', interface: '', roundTripUs: 1 })),
        );
      };
      const opening = { reject, check };
      this.opening = opening;
      this.world.after(spec.openTimeoutMs, () => {
        if (this.opening !== opening) return;
        this.opening = null;
        this.leaveEpoch('timed out');
        const text = `rank ${this.rank}: not every peer came into epoch ${spec.epoch} in time`;
        reject(new CoxswainError('LINK_TIMEOUT', text));
      });
      this.world.plane.join(key, this);
    });
  }

  submit(bytes: Uint8Array): void {
    const { epoch } = this;
    if (this.dead || epoch === null || epoch.failed) return;
    try {
      const record = this.world.codec.decodeRecord(bytes);
      if (this.queue.length >= QUEUE_MAX) {
        throw new CoxswainError('STEP_INVALID', `${QUEUE_MAX} steps wait already`);
      }
      this.checkOrder(epoch, record);
      this.queue.push({ record, plan: null, phase: 'waiting' });
    } catch (thrown) {
      this.fail(epoch.nextStep, toCoxswainError(thrown));
      return;
    }
    if (this.queue.length === 1) this.startHead();
  }

  savePages(request: SavePages): Promise<SavedPages> {
    return this.transfer(request, (kv, files) => {
      const { bytes, saved } = kv.save(request.blocks);
      files.set(request.path, bytes);
      return saved;
    });
  }

  loadPages(request: LoadPages): Promise<void> {
    return this.transfer(request, (kv, files) => {
      kv.load(files.get(request.path) ?? new Int32Array(0), request);
    });
  }

  onEvent(listener: (event: EngineEvent) => void): void {
    this.listener = listener;
  }

  /** A simulated data plane has no port that a stranger could reach. */
  onRefused(): void {}

  fence(): Promise<void> {
    this.leaveEpoch('fenced');
    return new Promise((resolve) => {
      this.world.after(1, resolve);
    });
  }

  progress(): Progress {
    const head = this.queue[0];
    const step = head?.record.step ?? (this.epoch?.nextStep ?? 1) - 1;
    return { epoch: this.epoch?.epoch ?? 0, step, item: 0, busy: head !== undefined };
  }

  counters(): EngineCounters {
    return { collectives: 0, bytesSent: 0, bytesReceived: 0, waitNs: 0 };
  }

  close(): Promise<void> {
    this.kill();
    return Promise.resolve();
  }

  /** The process is gone: peers see the link close, nothing is said any more. */
  kill(): void {
    this.dead = true;
    this.leaveEpoch('killed');
  }

  /** SIGSTOP and SIGCONT. */
  setStalled(stalled: boolean): void {
    this.stalled = stalled;
    if (!stalled) this.wake();
  }

  wake(): void {
    if (this.dead || this.stalled) return;
    if (this.advancing) {
      this.advanceAgain = true;
      return;
    }
    this.advancing = true;
    do {
      this.advanceAgain = false;
      this.opening?.check();
      this.advance();
    } while (this.advanceAgain);
    this.advancing = false;
  }

  private transfer<T>(
    { epoch }: SavePages,
    run: (kv: FakeKv, files: Map<string, Int32Array>) => T,
  ): Promise<T> {
    return new Promise((resolve, reject) => {
      this.world.after(1, () => {
        const { kv } = this;
        try {
          if (this.dead || kv === null || this.epoch?.epoch !== epoch) {
            throw new CoxswainError('EPOCH_FENCED', `rank ${this.rank}: epoch ${epoch} is over`);
          }
          resolve(run(kv, present(this.world.files, 'a world with files')));
        } catch (thrown) {
          reject(toCoxswainError(thrown));
        }
      });
    });
  }

  private get blockTokens(): number {
    return this.world.blockTokens ?? KV_BLOCK_TOKENS;
  }

  private resetSlots(options: EngineOptions): void {
    this.slots = new FakeSlots({
      slots: options.slotsMax,
      blocks: options.kvBlocks,
      context: options.topology.context,
      blockTokens: this.blockTokens,
      vocab: this.world.shape.vocab,
    });
  }

  private checkOrder(epoch: OpenEpoch, record: StepRecord): void {
    if (record.epoch !== epoch.epoch || record.step !== epoch.nextStep) {
      const due = `step ${epoch.nextStep} of epoch ${epoch.epoch}`;
      const text = `step ${record.step} of epoch ${record.epoch} came where ${due} was due`;
      throw new CoxswainError('STEP_INVALID', text);
    }
    epoch.nextStep += 1;
  }

  private startHead(): void {
    const head = this.queue[0];
    if (head === undefined) return;
    this.world.after(STEP_DEADLINE_MS, () => {
      if (this.queue[0] !== head || this.stalled) return;
      const { epoch, step } = head.record;
      const text = `rank ${this.rank}: epoch ${epoch}, step ${step}: peers did not come in time`;
      this.fail(step, new CoxswainError('LINK_TIMEOUT', text));
    });
    this.wake();
  }

  private advance(): void {
    const { epoch } = this;
    const head = this.queue[0];
    if (epoch === null || head === undefined || epoch.failed) return;
    try {
      if (!this.moveHead(epoch, head)) this.accuseLost(epoch, head);
    } catch (thrown) {
      this.fail(head.record.step, toCoxswainError(thrown));
    }
  }

  /** False: the step waits for another rank. */
  private moveHead(epoch: OpenEpoch, head: Queued): boolean {
    const { plane } = this.world;
    const { step } = head.record;
    if (head.phase === 'waiting' && !this.begin(epoch, head)) return false;
    if (head.phase === 'begun') {
      if (!plane.canCompute(epoch.key, step, this.rank)) return false;
      this.compute(epoch, head);
    }
    if (head.phase !== 'ended') return true;
    if (this.rank !== plane.leader) {
      this.answer(epoch, head, []);
      return true;
    }
    const sums = plane.sums(epoch.key, step);
    if (sums === null) return false;
    const outputs = this.sample(head, sums);
    plane.publish(epoch.key, step, outputs);
    this.answer(epoch, head, outputs);
    return true;
  }

  /** False: a token that a row takes from an earlier output is not known yet. */
  private begin(epoch: OpenEpoch, head: Queued): boolean {
    const { plane } = this.world;
    const { record } = head;
    const slots = present(this.slots, 'loaded');
    const plan = planFakeStep(record, slots, {
      rowsMax: present(this.options, 'loaded').stepRowsMax,
      verdict: (step) => plane.verdict(epoch.key, step),
    });
    if (plan === null) return false;
    head.plan = plan;
    head.phase = 'begun';
    const rows = plan.rows.map(({ pos, id }) => `${pos}/${id}`).join();
    const digest = `${rows} ${slots.digest()}`;
    const begin = { rank: this.rank, digest, outputs: record.outputs.length };
    if (plane.begin(epoch.key, record.step, begin)) return true;
    const text = `rank ${this.rank}: step ${record.step} differs from that of its peers`;
    throw new CoxswainError('RANK_DIVERGED', text);
  }

  private compute(epoch: OpenEpoch, head: Queued): void {
    const { record } = head;
    if (this.world.dies?.(this.rank, record) === true) {
      this.kill();
      return;
    }
    head.phase = 'computing';
    const rows = present(head.plan, 'planned').rows.length;
    this.world.after(this.world.stepUs(rows) / 1_000, () => {
      if (this.queue[0] !== head || this.dead) return;
      const plan = present(head.plan, 'planned');
      const partials = present(this.kv, 'loaded').compute(record, plan);
      head.phase = 'ended';
      this.world.plane.end(epoch.key, record.step, this.rank, partials);
      this.wake();
    });
  }

  private sample(head: Queued, sums: Int32Array): StepResult['outputs'] {
    const plan = present(head.plan, 'planned');
    return head.record.outputs.map((output, index) => {
      const row = present(plan.rows[output.row], 'outputs are rows');
      if (row.skipped) return { want: output.want, skipped: true };
      const logits = fakeLogits(present(sums[index], 'a sum an output'), this.world.shape.vocab);
      const ids = row.slot.tokens.slice(0, row.pos + 1);
      return fakeOutput(output, logits, row.slot.sampler, ids);
    });
  }

  private answer(epoch: OpenEpoch, head: Queued, outputs: StepResult['outputs']): void {
    this.queue.shift();
    const { step } = head.record;
    const computeUs = Math.round(this.world.stepUs(present(head.plan, 'planned').rows.length));
    const result = { epoch: epoch.epoch, step, outputs, computeUs, waitUs: 0 };
    const bytes = this.world.codec.encodeResult(result);
    this.listener({ kind: 'result', epoch: epoch.epoch, step, bytes });
    this.advanceAgain = true;
    this.startHead();
  }

  /** A wait for a rank that has left the epoch is over. */
  private accuseLost(epoch: OpenEpoch, head: Queued): void {
    const lost = this.world.plane.lostRank(epoch.key);
    if (lost === null) return;
    const { step } = head.record;
    const text = `rank ${this.rank}: epoch ${epoch.epoch}, step ${step}: rank ${lost} left`;
    this.fail(step, new CoxswainError('LINK_CLOSED', text));
  }

  private fail(step: number, error: CoxswainError): void {
    const { epoch } = this;
    if (epoch === null || epoch.failed) return;
    epoch.failed = true;
    this.queue = [];
    const { code, message } = error;
    this.listener({ kind: 'failed', epoch: epoch.epoch, step, code, message });
  }

  private leaveEpoch(reason: string): void {
    const { epoch, opening } = this;
    this.queue = [];
    this.epoch = null;
    this.opening = null;
    opening?.reject(new CoxswainError('EPOCH_FENCED', `rank ${this.rank}: ${reason}`));
    if (epoch !== null) this.world.plane.leave(epoch.key, this);
  }
}
