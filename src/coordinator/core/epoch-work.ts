// Everything that lives and dies with one epoch: slots, KV blocks, steps in flight, the step counter.
// It turns running sequences into step records and answers into deliveries. When the epoch is lost the
// whole object is dropped; sequences keep their accepted ids and start again in the next one.
import { assert, present } from '../../base/assert.ts';
import type { OutputResult, StepRecord, StepResult } from '../../base/step-record.ts';
import { Batcher, isDecoding } from './batcher.ts';
import type { AcceptedToken, CoreLimits, FinishReason } from './events.ts';
import { Flight, type Ticket } from './flight.ts';
import { KvCache } from './kv-cache.ts';
import type { Rates, StepLoad } from './rates.ts';
import type { RequestState, Sequence } from './request.ts';
import { Slots } from './slots.ts';

/** The shell watches ranks much closer; this is for answers that never come although all seem alive. */
const STEP_DEADLINE_MS_MIN = 20_000;
const STEP_DEADLINE_FACTOR = 8;

export type Delivery =
  | {
      readonly kind: 'token';
      readonly sequence: Sequence;
      /** Null: the stop id, which is no part of the answer. */
      readonly token: AcceptedToken | null;
      readonly finish: FinishReason | null;
    }
  | {
      readonly kind: 'scores';
      readonly request: RequestState;
      readonly scores: readonly { readonly pos: number; readonly result: OutputResult }[];
    }
  | { readonly kind: 'broken'; readonly message: string };

export interface RetiredStep {
  readonly load: StepLoad;
  readonly computeUsMax: number;
  /** Score sequences of which this was the last step. */
  readonly scored: readonly Sequence[];
}

export interface EpochSetting {
  readonly epoch: number;
  readonly firstStep: number;
  readonly limits: CoreLimits;
  readonly blockTokens: number;
}

export class EpochWork {
  readonly slots: Slots;
  readonly flight: Flight;
  private readonly epoch: number;
  private readonly rankCount: number;
  private readonly rates: Rates;
  private readonly batcher: Batcher;
  private nextStep: number;

  constructor(setting: EpochSetting, rates: Rates) {
    const { epoch, firstStep, limits, blockTokens } = setting;
    this.epoch = epoch;
    this.rankCount = limits.rankCount;
    this.rates = rates;
    this.nextStep = firstStep;
    this.slots = new Slots(limits, new KvCache(limits.kvBlocks, blockTokens));
    this.flight = new Flight(limits.rankCount, firstStep, limits.stages + 1);
    this.batcher = new Batcher(limits, rates, this.slots);
  }

  get isQuiet(): boolean {
    return this.flight.count === 0;
  }

  /** Those with a row in a step that is not answered by all; some may be over. */
  get requestsInFlight(): Set<RequestState> {
    const requests = new Set<RequestState>();
    for (const { members } of this.flight.all) {
      for (const { sequence } of members) requests.add(sequence.request);
    }
    return requests;
  }

  get deadlineAt(): number {
    return this.flight.oldest?.deadlineAt ?? Number.POSITIVE_INFINITY;
  }

  /** A running sequence of the request has not yet sent those rows of the prompt that can be shared. */
  computesPromptOf(request: RequestState): boolean {
    return request.sequences.some(
      ({ live, promptLength }) => live !== null && live.next < promptLength - 1,
    );
  }

  /** Gives decoding sequences their next blocks, oldest first; returns the youngest, preempted for them. */
  provideBlocks(): Sequence[] {
    const preempted: Sequence[] = [];
    for (const sequence of [...this.slots.running]) {
      const { live } = sequence;
      if (live === null || !needsBlock(sequence)) continue;
      while (sequence.live === live && !this.slots.provide(live)) {
        const youngest = present(this.slots.running.at(-1), 'somebody holds the blocks');
        this.slots.stop(youngest);
        preempted.push(youngest);
      }
    }
    return preempted;
  }

  compose(queueWaits: boolean, now: number): StepRecord | null {
    const batch = this.batcher.compose(this.nextStep, queueWaits);
    if (batch === null) return null;
    const { step, runs, outputs, tickets, members, load } = batch;
    const predictedMs = this.rates.predictUs(load) / 1_000;
    this.flight.launch({
      step,
      tickets,
      members,
      load,
      sentAt: now,
      deadlineAt: now + Math.max(STEP_DEADLINE_MS_MIN, STEP_DEADLINE_FACTOR * predictedMs),
      answersLeft: this.rankCount,
      computeUsMax: 0,
      outputsTaken: false,
    });
    this.nextStep += 1;
    return { epoch: this.epoch, step, slotOps: this.slots.takeOps(), runs, outputs };
  }

  /** Counts an answer. Deliveries are made one after another: each may end sequences of the next. */
  take(
    rank: number,
    result: StepResult,
  ): { readonly broken: string | null; readonly deliveries: Iterable<Delivery> } {
    const landing = this.flight.land(rank, result);
    if (landing.kind === 'broken') return { broken: landing.message, deliveries: [] };
    if (landing.kind === 'duplicate' || !landing.hasOutputs)
      return { broken: null, deliveries: [] };
    return { broken: null, deliveries: this.deliveries(landing.step.tickets, result) };
  }

  /** Steps that every rank has answered leave the flight. */
  retire(): RetiredStep[] {
    const retired: RetiredStep[] = [];
    for (let step = this.flight.retire(); step !== null; step = this.flight.retire()) {
      const scored: Sequence[] = [];
      for (const { sequence, live } of step.members) {
        live.stepsInFlight -= 1;
        const isLast = !sequence.generates && live.next === sequence.length;
        if (sequence.live === live && isLast && live.stepsInFlight === 0) scored.push(sequence);
      }
      retired.push({ load: step.load, computeUsMax: step.computeUsMax, scored });
    }
    return retired;
  }

  /** Says which ranks owe an answer that is overdue. */
  lateStep(now: number): string | null {
    const { oldest } = this.flight;
    if (oldest === undefined || now < oldest.deadlineAt) return null;
    const ranks = this.flight.missing(oldest.step).join(', ');
    const ms = Math.round(now - oldest.sentAt);
    return `step ${oldest.step} was not answered by rank ${ranks} within ${ms} ms`;
  }

  /** Throws when slots or blocks leaked. */
  check(): void {
    this.slots.check();
  }

  private *deliveries(tickets: readonly Ticket[], result: StepResult): Generator<Delivery> {
    const scores = new Map<Sequence, { pos: number; result: OutputResult }[]>();
    for (const [index, ticket] of tickets.entries()) {
      const { sequence, live, pos } = ticket;
      // Ended, preempted or stopped since: what was sampled after that is void.
      if (sequence.live !== live) continue;
      const output = present(result.outputs[index], 'an answer has all outputs');
      if (sequence.generates) {
        yield this.acceptToken(ticket, output);
        continue;
      }
      if (output.skipped) {
        yield { kind: 'broken', message: `the score at position ${pos} was skipped` };
        return;
      }
      sequence.scoredUpTo = pos + 1;
      const list = scores.get(sequence);
      if (list === undefined) scores.set(sequence, [{ pos, result: output }]);
      else list.push({ pos, result: output });
    }
    for (const [{ request }, list] of scores) yield { kind: 'scores', request, scores: list };
  }

  private acceptToken({ sequence, live, pos }: Ticket, output: OutputResult): Delivery {
    assert(pos === sequence.length - 1, 'tokens are accepted in order');
    if (output.skipped || output.want !== 'token') {
      const { id } = sequence.request;
      return { kind: 'broken', message: `request ${id} got no token at position ${pos + 1}` };
    }
    // The rows before the stop id are all there is to keep; it never becomes a row.
    if (output.finish === 'stop') return { kind: 'token', sequence, token: null, finish: 'stop' };
    sequence.append(output.id);
    const { id, logprob, top } = output;
    const token = { id, logprob, top };
    if (output.finish === 'length') return { kind: 'token', sequence, token, finish: 'length' };
    if (sequence.length >= sequence.lengthMax) {
      return { kind: 'broken', message: `request ${sequence.request.id} went past its length` };
    }
    this.slots.noteKnownRows(sequence, live);
    return { kind: 'token', sequence, token, finish: null };
  }
}

function needsBlock(sequence: Sequence): boolean {
  const { live } = sequence;
  if (live === null || !isDecoding(sequence, live)) return false;
  return live.next <= sequence.lengthMax - 2;
}
