// One simulated coordinator process: the real CoordinatorCore, and a shell in miniature that keeps streams,
// opens epochs (gather, fence, restart what died, open, ready; retried, bounded), and watches ranks.
import { assert, present } from '../../src/base/assert.ts';
import { isErrorCode } from '../../src/base/error-codes.ts';
import type { StepRecord } from '../../src/base/step-record.ts';
import { CoordinatorCore } from '../../src/coordinator/core/core.ts';
import type { CoreEffect, CoreEvent, CoreLimits } from '../../src/coordinator/core/events.ts';
import type { RankAssignment } from '../../src/rank/core/events.ts';
import { decodeStepResult, StepEncoder } from '../../src/wire/step-codec.ts';
import type { Outcomes } from './outcomes.ts';
import type { FromRank, SimStream, StreamWorld } from './sim-stream.ts';

const OPEN_TIMEOUT_MS = 3_000;
const ATTEMPTS_MAX = 12;

export interface CoordinatorWorld extends StreamWorld {
  readonly limits: CoreLimits;
  readonly blockTokens: number;
  readonly split: readonly number[];
  readonly incarnation: string;
  readonly outcomes: Outcomes;
  /** Kills the process of a rank, if this coordinator supervises it, and starts another. */
  restart(rank: number): void;
  onTokens(id: string, choice: number): void;
  /** A forged result of an old epoch was handed to the core. */
  onStale(): void;
  /** Chance that a result is taken twice, or again much later. */
  readonly repeatChance: number;
}

interface Member {
  stream: SimStream | null;
  epochMax: number;
  loaded: boolean;
  ready: boolean;
  nextStep: number;
}

export class SimCoordinator {
  readonly core: CoordinatorCore;
  alive: boolean = true;
  epochsOpened = 0;
  stepsInFlightMax = 0;
  private readonly world: CoordinatorWorld;
  private readonly members: Member[];
  private phase: 'gathering' | 'opening' | 'ready' | 'failed' = 'gathering';
  private epoch = 0;
  private attempt = 0;
  /** Of the steps of this epoch. */
  private readonly outputsOf = new Map<number, number>();
  private readonly encoder = new StepEncoder();
  private timer = 0;
  private watch = 0;
  private firstStep = 1;
  private paused: (() => void)[] | null = null;

  constructor(world: CoordinatorWorld) {
    this.world = world;
    this.core = new CoordinatorCore({
      queueMax: world.limits.queueMax,
      blockTokens: world.blockTokens,
    });
    this.members = Array.from({ length: world.limits.rankCount }, () => ({
      stream: null,
      epochMax: 0,
      loaded: false,
      ready: false,
      nextStep: 0,
    }));
    this.gather();
  }

  /** SIGSTOP: everything that happens meanwhile is seen afterwards. */
  pause(): void {
    this.paused ??= [];
  }

  resume(): void {
    const backlog = this.paused ?? [];
    this.paused = null;
    for (const run of backlog) run();
  }

  accept(stream: SimStream): void {
    const member = this.member(stream.rank);
    member.stream?.close();
    member.stream = stream;
    member.loaded = false;
    member.ready = false;
    stream.onCoordinator = (message) => this.soon(() => this.onMessage(stream, message));
    stream.onCoordinatorClosed = () => this.soon(() => this.onClosed(stream));
  }

  /** The heartbeats of a rank have stopped. */
  suspect(rank: number): void {
    this.soon(() => {
      this.member(rank).stream?.close();
      this.rankFailed(rank, 'RANK_STALLED', 'silent for 1 s');
    });
  }

  event(event: CoreEvent): void {
    this.soon(() => this.handle(event));
  }

  private soon(run: () => void): void {
    if (!this.alive) return;
    if (this.paused === null) run();
    else this.paused.push(run);
  }

  private handle(event: CoreEvent): void {
    const effects = this.core.step(event, this.world.clock.now);
    const { stepsInFlight, waiting } = this.core.status;
    const { queueMax, slots } = this.world.limits;
    assert(waiting <= queueMax + slots, 'the queue is bounded');
    this.stepsInFlightMax = Math.max(this.stepsInFlightMax, stepsInFlight);
    for (const effect of effects) this.execute(effect);
  }

  private execute(effect: CoreEffect): void {
    this.world.outcomes.take(effect);
    switch (effect.type) {
      case 'send-step':
        this.sendStep(effect.record);
        break;
      case 'tokens':
        this.world.onTokens(effect.id, effect.choice);
        break;
      case 'open-epoch':
        this.attempt = 0;
        this.gather();
        break;
      case 'arm-timer': {
        this.timer += 1;
        const { timer } = this;
        this.world.clock.after(effect.at - this.world.clock.now, () => {
          if (timer === this.timer) this.event({ type: 'timer' });
        });
        break;
      }
    }
  }

  private sendStep(record: StepRecord): void {
    assert(
      record.epoch === this.epoch && this.phase === 'ready',
      'steps go to the epoch that is ready',
    );
    const bytes = this.encoder.encode(record).slice();
    const { epoch, step } = record;
    this.outputsOf.set(step, record.outputs.length);
    for (const { stream } of this.members) {
      stream?.sendToRank({ type: 'step', epoch, step, record: bytes });
    }
  }

  private onMessage(stream: SimStream, message: FromRank): void {
    const member = this.member(stream.rank);
    if (member.stream !== stream) return;
    switch (message.type) {
      case 'hello':
        // Now and then too low, as if another coordinator had been quicker: ranks must refuse.
        member.epochMax = message.epochMax - (this.world.prng.chance(0.2) ? 1 : 0);
        stream.sendToRank({ type: 'assign', assignment: this.assignment(stream.rank) });
        break;
      case 'loaded':
        member.loaded = true;
        this.openIfGathered();
        break;
      case 'ready':
        if (this.phase !== 'opening' || message.epoch !== this.epoch) break;
        member.ready = true;
        if (this.members.every(({ ready }) => ready)) this.becomeReady();
        break;
      case 'result':
        this.onResult(stream.rank, message.bytes);
        break;
      case 'failed':
        this.onFailed(stream.rank, message);
        break;
      case 'fenced':
        break;
    }
  }

  private onFailed(rank: number, failed: Extract<FromRank, { type: 'failed' }>): void {
    const { epoch, code, message } = failed;
    const member = this.member(rank);
    member.epochMax = Math.max(member.epochMax, epoch);
    if (this.phase === 'opening') this.gather();
    else if (epoch === this.epoch) {
      this.rankFailed(rank, isErrorCode(code) ? code : 'INTERNAL', message);
    }
  }

  private onResult(rank: number, bytes: Uint8Array): void {
    const { prng, clock, repeatChance } = this.world;
    const result = decodeStepResult(bytes);
    if (result.epoch === this.epoch) this.member(rank).nextStep = result.step + 1;
    this.handle({ type: 'step-result', rank, result });
    if (prng.chance(repeatChance)) this.handle({ type: 'step-result', rank, result });
    if (!prng.chance(repeatChance)) return;
    clock.after(prng.uniform() * 600, () => this.forge(rank, result.epoch));
  }

  /** An answer of an old epoch that would fit the step now due, and that would show in the text. */
  private forge(rank: number, oldEpoch: number): void {
    if (this.phase !== 'ready' || this.epoch === oldEpoch) return;
    const step = this.member(rank).nextStep;
    const count = this.outputsOf.get(step);
    if (count === undefined) return;
    this.world.onStale();
    const output = { want: 'token', skipped: false, finish: 'no', logprob: 0, top: [] } as const;
    const outputs = Array.from({ length: count }, (_, index) => ({ ...output, id: index }));
    const result = { epoch: oldEpoch, step, outputs, computeUs: 1, waitUs: 0 };
    this.event({ type: 'step-result', rank, result });
  }

  private onClosed(stream: SimStream): void {
    const member = this.member(stream.rank);
    if (member.stream !== stream) return;
    member.stream = null;
    member.loaded = false;
    if (this.phase === 'opening') this.gather();
    else this.rankFailed(stream.rank, 'RANK_LOST', 'its control stream closed');
  }

  private rankFailed(
    rank: number,
    code: Extract<CoreEvent, { type: 'rank-failed' }>['code'],
    message: string,
  ): void {
    if (this.phase !== 'ready') return;
    this.handle({ type: 'rank-failed', epoch: this.epoch, rank, code, message });
  }

  /** Fences who is there, restarts who is not, and opens when all are loaded. */
  private gather(): void {
    this.phase = 'gathering';
    this.attempt += 1;
    if (this.attempt > ATTEMPTS_MAX) {
      this.phase = 'failed';
      this.handle({ type: 'cluster-failed', code: 'RANK_LOST', message: 'ranks do not come back' });
      return;
    }
    for (const [rank, member] of this.members.entries()) {
      member.ready = false;
      if (member.stream === null) this.world.restart(rank);
      else member.stream.sendToRank({ type: 'fence', epoch: this.epoch, reason: 'a new epoch' });
    }
    this.watchPhase(({ loaded }) => loaded);
    this.openIfGathered();
  }

  private openIfGathered(): void {
    const { members, world } = this;
    if (this.phase !== 'gathering' || !members.every(({ loaded }) => loaded)) return;
    this.phase = 'opening';
    this.epoch = 1 + Math.max(this.epoch, ...members.map(({ epochMax }) => epochMax));
    const { incarnation } = world;
    const opening = {
      epoch: this.epoch,
      incarnation,
      links: [],
      firstStep: 1 + world.prng.below(5),
    };
    this.firstStep = opening.firstStep;
    for (const { stream } of members) {
      present(stream, 'a loaded rank has a stream').sendToRank({
        type: 'open',
        opening: { ...opening, openTimeoutMs: 1_000 },
      });
    }
    this.watchPhase(({ ready }) => ready);
  }

  /** A rank that does not come in time is replaced. */
  private watchPhase(isThere: (member: Member) => boolean): void {
    this.watch += 1;
    const { watch } = this;
    this.world.clock.after(OPEN_TIMEOUT_MS, () => {
      this.soon(() => {
        if (this.watch !== watch || this.phase === 'ready' || this.phase === 'failed') return;
        for (const member of this.members.filter((each) => !isThere(each))) dismiss(member);
        this.gather();
      });
    });
  }

  private becomeReady(): void {
    this.phase = 'ready';
    this.attempt = 0;
    this.epochsOpened += 1;
    const { epoch, firstStep } = this;
    this.outputsOf.clear();
    for (const member of this.members) member.nextStep = firstStep;
    this.handle({ type: 'epoch-ready', epoch, firstStep, limits: this.world.limits });
  }

  private assignment(rank: number): RankAssignment {
    const { limits, split } = this.world;
    return {
      rank,
      topology: {
        split,
        pp: limits.stages,
        layers: [],
        kvType: 'f32',
        exact: true,
        context: limits.context,
      },
      planHash: 'sim',
      kvBlocks: limits.kvBlocks,
      slotsMax: limits.slots,
      stepRowsMax: limits.stepRowsMax,
      threads: 1,
      shareCores: false,
    };
  }

  private member(rank: number): Member {
    return present(this.members[rank], 'a rank of the plan');
  }
}

function dismiss(member: Member): void {
  const { stream } = member;
  member.stream = null;
  member.loaded = false;
  stream?.close();
}
