// A whole cluster in one thread: coordinators, rank processes, streams, clients and faults, all drawn from one
// seed. After every run the promises are checked: every request ended once, each text is what an
// undisturbed lonely request gets, nothing leaked, queues stayed within their bounds.
import { assert, present } from '../../src/base/assert.ts';
import { createPrng, type Prng } from '../../src/base/prng.ts';
import type { StepRecord } from '../../src/base/step-record.ts';
import type { CoreLimits, GenerateRequest } from '../../src/coordinator/core/events.ts';
import type { FakeWorld } from '../../src/engine/fake-engine.ts';
import { FakePlane } from '../../src/engine/fake-plane.ts';
import { decodeStepRecord, encodeStepResult } from '../../src/wire/step-codec.ts';
import { SHAPE } from './core-bench.ts';
import { FakeClock } from './fake-clock.ts';
import { Outcomes } from './outcomes.ts';
import { generate, prompt } from './requests.ts';
import { SimCoordinator } from './sim-coordinator.ts';
import { SimRank } from './sim-rank.ts';
import { SimStream } from './sim-stream.ts';
import { checkVisit, POISON, randomWorkload, stopsNow, type Visit } from './workload.ts';

/** Simulated time after which a request that has not ended counts as forgotten. */
const PATIENCE_MS = 900_000;
const LEASE_MS = 1_000;
const PROMPT_MAX = 30;
const ANSWER_MAX = 20;

export interface SimReport {
  readonly finished: number;
  readonly failed: Readonly<Record<string, number>>;
  readonly epochsLost: number;
  readonly steps: number;
  readonly preemptions: number;
  readonly staleRefused: number;
}

interface Setting {
  readonly split: readonly number[];
  readonly stages: number;
  readonly blockTokens: number;
  readonly limits: CoreLimits;
  readonly faults: number;
  readonly poison: boolean;
  readonly rival: boolean;
  readonly drains: boolean;
  readonly restartFails: number;
}

export async function simulate(seed: number): Promise<SimReport> {
  const prng = createPrng(seed);
  const simulation = new Simulation(drawSetting(prng), prng);
  await simulation.run();
  return simulation.check();
}

function drawSetting(prng: Prng): Setting {
  const split = [[1], [1, 1], [2, 1], [1, 1, 1]][prng.below(4)] ?? [1];
  const stages = 1 + prng.below(2);
  const blockTokens = 2 + prng.below(7);
  const blocksForOne = Math.ceil((PROMPT_MAX + ANSWER_MAX) / blockTokens);
  return {
    split,
    stages,
    blockTokens,
    limits: {
      slots: 1 + prng.below(5),
      kvBlocks: blocksForOne + prng.below(2 * blocksForOne),
      context: 200,
      stages,
      rankCount: split.length * stages,
      stepRowsMax: 4 + prng.below(40),
      queueMax: prng.chance(0.2) ? 1 + prng.below(3) : 1_000,
      liveReuse: prng.chance(0.8),
    },
    faults: prng.chance(0.25) ? 0 : 1 + prng.below(5),
    poison: prng.chance(0.2),
    rival: prng.chance(0.1),
    drains: prng.chance(0.1),
    restartFails: prng.chance(0.2) ? 0.4 : 0,
  };
}

class Simulation {
  readonly clock = new FakeClock();
  private readonly outcomes = new Outcomes();
  private readonly ranks: SimRank[] = [];
  private readonly coordinators: SimCoordinator[] = [];
  private readonly owner = new Map<string, SimCoordinator>();
  private readonly visits: Visit[];
  private readonly poisonId: string | null;
  private readonly setting: Setting;
  readonly prng: Prng;
  private readonly engineWorld: FakeWorld;
  readonly delayMs: number;
  private arrived = 0;
  private drained: boolean = false;
  private asyncPending = 0;
  private asyncDone = 0;
  private staleRefused = 0;

  constructor(setting: Setting, prng: Prng) {
    this.setting = setting;
    this.prng = prng;
    this.delayMs = 0.2 + prng.uniform() * 3;
    const { rankCount, stages } = setting.limits;
    const rowUs = 50 + prng.below(400);
    this.engineWorld = {
      shape: SHAPE,
      plane: new FakePlane(rankCount, stages),
      codec: { decodeRecord: decodeStepRecord, encodeResult: encodeStepResult },
      after: (ms, run) => this.clock.after(ms, run),
      stepUs: (rows) => 500 + rowUs * rows + prng.below(300),
      blockTokens: setting.blockTokens,
      dies: (rank, record) => {
        if (rank !== 0 || !hasPoison(record)) return false;
        this.ranks[rank]?.kill();
        this.superviseDeath(rank);
        return true;
      },
    };
    const options = {
      visits: 2 + prng.below(9),
      withinMs: 400,
      promptMax: PROMPT_MAX,
      answerMax: ANSWER_MAX,
    };
    this.visits = randomWorkload(prng, SHAPE, options);
    this.poisonId = setting.poison ? this.addPoison() : null;
    this.startCoordinator();
    for (let rank = 0; rank < rankCount; rank += 1) this.startRank(rank);
    for (const visit of this.visits) this.scheduleVisit(visit);
    for (let fault = 0; fault < setting.faults; fault += 1) this.scheduleFault();
    if (setting.rival) this.scheduleRival();
    if (setting.drains) this.scheduleDrain();
  }

  async run(): Promise<void> {
    while (this.arrived < this.visits.length || this.outcomes.open > 0) {
      const goesOn = this.clock.now < PATIENCE_MS && this.clock.runNext();
      if (!goesOn) assert(false, `every request is answered in time, not so ${this.openIds()}`);
      await this.settle();
    }
    for (let count = 0; count < 20_000 && this.isBusy(); count += 1) {
      if (!this.clock.runNext()) break;
      await this.settle();
    }
  }

  /** Promises exist only around loads, fences and openings; elsewhere events are plain calls. */
  private async settle(): Promise<void> {
    if (this.asyncPending === 0 && this.asyncDone === 0) return;
    this.asyncDone = 0;
    for (let hop = 0; hop < 8; hop += 1) await null;
  }

  check(): SimReport {
    const failed: Record<string, number> = {};
    const epochsLost = this.sum(({ core }) => core.status.epochsLost);
    const { faults, poison, rival } = this.setting;
    assert(faults > 0 || poison || rival || epochsLost === 0, 'no epoch is lost without a cause');
    for (const visit of this.visits) {
      const outcome = this.outcomes.get(visit.request.id);
      checkVisit(SHAPE, visit, outcome, this.codesAllowed(visit, epochsLost));
      if (outcome.code !== null) failed[outcome.code] = (failed[outcome.code] ?? 0) + 1;
    }
    for (const { core, stepsInFlightMax } of this.coordinators) {
      const { status } = core;
      assert(stepsInFlightMax <= this.setting.stages + 1, 'steps in flight are bounded');
      assert(status.requests === 0 && status.waiting === 0, 'no request is left');
      assert(status.slots.used === 0, 'no slot is left');
      assert(status.kvBlocks.used === 0, 'no block is left');
    }
    const finished = this.visits.length - Object.values(failed).reduce((a, b) => a + b, 0);
    const steps = this.sum(({ core }) => core.status.stepsDone);
    const preemptions = this.sum(({ core }) => core.status.preemptions);
    return { finished, failed, epochsLost, steps, preemptions, staleRefused: this.staleRefused };
  }

  /** Without faults nothing may fail but the poisonous request; bad luck needs at least three losses. */
  private codesAllowed({ request }: Visit, epochsLost: number): string[] {
    const { faults, rival, restartFails } = this.setting;
    const codes: string[] = [];
    if (this.setting.limits.queueMax < 1_000) codes.push('QUEUE_FULL');
    if (this.drained) codes.push('SHUTTING_DOWN');
    if (request.id === this.poisonId) codes.push('REQUEST_POISONOUS');
    if ((faults > 0 || rival) && epochsLost >= 3)
      codes.push('REQUEST_POISONOUS', 'RECOVERY_FAILED');
    if (rival || restartFails > 0) codes.push('RECOVERY_FAILED', 'RANK_LOST', 'CLUSTER_NOT_READY');
    return codes;
  }

  private sum(of: (coordinator: SimCoordinator) => number): number {
    return this.coordinators.reduce((total, coordinator) => total + of(coordinator), 0);
  }

  private isBusy(): boolean {
    return this.coordinators.some(({ core }) => core.status.stepsInFlight > 0);
  }

  private openIds(): string {
    const open = [...this.outcomes.byId].filter(([, { end }]) => end === null);
    return open.map(([id]) => id).join(' ');
  }

  private get current(): SimCoordinator {
    return present(this.coordinators.at(-1), 'there is always a coordinator');
  }

  private startCoordinator(): void {
    const { setting, clock, prng, outcomes, delayMs } = this;
    const incarnation = String(this.coordinators.length).padStart(32, '0');
    const index = this.coordinators.length;
    const coordinator = new SimCoordinator({
      ...setting,
      clock,
      prng,
      delayMs,
      outcomes,
      incarnation,
      repeatChance: 0.08,
      onStale: () => {
        this.staleRefused += 1;
      },
      onTokens: (id, choice) => this.lookAtTokens(id, choice),
      restart: (rank) => {
        if (index === this.coordinators.length - 1) this.restart(rank);
      },
    });
    this.coordinators.push(coordinator);
  }

  private startRank(index: number): void {
    const persisted = this.ranks[index]?.persisted ?? {
      epoch: this.prng.below(3),
      incarnation: '',
    };
    const rank = new SimRank(
      index,
      {
        engine: this.engineWorld,
        noteAsync: (promise) => {
          this.asyncPending += 1;
          void promise.finally(() => {
            this.asyncPending -= 1;
            this.asyncDone += 1;
          });
        },
        onDetached: (detached) => this.dialAgain(detached),
      },
      persisted,
    );
    this.ranks[index] = rank;
    this.dialAgain(rank);
  }

  private dialAgain(rank: SimRank): void {
    this.clock.after(5 + this.prng.uniform() * 50, () => {
      if (!rank.alive || this.ranks[rank.index] !== rank) return;
      const stream = new SimStream(rank.index, this);
      this.current.accept(stream);
      rank.attach(stream);
    });
  }

  private restart(index: number): void {
    this.ranks[index]?.kill();
    this.clock.after(20 + this.prng.uniform() * 100, () => {
      if (this.ranks[index]?.alive === true) return;
      if (!this.prng.chance(this.setting.restartFails)) this.startRank(index);
    });
  }

  private scheduleVisit(visit: Visit): void {
    const { request, hangsUpAfter } = visit;
    this.clock.after(visit.at, () => {
      const coordinator = this.current;
      this.owner.set(request.id, coordinator);
      this.outcomes.expect(request);
      this.arrived += 1;
      coordinator.event({ type: 'request-arrived', request });
      if (hangsUpAfter === null) return;
      this.clock.after(hangsUpAfter, () =>
        coordinator.event({ type: 'request-cancelled', id: request.id }),
      );
    });
  }

  private lookAtTokens(id: string, choice: number): void {
    const visit = present(
      this.visits.find(({ request }) => request.id === id),
      'tokens belong to a visit',
    );
    const seen = present(this.outcomes.get(id).choices[choice], 'the choice exists');
    if (!stopsNow(visit, seen)) return;
    this.clock.after(this.prng.uniform() * 4, () => {
      this.owner.get(id)?.event({ type: 'choice-stopped', id, choice });
    });
  }

  private scheduleFault(): void {
    const { prng } = this;
    const kind = prng.below(3);
    const index = prng.below(this.setting.limits.rankCount);
    const lastsMs = prng.uniform() * (prng.chance(0.5) ? 500 : 4_000);
    this.clock.after(prng.uniform() * 700, () => {
      const rank = present(this.ranks[index], 'a rank of the plan');
      if (kind === 0) rank.kill();
      else if (kind === 1) rank.breakStream();
      else this.stall(rank, lastsMs);
      if (kind === 0) this.superviseDeath(index);
    });
  }

  /** A dead child is noticed even while nobody has a stream to it. */
  private superviseDeath(index: number): void {
    this.clock.after(this.prng.uniform() * 20, () => {
      if (this.ranks[index]?.alive === false) this.restart(index);
    });
  }

  private stall(rank: SimRank, lastsMs: number): void {
    rank.setStalled(true, false);
    this.clock.after(lastsMs, () => rank.setStalled(false, lastsMs > LEASE_MS));
    if (lastsMs <= LEASE_MS) return;
    const { current } = this;
    this.clock.after(LEASE_MS, () => current.suspect(rank.index));
  }

  /** The coordinator is stopped; the ranks' leases run out and they find its successor; it comes back. */
  private scheduleRival(): void {
    const { prng, clock } = this;
    clock.after(100 + prng.uniform() * 400, () => {
      const old = this.current;
      old.pause();
      this.startCoordinator();
      clock.after(LEASE_MS, () => {
        for (const rank of this.ranks) rank.loseLease();
      });
      clock.after(500 + prng.uniform() * 4_000, () => old.resume());
    });
  }

  private scheduleDrain(): void {
    this.clock.after(this.prng.uniform() * 400, () => {
      this.drained = true;
      this.current.event({ type: 'drain' });
    });
  }

  private addPoison(): string {
    const tokens = [
      ...prompt(1 + this.prng.below(15), 3),
      POISON,
      ...prompt(this.prng.below(9), 4),
    ];
    const request: GenerateRequest = generate('poison', tokens, 5);
    const at = this.prng.below(400);
    this.visits.push({ at, request, stopAfter: null, hangsUpAfter: null });
    return request.id;
  }
}

function hasPoison({ runs }: StepRecord): boolean {
  return runs.some(({ tokens }) => !('step' in tokens) && tokens.includes(POISON));
}
