// The comparison of eviction orders: two traces, two store sizes, two size laws, as rows of a table.
import { type ReplayOptions, replay, type SizeLaw } from './replay.ts';
import { ds4Formula, leastRecentlyUsed } from './rival-orders.ts';
import type { TraceRequest } from './trace.ts';

/** Rows of DeepSeek V4 Flash in ds4's files: 13.45 KiB a token, 22.9 MiB of boundary state a unit. */
export const BYTES_PER_TOKEN = 13.45 * 1024;
export const FIXED_BYTES = 22.9 * 1024 * 1024;

export interface Cell {
  readonly trace: string;
  readonly capacityTokens: number;
  readonly fixedBytes: number;
  /** Share of input tokens restored. */
  readonly own: number;
  readonly lru: number;
  readonly ds4: number;
  readonly ds4WholeFiles: number;
}

export interface NamedTrace {
  readonly name: string;
  readonly requests: readonly TraceRequest[];
}

export function* compareOrders(traces: readonly NamedTrace[]): Generator<Cell> {
  for (const fixedBytes of [0, FIXED_BYTES]) {
    for (const capacityTokens of [5e6, 20e6]) {
      for (const trace of traces) yield compare(trace, capacityTokens, fixedBytes);
    }
  }
}

function compare(trace: NamedTrace, capacityTokens: number, fixedBytes: number): Cell {
  const size: SizeLaw = { bytesPerToken: BYTES_PER_TOKEN, fixedBytes };
  const rate = (more: Pick<ReplayOptions, 'layout' | 'order'>) =>
    replay(trace.requests, { capacityTokens, size, ...more }).hitRate;
  return {
    trace: trace.name,
    capacityTokens,
    fixedBytes,
    own: rate({ layout: 'chain' }),
    lru: rate({ layout: 'chain', order: () => leastRecentlyUsed }),
    ds4: rate({ layout: 'chain', order: (catalog) => ds4Formula(catalog, 'chain') }),
    ds4WholeFiles: rate({ layout: 'whole', order: (catalog) => ds4Formula(catalog, 'whole') }),
  };
}
