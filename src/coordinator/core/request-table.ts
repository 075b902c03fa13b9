// Owns every request that is not over, and the queue of sequences without a slot, oldest first. A
// sequence is unfinished and either in the queue or running. Bounded: requests that never started count
// against queueMax; started ones are bounded by the slots they once had.
import { assert, present } from '../../base/assert.ts';
import type { CoreRequest } from './events.ts';
import { compareAge, type RequestState, Sequence } from './request.ts';

export class RequestTable {
  private readonly requests = new Map<string, RequestState>();
  private readonly waiting: Sequence[] = [];
  private arrivals = 0;
  /** Requests that have not started. */
  private unstarted = 0;

  get count(): number {
    return this.requests.size;
  }

  get unstartedCount(): number {
    return this.unstarted;
  }

  get queue(): readonly Sequence[] {
    return this.waiting;
  }

  get all(): Iterable<RequestState> {
    return this.requests.values();
  }

  find(id: string): RequestState | undefined {
    return this.requests.get(id);
  }

  add(wanted: CoreRequest, now: number): RequestState {
    assert(!this.requests.has(wanted.id), 'request ids are unique');
    const choices = wanted.kind === 'generate' ? wanted.choices : 1;
    const request: RequestState = {
      id: wanted.id,
      request: wanted,
      order: this.arrivals,
      arrivedAt: now,
      sequences: [],
      unfinished: choices,
      startedAt: null,
      strikes: 0,
      isOver: false,
    };
    this.arrivals += 1;
    request.sequences = Array.from(
      { length: choices },
      (_, choice) => new Sequence(request, choice),
    );
    this.requests.set(request.id, request);
    this.unstarted += 1;
    this.waiting.push(...request.sequences);
    return request;
  }

  /** Queues a sequence that lost its slot, in its old place. */
  enqueue(sequence: Sequence): void {
    assert(!sequence.finished && sequence.live === null, 'only a sequence without a slot waits');
    const at = this.waiting.findIndex((other) => compareAge(sequence, other) < 0);
    this.waiting.splice(at < 0 ? this.waiting.length : at, 0, sequence);
  }

  dequeue(sequence: Sequence): void {
    const at = this.waiting.indexOf(sequence);
    assert(at >= 0, 'a dequeued sequence was waiting');
    this.waiting.splice(at, 1);
  }

  /** True the first time. */
  markStarted(request: RequestState, now: number): boolean {
    if (request.startedAt !== null) return false;
    request.startedAt = now;
    this.unstarted -= 1;
    return true;
  }

  /** All its sequences have left slots and queue. */
  remove(request: RequestState): void {
    for (const sequence of request.sequences) {
      assert(sequence.live === null, 'a request that is over holds no slot');
    }
    if (request.startedAt === null) this.unstarted -= 1;
    present(this.requests.get(request.id), 'a removed request is known');
    this.requests.delete(request.id);
  }
}
