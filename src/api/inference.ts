// The events of one API call: one or several InferenceRequests (a completions call may carry many
// prompts) merged into one stream, a few at a time. It keeps the contract that the wire shapes build
// on: every choice ends once, every request ends with response-end, or the whole call fails. Abort is
// prompt: nobody waits for a backend that is slow to notice.
import { setMaxListeners } from 'node:events';
import { CoxswainError } from '../base/errors.ts';
import type { Backend, InferenceEvent, InferenceRequest } from './backend.ts';

export interface CallEvent {
  /** Which request of the call, from 0. */
  readonly request: number;
  readonly event: InferenceEvent;
}

/** Requests of one call that run at once: several prompts batch well, but must not fill the queue. */
const PARALLEL_MAX = 4;
/** Merged events waiting for a slow reader; then the pumps pause. */
const MERGED_EVENTS_MAX = 32;

export function callEvents(
  backend: Backend,
  requests: readonly InferenceRequest[],
  signal: AbortSignal,
): AsyncGenerator<CallEvent> {
  const [only] = requests;
  return requests.length === 1 && only !== undefined
    ? requestEvents(backend, { request: only, index: 0 }, signal)
    : mergedEvents(backend, requests, signal);
}

async function* requestEvents(
  backend: Backend,
  { request, index }: { request: InferenceRequest; index: number },
  signal: AbortSignal,
): AsyncGenerator<CallEvent> {
  const events = backend.infer(request, signal)[Symbol.asyncIterator]();
  const openChoices = new Set(Array.from({ length: request.choices }, (_, choice) => choice));
  let ended = false;
  try {
    for (;;) {
      const next = await nextOrAbort(events, signal);
      if (next.done === true) break;
      const event = next.value;
      if (ended) throw broken('an event after response-end');
      if (event.type === 'choice-end' && !openChoices.delete(event.choice)) {
        throw broken(`choice ${event.choice} ended twice`);
      }
      ended = event.type === 'response-end';
      yield { request: index, event };
    }
    if (!ended || openChoices.size > 0) throw broken('the events stopped before response-end');
  } finally {
    // Not awaited: after an abort the backend may still be inside its last step.
    void Promise.resolve(events.return?.()).catch(() => undefined);
  }
}

function broken(fact: string): CoxswainError {
  return new CoxswainError('INTERNAL', `backend: ${fact}`);
}

/** The next event, or the signal's reason as soon as it aborts. Leaves no listener behind. */
function nextOrAbort<T>(events: AsyncIterator<T>, signal: AbortSignal): Promise<IteratorResult<T>> {
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(abortError(signal));
    if (signal.aborted) {
      onAbort();
      return;
    }
    signal.addEventListener('abort', onAbort, { once: true });
    events
      .next()
      .then(resolve, (error: unknown) => reject(signal.aborted ? abortError(signal) : error))
      .finally(() => signal.removeEventListener('abort', onAbort));
  });
}

function abortError(signal: AbortSignal): CoxswainError {
  return signal.reason instanceof CoxswainError
    ? signal.reason
    : new CoxswainError('REQUEST_CANCELLED', 'The client went away.');
}

async function* mergedEvents(
  backend: Backend,
  requests: readonly InferenceRequest[],
  signal: AbortSignal,
): AsyncGenerator<CallEvent> {
  const stop = new AbortController();
  const either = AbortSignal.any([signal, stop.signal]);
  // Every pump listens, and so does the backend for each.
  setMaxListeners(PARALLEL_MAX * 8, either);
  const merged = new Merged();
  let started = 0;
  const pump = async () => {
    for (let index = started++; index < requests.length; index = started++) {
      const request = requests[index];
      if (request === undefined) return;
      for await (const item of requestEvents(backend, { request, index }, either)) {
        await merged.put(item);
      }
    }
  };
  const pumps = Array.from({ length: Math.min(PARALLEL_MAX, requests.length) }, () => pump());
  void Promise.all(pumps).then(
    () => merged.close(null),
    (error: unknown) => merged.close(error),
  );
  try {
    yield* merged.take();
  } finally {
    stop.abort();
    merged.close(null);
    await Promise.allSettled(pumps);
  }
}

/** A bounded channel of many writers and one reader. After close, put() returns at once. */
class Merged {
  private readonly items: CallEvent[] = [];
  private closed: boolean = false;
  private failure: unknown = null;
  private wakeReader: (() => void) | null = null;
  private wakeWriters: (() => void)[] = [];

  async put(item: CallEvent): Promise<void> {
    while (this.items.length >= MERGED_EVENTS_MAX && !this.closed) {
      await new Promise<void>((resolve) => this.wakeWriters.push(resolve));
    }
    if (this.closed) return;
    this.items.push(item);
    this.wakeReader?.();
  }

  close(failure: unknown): void {
    if (this.closed) return;
    this.closed = true;
    this.failure = failure;
    this.wakeReader?.();
    this.releaseWriters();
  }

  async *take(): AsyncGenerator<CallEvent> {
    for (;;) {
      const item = this.items.shift();
      if (item !== undefined) {
        this.releaseWriters();
        yield item;
      } else if (this.closed) {
        if (this.failure !== null) throw this.failure;
        return;
      } else {
        await new Promise<void>((resolve) => {
          this.wakeReader = resolve;
        });
        this.wakeReader = null;
      }
    }
  }

  private releaseWriters(): void {
    const writers = this.wakeWriters;
    this.wakeWriters = [];
    for (const wake of writers) wake();
  }
}
