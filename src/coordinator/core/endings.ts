// How requests end: finished, failed or cancelled, each exactly once, out of their slots and out of the
// queue. Owns the mean time of a request, from which Retry-After is guessed.
import type { ErrorCode } from '../../base/error-codes.ts';
import type { EpochWork } from './epoch-work.ts';
import type { CoreEffect, FinishReason } from './events.ts';
import type { Recovery } from './recovery.ts';
import type { RequestState, Sequence } from './request.ts';
import type { RequestTable } from './request-table.ts';

export interface EndingParts {
  readonly requests: RequestTable;
  readonly recovery: Recovery;
  /** The work of the epoch that is ready, if one is. */
  readonly work: () => EpochWork | null;
  readonly say: (effect: CoreEffect) => void;
}

export class Endings {
  private readonly parts: EndingParts;
  private meanMs: number | null = null;

  constructor(parts: EndingParts) {
    this.parts = parts;
  }

  /** From start to end; null before any. */
  get requestMs(): number | null {
    return this.meanMs;
  }

  finishChoice(sequence: Sequence, reason: FinishReason, now: number): void {
    const { request, choice } = sequence;
    this.leave(sequence);
    this.parts.say({ type: 'choice-finished', id: request.id, choice, reason });
    request.unfinished -= 1;
    if (request.unfinished === 0) this.finish(request, now);
  }

  finish(request: RequestState, now: number): void {
    this.close(request);
    if (request.startedAt !== null) {
      const ms = now - request.startedAt;
      this.meanMs = this.meanMs === null ? ms : this.meanMs + (ms - this.meanMs) / 8;
    }
    this.parts.say({ type: 'request-finished', id: request.id });
  }

  fail(request: RequestState, code: ErrorCode, message: string): void {
    this.close(request);
    const isPassing = code === 'RECOVERY_FAILED' || code === 'CLUSTER_NOT_READY';
    const retryAfterSeconds = isPassing ? 5 : null;
    this.parts.say({ type: 'request-failed', id: request.id, code, message, retryAfterSeconds });
  }

  private close(request: RequestState): void {
    for (const sequence of request.sequences) if (!sequence.finished) this.leave(sequence);
    request.isOver = true;
    this.parts.requests.remove(request);
    this.parts.recovery.forget(request);
  }

  private leave(sequence: Sequence): void {
    if (sequence.live === null) this.parts.requests.dequeue(sequence);
    else this.parts.work()?.slots.stop(sequence);
    sequence.finished = true;
  }
}
