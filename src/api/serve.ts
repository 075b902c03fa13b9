// One inference call from its parsed form to the end of its response. Owns the AbortController that
// ties the client's connection, the server's shutdown and the backend's work together: the work stops
// when any of them is gone. Refusals come before headers wherever admission is quick; once headers are
// out, failures are told in-band, and every stream ends with its terminal marker.
import type { ServerResponse } from 'node:http';
import { CoxswainError, toCoxswainError } from '../base/errors.ts';
import type { Backend } from './backend.ts';
import type { ApiCall } from './call.ts';
import { toHttpError } from './errors.ts';
import type { Exchange } from './exchange.ts';
import { type CallEvent, callEvents } from './inference.ts';
import { type SseOptions, SseWriter } from './sse.ts';

export interface ServeOptions extends SseOptions {
  /**
   * How long a stream's headers wait for the backend's verdict. Clients time the headers, so a call
   * that is still queued then gets them, and a later refusal in-band.
   */
  readonly headersAfterMs: number;
}

/** The calls in progress, for shutdown. */
export class LiveCalls {
  private readonly controllers = new Set<AbortController>();
  private stopped: CoxswainError | null = null;
  private readonly whenIdle: (() => void)[] = [];

  /** Throws SHUTTING_DOWN once `stop` was called. */
  open(): AbortController {
    if (this.stopped !== null) throw this.stopped;
    const controller = new AbortController();
    this.controllers.add(controller);
    return controller;
  }

  close(controller: AbortController): void {
    this.controllers.delete(controller);
    if (this.controllers.size > 0) return;
    for (const wake of this.whenIdle.splice(0)) wake();
  }

  /** Resolves when no call is in progress. */
  idle(): Promise<void> {
    if (this.controllers.size === 0) return Promise.resolve();
    return new Promise((resolve) => this.whenIdle.push(resolve));
  }

  stop(): void {
    this.stopped = new CoxswainError('SHUTTING_DOWN', 'The server is shutting down; try again.', {
      retryAfterSeconds: 5,
    });
    for (const controller of this.controllers) controller.abort(this.stopped);
  }
}

export interface ServedCall {
  readonly call: ApiCall;
  readonly exchange: Exchange;
  readonly response: ServerResponse;
  /** Headers that every response carries. */
  readonly headers: Readonly<Record<string, string>>;
}

export class CallServer {
  private readonly backend: Backend;
  private readonly live: LiveCalls;
  private readonly options: ServeOptions;

  constructor(backend: Backend, live: LiveCalls, options: ServeOptions) {
    this.backend = backend;
    this.live = live;
    this.options = options;
  }

  /** The whole body; rejects with what ended the call early. */
  answer(served: ServedCall): Promise<object> {
    return this.withSignal(served, async (signal) => {
      const maker = served.call.whole();
      for await (const event of this.events(served, signal)) maker.add(event);
      return maker.body(served.exchange.usage);
    });
  }

  /**
   * Streams the call. Rejects only while nothing was sent: the caller then answers with an error
   * status. `takeOver` is called when this function starts to own the response.
   */
  stream(served: ServedCall, takeOver: () => void): Promise<void> {
    return this.withSignal(served, async (signal) => {
      const events = this.events(served, signal);
      const first = events.next();
      await settledWithin(first, this.options.headersAfterMs);
      takeOver();
      const writer = new SseWriter(served.response, this.options);
      try {
        writer.open(served.headers);
        await this.pipe(served, { first, events }, writer);
      } catch (error) {
        await endWithError(served.exchange, writer, error);
      } finally {
        writer.dispose();
        await events.return(undefined);
      }
    });
  }

  private async pipe(
    served: ServedCall,
    source: { first: Promise<IteratorResult<CallEvent>>; events: AsyncGenerator<CallEvent> },
    writer: SseWriter,
  ): Promise<void> {
    const maker = served.call.stream();
    let next = await source.first;
    while (next.done !== true) {
      if (next.value.event.type === 'recovering') writer.comment('recovering');
      await writer.data(maker.frames(next.value));
      next = await source.events.next();
    }
    await writer.end(maker.last(served.exchange.usage));
  }

  private async *events(served: ServedCall, signal: AbortSignal): AsyncGenerator<CallEvent> {
    for await (const event of callEvents(this.backend, served.call.requests, signal)) {
      served.exchange.observe(event, performance.now());
      yield event;
    }
  }

  private async withSignal<T>(
    { response }: ServedCall,
    work: (signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const controller = this.live.open();
    const onClose = () => controller.abort();
    response.once('close', onClose);
    try {
      // The client may have left while the body was being parsed.
      if (response.destroyed) controller.abort();
      return await work(controller.signal);
    } finally {
      response.off('close', onClose);
      this.live.close(controller);
    }
  }
}

async function endWithError(exchange: Exchange, writer: SseWriter, thrown: unknown): Promise<void> {
  const error = toCoxswainError(thrown);
  exchange.error = error;
  try {
    await writer.end([toHttpError(error, exchange.id).body]);
  } catch {
    // The reader is gone; the row in the log already says why the call ended.
  }
}

/** Waits for `promise` at most `timeoutMs`; passes its rejection on if it comes in time. */
async function settledWithin(promise: Promise<unknown>, timeoutMs: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, timeoutMs);
  });
  // A later rejection is met where the value is awaited.
  promise.catch(() => undefined);
  try {
    await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
