// Runs the pure core: one event at a time, effects in list order, one timer, and for every request a sink
// that hears what becomes of it. Events that arise while effects run wait their turn.
import type { CoreEffect, CoreEvent, CoreRequest } from '../core/events.ts';
import type { ClusterLog } from './options.ts';

export interface CoreSteps {
  step(event: CoreEvent, now: number): CoreEffect[];
}

/** What a request's owner hears; nothing follows finished or failed. */
export interface RequestSink {
  take(
    effect: Extract<
      CoreEffect,
      {
        type:
          | 'request-started'
          | 'tokens'
          | 'choice-finished'
          | 'scores'
          | 'request-finished'
          | 'request-failed';
      }
    >,
  ): void;
  /** The epoch was lost; the request waits for the next one. */
  recovering(): void;
}

export interface CoreDriverOptions {
  readonly core: CoreSteps;
  readonly log: ClusterLog;
  readonly sendStep: (record: Extract<CoreEffect, { type: 'send-step' }>['record']) => void;
  readonly openEpoch: (reason: string) => void;
}

export class CoreDriver {
  private readonly options: CoreDriverOptions;
  private readonly sinks = new Map<string, RequestSink>();
  private readonly waiting: CoreEvent[] = [];
  private running: boolean = false;
  private timer: NodeJS.Timeout | null = null;

  constructor(options: CoreDriverOptions) {
    this.options = options;
  }

  get requestCount(): number {
    return this.sinks.size;
  }

  dispatch(event: CoreEvent): void {
    this.waiting.push(event);
    if (this.running) return;
    this.running = true;
    try {
      for (let next = this.waiting.shift(); next !== undefined; next = this.waiting.shift()) {
        const effects = this.options.core.step(next, performance.now());
        for (const effect of effects) this.execute(effect);
      }
    } finally {
      this.running = false;
    }
  }

  /** Hands a request to the core; the sink hears of it from now on. */
  request(request: CoreRequest, sink: RequestSink): void {
    this.sinks.set(request.id, sink);
    this.dispatch({ type: 'request-arrived', request });
  }

  /** The owner is gone: nothing more is delivered. */
  cancel(id: string): void {
    if (!this.sinks.delete(id)) return;
    this.dispatch({ type: 'request-cancelled', id });
  }

  close(): void {
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = null;
  }

  private execute(effect: CoreEffect): void {
    switch (effect.type) {
      case 'send-step':
        this.options.sendStep(effect.record);
        return;
      case 'open-epoch':
        for (const sink of this.sinks.values()) sink.recovering();
        this.options.openEpoch(effect.reason);
        return;
      case 'arm-timer':
        this.armTimer(effect.at);
        return;
      case 'log':
        this.options.log[effect.level](effect.fields, effect.message);
        return;
      case 'request-finished':
      case 'request-failed': {
        const sink = this.sinks.get(effect.id);
        this.sinks.delete(effect.id);
        sink?.take(effect);
        return;
      }
      default:
        this.sinks.get(effect.id)?.take(effect);
    }
  }

  private armTimer(at: number): void {
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = setTimeout(
      () => {
        this.timer = null;
        this.dispatch({ type: 'timer' });
      },
      Math.max(0, at - performance.now()),
    );
  }
}
