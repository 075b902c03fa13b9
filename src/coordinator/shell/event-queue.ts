// Events of one request on their way from the core (which pushes) to one reader (which may be slow or
// gone). Bounded by the request: its tokens are limited, so is what can wait here.
import type { CoxswainError } from '../../base/errors.ts';

type Entry<T> = { readonly value: T } | { readonly error: CoxswainError } | { readonly end: true };

export class EventQueue<T> {
  private readonly entries: Entry<T>[] = [];
  private wake: (() => void) | null = null;

  push(value: T): void {
    this.add({ value });
  }

  fail(error: CoxswainError): void {
    this.add({ error });
  }

  end(): void {
    this.add({ end: true });
  }

  /** Ends after end(), throws what fail() said, or the signal's reason at once when it aborts. */
  async *read(signal: AbortSignal): AsyncGenerator<T, void, undefined> {
    const onAbort = () => this.wake?.();
    signal.addEventListener('abort', onAbort);
    try {
      for (;;) {
        signal.throwIfAborted();
        const entry = this.entries.shift();
        if (entry === undefined) {
          await new Promise<void>((resolve) => {
            this.wake = resolve;
          });
          this.wake = null;
        } else if ('value' in entry) {
          yield entry.value;
        } else if ('error' in entry) {
          throw entry.error;
        } else {
          return;
        }
      }
    } finally {
      signal.removeEventListener('abort', onAbort);
    }
  }

  private add(entry: Entry<T>): void {
    this.entries.push(entry);
    this.wake?.();
  }
}
