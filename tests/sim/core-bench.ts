// The core joined directly to FakeEngines: no rank cores, no network, no faults; only simulated compute
// time. For unit and property tests of scheduling.
import { assert } from '../../src/base/assert.ts';
import type { StepRecord } from '../../src/base/step-record.ts';
import { CoordinatorCore } from '../../src/coordinator/core/core.ts';
import type {
  CoreEffect,
  CoreEvent,
  CoreLimits,
  CoreRequest,
} from '../../src/coordinator/core/events.ts';
import { FakeEngine, type FakeWorld } from '../../src/engine/fake-engine.ts';
import { FakePlane } from '../../src/engine/fake-plane.ts';
import {
  decodeStepRecord,
  decodeStepResult,
  encodeStepResult,
  StepEncoder,
} from '../../src/wire/step-codec.ts';
import { FakeClock } from './fake-clock.ts';
import { Outcomes } from './outcomes.ts';

export const SHAPE = { layers: 2, heads: 3, vocab: 61 };

export interface BenchOptions {
  readonly limits?: Partial<CoreLimits>;
  readonly split?: readonly number[];
  readonly pp?: number;
  readonly blockTokens?: number;
  readonly stepUs?: (rows: number) => number;
}

export class CoreBench {
  readonly clock = new FakeClock();
  readonly outcomes = new Outcomes();
  readonly core: CoordinatorCore;
  readonly records: StepRecord[] = [];
  readonly effects: CoreEffect[] = [];
  readonly limits: CoreLimits;
  /** Clients that look at their tokens, by request id. */
  readonly onTokens = new Map<string, (choice: number) => void>();
  private readonly encoder = new StepEncoder();
  private readonly engines: FakeEngine[] = [];
  private readonly options: BenchOptions;
  private readonly blockTokens: number;

  constructor(options: BenchOptions = {}) {
    this.options = options;
    this.blockTokens = options.blockTokens ?? 4;
    const ranks = (options.split?.length ?? 1) * (options.pp ?? 1);
    this.limits = {
      slots: 8,
      kvBlocks: 64,
      context: 256,
      stages: options.pp ?? 1,
      rankCount: ranks,
      stepRowsMax: 64,
      queueMax: 100,
      liveReuse: true,
      ...options.limits,
    };
    this.core = new CoordinatorCore({ queueMax: 100, blockTokens: this.blockTokens });
  }

  static async ready(options: BenchOptions = {}): Promise<CoreBench> {
    const bench = new CoreBench(options);
    await bench.openEpoch(1);
    return bench;
  }

  /** Builds engines, opens their epoch and tells the core. */
  async openEpoch(epoch: number): Promise<void> {
    const { split = [1], pp = 1, stepUs = (rows: number) => 1_000 + 100 * rows } = this.options;
    const { rankCount, stages, kvBlocks, slots, stepRowsMax, context } = this.limits;
    const world: FakeWorld = {
      shape: SHAPE,
      plane: new FakePlane(rankCount, stages),
      codec: { decodeRecord: decodeStepRecord, encodeResult: encodeStepResult },
      after: (ms, run) => this.clock.after(ms, run),
      stepUs,
      blockTokens: this.blockTokens,
    };
    this.engines.length = 0;
    const topology = { split, pp, layers: [], kvType: 'f32', exact: true, context } as const;
    const opened: Promise<unknown>[] = [];
    for (let rank = 0; rank < rankCount; rank += 1) {
      const engine = new FakeEngine(world);
      await engine.load({
        path: '',
        topology,
        rank,
        threads: 1,
        kvBlocks,
        slotsMax: slots,
        stepRowsMax,
        shareCores: false,
        dataHost: '',
      });
      engine.onEvent((event) => {
        assert(event.kind === 'result', `rank ${rank}: ${JSON.stringify(event)}`);
        this.event({ type: 'step-result', rank, result: decodeStepResult(event.bytes) });
      });
      this.engines.push(engine);
    }
    for (const [rank, engine] of this.engines.entries()) {
      const incarnation = '0'.repeat(32);
      const spec = {
        epoch,
        incarnation,
        rank,
        dataKey: new Uint8Array(32),
        links: [],
        firstStep: 1,
      };
      opened.push(engine.openEpoch({ ...spec, openTimeoutMs: 1_000 }));
    }
    await Promise.all(opened);
    this.event({ type: 'epoch-ready', epoch, firstStep: 1, limits: this.limits });
  }

  submit(request: CoreRequest): void {
    this.outcomes.expect(request);
    this.event({ type: 'request-arrived', request });
  }

  event(event: CoreEvent): CoreEffect[] {
    const effects = this.core.step(event, this.clock.now);
    for (const effect of effects) {
      this.effects.push(effect);
      this.outcomes.take(effect);
      if (effect.type === 'send-step') this.send(effect.record);
      if (effect.type === 'tokens') this.onTokens.get(effect.id)?.(effect.choice);
    }
    return effects;
  }

  /** Until no request is open, or for so many callbacks. */
  run(callbacksMax = 1_000_000): void {
    for (let count = 0; count < callbacksMax; count += 1) {
      if (this.outcomes.open === 0 && this.outcomes.byId.size > 0 && this.clock.pending === 0)
        return;
      if (!this.clock.runNext()) return;
    }
  }

  /** Lets the steps in flight land. */
  settle(): void {
    while (this.core.status.stepsInFlight > 0 && this.clock.runNext());
  }

  private send(record: StepRecord): void {
    this.records.push(record);
    const bytes = this.encoder.encode(record).slice();
    // Not inside step(): effects are executed after it returned, answers come later.
    this.clock.after(0, () => {
      for (const engine of this.engines) engine.submit(bytes);
    });
  }
}
