// Space: what each directory may hold, what saves under way have reserved, and whether the store may
// write at all. A full or failing disk puts the store in no-write: reads go on, nothing is refused for
// it, one warning, and a probe every 30 s decides when writing starts again.
import { assert } from '../../base/assert.ts';

export const PROBE_INTERVAL_MS = 30_000;

/**
 * The cluster's budget, shared out by the bytes that each directory gets of a unit, capped by what is
 * free on its disk (`freeBytes` counts the store's own files as free).
 */
export function shareOut(
  totalBytes: number,
  directories: readonly { readonly weight: number; readonly freeBytes: number }[],
): number[] {
  const weights = directories.reduce((sum, { weight }) => sum + weight, 0);
  return directories.map(({ weight, freeBytes }) =>
    Math.max(
      0,
      Math.min(freeBytes, weights === 0 ? 0 : Math.floor((totalBytes * weight) / weights)),
    ),
  );
}

export interface Watermarks {
  /** Above this share of a directory's budget units are evicted. */
  readonly high: number;
  /** Down to this one. */
  readonly low: number;
}

/** Little between them: a store that keeps a tenth empty loses a tenth of its hits. */
export const WATERMARKS: Watermarks = { high: 0.98, low: 0.96 };

export class Reservations {
  private readonly bySave = new Map<string, ReadonlyMap<string, number>>();

  get count(): number {
    return this.bySave.size;
  }

  reservedIn(directory: string): number {
    let sum = 0;
    for (const bytes of this.bySave.values()) sum += bytes.get(directory) ?? 0;
    return sum;
  }

  add(save: string, bytes: ReadonlyMap<string, number>): void {
    assert(!this.bySave.has(save), 'a save reserves once');
    this.bySave.set(save, bytes);
  }

  drop(save: string): void {
    this.bySave.delete(save);
  }
}

/** Bytes to free by directory, so that `wanted` fits below the high mark; then down to the low one. */
export function shortfall(
  marks: Watermarks,
  budgets: ReadonlyMap<string, number>,
  used: (directory: string) => number,
  wanted: ReadonlyMap<string, number>,
): Map<string, number> {
  const need = new Map<string, number>();
  for (const [directory, bytes] of wanted) {
    const budget = budgets.get(directory) ?? 0;
    const after = used(directory) + bytes;
    if (after > budget * marks.high) need.set(directory, Math.ceil(after - budget * marks.low));
  }
  return need;
}

export type WriteState =
  | { readonly kind: 'writing' }
  | { readonly kind: 'no-write'; readonly cause: string; readonly probeAtMs: number };

/** The store's permission to write. One owner: the coordinator's store, and each rank for itself. */
export class WriteGate {
  private current: WriteState = { kind: 'writing' };

  get state(): WriteState {
    return this.current;
  }

  get open(): boolean {
    return this.current.kind === 'writing';
  }

  /** True where this is news: the one warning. */
  close(cause: string, nowMs: number): boolean {
    const news = this.open;
    this.current = { kind: 'no-write', cause, probeAtMs: nowMs + PROBE_INTERVAL_MS };
    return news;
  }

  probeDue(nowMs: number): boolean {
    return this.current.kind === 'no-write' && nowMs >= this.current.probeAtMs;
  }

  /** The probe wrote and synced a file, or did not. True where writing starts again. */
  probed(succeeded: boolean, nowMs: number): boolean {
    if (this.current.kind === 'writing') return false;
    if (succeeded) this.current = { kind: 'writing' };
    else this.current = { ...this.current, probeAtMs: nowMs + PROBE_INTERVAL_MS };
    return succeeded;
  }
}
