// What the core remembers of a request and of each of its sequences (one a choice; one for a score
// request). A sequence survives epochs: its ids are the accepted truth, everything about its slot can be
// rebuilt from them.
//
//   ids       0 ..... promptLength ..... length            known (accepted)
//   rows      0 ..................... next                 sent to the ranks in this life
//   next > length - 1: rows from index `length` on took their token from an output still in flight.
import { assert } from '../../base/assert.ts';
import type { OutputRef, SamplerParams } from '../../base/step-record.ts';
import type { CoreRequest } from './events.ts';
import type { Lease } from './kv-cache.ts';

export interface Live {
  readonly slot: number;
  readonly lease: Lease;
  /** Position of the next row to send. */
  next: number;
  /** The output of row next - 1, when that row had one. */
  lastOutput: OutputRef | null;
  /** The step of its newest rows; -1 before any. */
  lastStep: number;
  /** Steps in flight with rows of this life. */
  stepsInFlight: number;
}

export class Sequence {
  readonly request: RequestState;
  readonly choice: number;
  readonly promptLength: number;
  /** Tokens in all, prompt included, at which the answer ends (the wish, bounded by the context). */
  lengthMax: number;
  /** Accepted ids, prompt included. */
  length: number;
  /** Its slot, while it has one. A new object each time, so that results of an earlier life are told. */
  live: Live | null = null;
  finished: boolean = false;
  /** Scores before this position have been delivered. */
  scoredUpTo = 0;
  private buffer: Int32Array;

  constructor(request: RequestState, choice: number) {
    const { tokens } = request.request;
    this.request = request;
    this.choice = choice;
    this.promptLength = tokens.length;
    this.length = tokens.length;
    this.lengthMax = lengthWanted(request.request);
    this.buffer = Int32Array.from(tokens);
  }

  /** Score requests sample nothing. */
  get generates(): boolean {
    return this.request.request.kind === 'generate';
  }

  /** What the native sampler of its slot needs; null for score requests. */
  get sampler(): SamplerParams | null {
    const { request } = this.request;
    if (request.kind !== 'generate') return null;
    return { ...request.sampler, choice: this.choice, lengthMax: this.lengthMax };
  }

  /** A view; valid until the next append. */
  get ids(): Int32Array {
    return this.buffer.subarray(0, this.length);
  }

  /** Known ids from `from` to `to` as the plain numbers of a step record. */
  idsBetween(from: number, to: number): number[] {
    assert(to <= this.length, 'only known ids go into a record');
    return Array.from(this.buffer.subarray(from, to));
  }

  append(id: number): void {
    if (this.length === this.buffer.length) {
      const grown = new Int32Array(Math.max(16, this.buffer.length + (this.buffer.length >> 1)));
      grown.set(this.buffer);
      this.buffer = grown;
    }
    this.buffer[this.length] = id;
    this.length += 1;
  }
}

export interface RequestState {
  readonly id: string;
  readonly request: CoreRequest;
  /** Order of arrival: who is older in the queue, in fairness and in preemption. */
  readonly order: number;
  readonly arrivedAt: number;
  sequences: readonly Sequence[];
  unfinished: number;
  /** request-started was said. */
  startedAt: number | null;
  /** Steps in flight of this request in which a rank died. */
  strikes: number;
  isOver: boolean;
}

/** Rows that the sequence will ever need in the cache: the last token of an answer is never a row. */
export function rowsMax(sequence: Sequence): number {
  return sequence.generates ? sequence.lengthMax - 1 : sequence.length;
}

/** Tokens in all, prompt included, that the client asked for. */
export function lengthWanted(request: CoreRequest): number {
  return request.kind === 'generate' ? request.sampler.lengthMax : request.tokens.length;
}

/** Rows whose ids are known and whose step has been sent. */
export function knownRows(sequence: Sequence, live: Live): number {
  return Math.min(live.next, sequence.length);
}

/** Older first; choices of one request in order. */
export function compareAge(a: Sequence, b: Sequence): number {
  return a.request.order - b.request.order || a.choice - b.choice;
}
