// One HTTP request and its answer, as the log row and the metrics see it. Whoever learns a fact writes
// it here; http-server writes the row once, when the response is gone. No text, no credentials.
import type { CoxswainError } from '../base/errors.ts';
import type { CallUsage } from './call.ts';
import type { CallEvent } from './inference.ts';

export class Exchange {
  readonly id: string;
  readonly endpoint: string;
  /** On the monotonic clock of performance.now(). */
  readonly startedMs: number;
  /** Digest of the API key, or '' without keys. */
  keyIdentity = '';
  model: string | null = null;
  ignoredFields = 0;
  /** Finish reasons of the choices, in the order of their ends. */
  readonly finishes: string[] = [];
  firstTextMs: number | null = null;
  /** What ended the call early: for the log only. */
  error: CoxswainError | null = null;
  /** By request of the call; what response-end says replaces what request-start said. */
  private readonly usages = new Map<number, CallUsage>();

  constructor(id: string, endpoint: string, startedMs: number) {
    this.id = id;
    this.endpoint = endpoint;
    this.startedMs = startedMs;
  }

  /** Sums over the requests of the call; zeros before any has started. */
  get usage(): CallUsage {
    const usages = [...this.usages.values()];
    return {
      promptTokens: usages.reduce((sum, usage) => sum + usage.promptTokens, 0),
      cachedTokens: usages.reduce((sum, usage) => sum + usage.cachedTokens, 0),
      completionTokens: usages.reduce((sum, usage) => sum + usage.completionTokens, 0),
    };
  }

  /** Takes what an event says; `nowMs` on the clock of `startedMs`. */
  observe({ request, event }: CallEvent, nowMs: number): void {
    switch (event.type) {
      case 'request-start':
        this.usages.set(request, { ...event, completionTokens: 0 });
        return;
      case 'text-delta':
        this.firstTextMs ??= nowMs;
        return;
      case 'choice-end':
        this.finishes.push(event.reason);
        return;
      case 'response-end':
        this.usages.set(request, event);
        return;
      case 'recovering':
        return;
    }
  }
}
