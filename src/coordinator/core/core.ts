// The coordinator's core: `step(event, now) -> effects`. It alone decides order, batch, cancel, chunk,
// eviction and recovery. Pure: no clock, no timers, no randomness, no I/O; the same events give the same
// effects. Effects are to be executed in list order.
//
// Owners of state: RequestTable (requests, queue), EpochWork (slots, blocks, steps in flight; made anew
// for every epoch), Recovery (strikes, giving up), Rates (measured speed). Launcher fills the flight,
// Endings ends requests. This class passes between them.
//
// Invariants: every accepted request ends with exactly one request-finished or request-failed; only
// results of the current epoch are accepted, in order; what was accepted is never computed differently.
import { assert } from '../../base/assert.ts';
import type { ErrorCode } from '../../base/error-codes.ts';
import { KV_BLOCK_TOKENS, type StepResult } from '../../base/step-record.ts';
import {
  type Refusal,
  refuseMalformed,
  refuseTooLong,
  retryAfterSeconds,
  tokensMax,
} from './admission.ts';
import { Endings } from './endings.ts';
import { type Delivery, EpochWork } from './epoch-work.ts';
import type { CoreEffect, CoreEvent, CoreLimits, CoreRequest } from './events.ts';
import { Launcher } from './launcher.ts';
import { Rates } from './rates.ts';
import { Recovery } from './recovery.ts';
import { lengthWanted, type RequestState } from './request.ts';
import { RequestTable } from './request-table.ts';

export interface CoreOptions {
  /** Bounds the requests that wait for the first epoch; later the epoch's own limit counts. */
  readonly queueMax: number;
  /** Tokens in one KV block: 256, but for simulations. */
  readonly blockTokens?: number;
}

/** For /health, /metrics and /v1/cluster. */
export interface CoreStatus {
  readonly state: 'starting' | 'ready' | 'recovering' | 'failed';
  /** The last epoch that was ready. */
  readonly epoch: number;
  readonly requests: number;
  readonly waiting: number;
  readonly slots: { readonly used: number; readonly total: number };
  readonly kvBlocks: { readonly used: number; readonly cached: number; readonly total: number };
  readonly stepsInFlight: number;
  readonly stepsDone: number;
  readonly decodeTokens: number;
  readonly prefillTokens: number;
  readonly cachedTokens: number;
  readonly promptTokens: number;
  readonly preemptions: number;
  readonly epochsLost: number;
}

export class CoordinatorCore {
  private readonly requests = new RequestTable();
  private readonly recovery = new Recovery();
  private readonly rates = new Rates();
  private readonly endings: Endings;
  private readonly launcher: Launcher;
  private readonly blockTokens: number;
  private queueMax: number;
  private state: CoreStatus['state'] = 'starting';
  private draining: boolean = false;
  private work: EpochWork | null = null;
  private limits: CoreLimits | null = null;
  private epoch = 0;
  private armedAt = Number.POSITIVE_INFINITY;
  private effects: CoreEffect[] = [];
  private readonly totals = {
    stepsDone: 0,
    decodeTokens: 0,
    prefillTokens: 0,
    epochsLost: 0,
  };

  constructor(options: CoreOptions) {
    this.queueMax = options.queueMax;
    this.blockTokens = options.blockTokens ?? KV_BLOCK_TOKENS;
    const { requests, recovery } = this;
    const say = (effect: CoreEffect) => {
      this.effects.push(effect);
    };
    this.endings = new Endings({ requests, recovery, say, work: () => this.work });
    this.launcher = new Launcher(requests, recovery, say);
  }

  step(event: CoreEvent, now: number): CoreEffect[] {
    this.effects = [];
    this.handle(event, now);
    if (this.work !== null) this.launcher.launch(this.work, now);
    if (this.requests.count === 0) this.noteIdle();
    this.armTimer();
    return this.effects;
  }

  get status(): CoreStatus {
    const kv = this.work?.slots.kv;
    const total = kv?.total ?? this.limits?.kvBlocks ?? 0;
    const cached = kv?.cachedCount ?? 0;
    return {
      state: this.state,
      epoch: this.epoch,
      requests: this.requests.count,
      waiting: this.requests.unstartedCount,
      slots: { used: this.work?.slots.usedCount ?? 0, total: this.limits?.slots ?? 0 },
      kvBlocks: { used: kv === undefined ? 0 : total - kv.freeCount - cached, cached, total },
      stepsInFlight: this.work?.flight.count ?? 0,
      ...this.totals,
      ...this.launcher.totals,
    };
  }

  private noteIdle(): void {
    this.recovery.noteIdle();
    if (this.work?.isQuiet === true) this.work.check();
  }

  private handle(event: CoreEvent, now: number): void {
    switch (event.type) {
      case 'request-arrived':
        this.onArrived(event.request, now);
        break;
      case 'request-cancelled':
        this.onCancelled(event.id);
        break;
      case 'choice-stopped':
        this.onChoiceStopped(event.id, event.choice, now);
        break;
      case 'step-result':
        this.onResult(event.rank, event.result, now);
        break;
      case 'epoch-ready':
        this.onEpochReady(event, now);
        break;
      case 'rank-failed':
        this.onRankFailed(event, now);
        break;
      case 'cluster-failed':
        this.onClusterFailed(event.code, event.message);
        break;
      case 'drain':
        this.draining = true;
        break;
      case 'timer':
        this.onTimer(now);
        break;
    }
  }

  private onArrived(wanted: CoreRequest, now: number): void {
    const refusal = this.refusalOf(wanted);
    if (refusal !== null) {
      this.effects.push({ type: 'request-failed', id: wanted.id, ...refusal });
      return;
    }
    const request = this.requests.add(wanted, now);
    if (this.limits !== null) this.boundLength(request, this.limits);
    if (this.state !== 'ready') this.recovery.noteTrouble(now);
  }

  private refusalOf(wanted: CoreRequest): Refusal | null {
    if (this.draining) {
      const message = 'the server is shutting down; send the request to another one';
      return { code: 'SHUTTING_DOWN', message, retryAfterSeconds: 5 };
    }
    if (this.state === 'failed') {
      const message = 'the cluster has failed and cannot serve; see the coordinator log';
      return { code: 'CLUSTER_NOT_READY', message, retryAfterSeconds: 30 };
    }
    const wrong =
      refuseMalformed(wanted) ??
      (this.limits === null ? null : refuseTooLong(wanted, this.limits, this.blockTokens));
    if (wrong !== null) return wrong;
    const waiting = this.requests.unstartedCount;
    // Who finds a free slot does not wait: that must hold without a queue too.
    if (waiting < this.queueMax + (this.work?.slots.freeCount ?? 0)) return null;
    const seconds = retryAfterSeconds(waiting, this.limits?.slots ?? 1, this.endings.requestMs);
    return {
      code: 'QUEUE_FULL',
      message: `${waiting === 0 ? 'every slot is in use' : `${waiting} requests wait already`}; try again in ${seconds} s`,
      retryAfterSeconds: seconds,
    };
  }

  private onCancelled(id: string): void {
    const request = this.requests.find(id);
    if (request !== undefined)
      this.endings.fail(request, 'REQUEST_CANCELLED', 'the client is gone');
  }

  /** Text beyond the stop string was computed, but rows of a true prefix stay good for reuse. */
  private onChoiceStopped(id: string, choice: number, now: number): void {
    const sequence = this.requests.find(id)?.sequences[choice];
    if (sequence === undefined || sequence.finished || !sequence.generates) return;
    this.endings.finishChoice(sequence, 'stop', now);
  }

  private onResult(rank: number, result: StepResult, now: number): void {
    if (this.work === null || result.epoch !== this.epoch) return;
    const outcome = this.work.take(rank, result);
    if (outcome.broken !== null) {
      this.loseEpoch('RANK_DIVERGED', outcome.broken, now);
      return;
    }
    for (const delivery of outcome.deliveries) {
      this.deliver(delivery, now);
      if (this.work === null) return;
    }
    for (const step of this.work.retire()) {
      this.totals.stepsDone += 1;
      this.totals.decodeTokens += step.load.decodeRows;
      this.totals.prefillTokens += step.load.prefillRows;
      this.rates.measure(step.load, step.computeUsMax);
      this.recovery.noteStepDone();
      for (const sequence of step.scored) this.endings.finish(sequence.request, now);
    }
  }

  private deliver(delivery: Delivery, now: number): void {
    switch (delivery.kind) {
      case 'token': {
        const { sequence, token, finish } = delivery;
        const { request } = sequence;
        this.recovery.noteAccepted(request);
        if (token !== null) {
          const { choice } = sequence;
          this.effects.push({ type: 'tokens', id: request.id, choice, tokens: [token] });
        }
        if (finish !== null) this.endings.finishChoice(sequence, finish, now);
        return;
      }
      case 'scores':
        this.recovery.noteAccepted(delivery.request);
        this.effects.push({ type: 'scores', id: delivery.request.id, scores: delivery.scores });
        return;
      case 'broken':
        this.loseEpoch('RANK_DIVERGED', delivery.message, now);
        return;
    }
  }

  private onEpochReady(event: Extract<CoreEvent, { type: 'epoch-ready' }>, now: number): void {
    const { epoch, firstStep, limits } = event;
    if (epoch <= this.epoch) {
      this.log('warn', 'stale epoch ignored', { epoch, current: this.epoch });
      return;
    }
    this.dropWork();
    this.epoch = epoch;
    this.limits = limits;
    this.queueMax = limits.queueMax;
    this.state = 'ready';
    this.recovery.noteEpochReady();
    this.work = new EpochWork(
      { epoch, firstStep, limits, blockTokens: this.blockTokens },
      this.rates,
    );
    for (const request of [...this.requests.all]) this.boundLength(request, limits);
    const { count } = this.requests;
    this.log('info', 'epoch ready', { epoch, first_step: firstStep, requests: count, at_ms: now });
  }

  /** Fits a request to the limits; a new epoch may have tighter ones. */
  private boundLength(request: RequestState, limits: CoreLimits): void {
    const refusal = refuseTooLong(request.request, limits, this.blockTokens);
    if (refusal !== null) {
      this.endings.fail(request, refusal.code, refusal.message);
      return;
    }
    if (request.request.kind !== 'generate') return;
    const lengthMax = Math.min(lengthWanted(request.request), tokensMax(limits, this.blockTokens));
    for (const sequence of request.sequences) {
      sequence.lengthMax = lengthMax;
      if (sequence.finished || sequence.length < lengthMax) continue;
      const message = `the cluster came back with room for ${lengthMax} tokens only`;
      this.endings.fail(request, 'RECOVERY_FAILED', message);
      return;
    }
  }

  private onRankFailed(event: Extract<CoreEvent, { type: 'rank-failed' }>, now: number): void {
    if (this.work === null || event.epoch !== this.epoch) return;
    this.loseEpoch(event.code, `rank ${event.rank}: ${event.message}`, now);
  }

  private loseEpoch(code: ErrorCode, message: string, now: number): void {
    const { work } = this;
    assert(work !== null, 'only a ready epoch is lost');
    this.totals.epochsLost += 1;
    // A rank that obeys another coordinator says nothing about what it was computing.
    const inFlight = code === 'EPOCH_FENCED' ? new Set<RequestState>() : work.requestsInFlight;
    const culprit = this.recovery.noteEpochLost(inFlight, now);
    const steps = work.flight.count;
    this.dropWork();
    this.state = 'recovering';
    this.log('warn', 'epoch lost', { epoch: this.epoch, code, steps, reason: message });
    if (culprit !== null) {
      const text = `a rank failed whenever this request was computed, at last alone (${code}: ${message})`;
      this.endings.fail(culprit, 'REQUEST_POISONOUS', text);
    }
    if (this.recovery.shouldGiveUp(now)) this.giveUp(`${code}: ${message}`);
    this.effects.push({ type: 'open-epoch', reason: `${code}: ${message}` });
  }

  /** Running sequences keep their accepted ids and wait for the next epoch in their old order. */
  private dropWork(): void {
    if (this.work === null) return;
    const { running } = this.work.slots;
    for (const sequence of running) {
      sequence.live = null;
      this.requests.enqueue(sequence);
    }
    this.work = null;
  }

  private giveUp(reason: string): void {
    this.log('error', 'recovery given up', { requests: this.requests.count, reason });
    for (const request of [...this.requests.all]) {
      this.endings.fail(request, 'RECOVERY_FAILED', `the cluster did not recover (${reason})`);
    }
    this.recovery.noteGaveUp();
  }

  private onClusterFailed(code: ErrorCode, message: string): void {
    this.dropWork();
    this.state = 'failed';
    this.log('error', 'cluster failed', { code, reason: message });
    for (const request of [...this.requests.all]) this.endings.fail(request, code, message);
    this.recovery.noteGaveUp();
  }

  private onTimer(now: number): void {
    this.armedAt = Number.POSITIVE_INFINITY;
    const late = this.work?.lateStep(now) ?? null;
    if (late !== null) this.loseEpoch('RANK_STALLED', late, now);
    if (this.requests.count > 0 && this.recovery.shouldGiveUp(now)) {
      this.giveUp('no progress for 60 s');
    }
  }

  /** One timer: a later arm-timer replaces an earlier one. Early firing is harmless. */
  private armTimer(): void {
    let at = this.work?.deadlineAt ?? Number.POSITIVE_INFINITY;
    const { deadlineAt } = this.recovery;
    if (deadlineAt !== null && this.requests.count > 0) at = Math.min(at, deadlineAt);
    if (at >= this.armedAt) return;
    this.armedAt = at;
    this.effects.push({ type: 'arm-timer', at });
  }

  private log(
    level: 'info' | 'warn' | 'error',
    message: string,
    fields: Readonly<Record<string, unknown>>,
  ): void {
    this.effects.push({ type: 'log', level, message, fields });
  }
}
