// Load or compute: chosen once by the coordinator for every rank, from measured rates. By invariance the
// choice never changes the answer within a plan, only the time. A load is whole, at a unit's end; a part
// load is the load of a shorter unit, the rest is prefilled.
import { assert } from '../../base/assert.ts';

export interface RestoreRates {
  /** Rows of prompt per second, all ranks together in lockstep. */
  readonly prefillTokensPerSecond: number;
  /** Slowest rank's verified read from its own directory. */
  readonly loadBytesPerSecond: number;
  /** Per load: manifest, fences, activation. */
  readonly loadFixedMs: number;
  /** Measured bulk link, for ranges that another host holds. */
  readonly linkBytesPerSecond: number;
}

export interface RestoreCandidate {
  readonly name: string;
  readonly tokens: number;
  /** Bytes that the busiest rank reads from its own directories. */
  readonly localBytes: number;
  /** Bytes that the busiest rank pulls from other hosts. */
  readonly remoteBytes: number;
  /** Written under another plan: rows are gathered by logical coordinates, no longer bitwise. */
  readonly recut: boolean;
}

export interface RestoreRules {
  /** `--deterministic`: re-cut units are refused. */
  readonly deterministic: boolean;
}

export type RestoreDecision =
  | {
      readonly kind: 'load';
      readonly name: string;
      readonly tokens: number;
      readonly costMs: number;
    }
  | { readonly kind: 'prefill'; readonly costMs: number };

export function prefillMs(rates: RestoreRates, tokens: number): number {
  return (tokens / rates.prefillTokensPerSecond) * 1000;
}

export function loadMs(rates: RestoreRates, candidate: RestoreCandidate): number {
  const local = (candidate.localBytes / rates.loadBytesPerSecond) * 1000;
  const remote =
    candidate.remoteBytes === 0 ? 0 : (candidate.remoteBytes / rates.linkBytesPerSecond) * 1000;
  // Pulled ranges are written to memory by the same thread that reads files: the times add.
  return rates.loadFixedMs + local + remote;
}

/**
 * The cheapest way to a state of `promptTokens` from one of `liveTokens`. On equal cost the longest
 * load wins: it leaves the engine free for others.
 */
export function decideRestore(
  rates: RestoreRates,
  rules: RestoreRules,
  candidates: readonly RestoreCandidate[],
  prompt: { readonly promptTokens: number; readonly liveTokens: number },
): RestoreDecision {
  assert(rates.prefillTokensPerSecond > 0 && rates.loadBytesPerSecond > 0, 'rates are positive');
  let best: RestoreDecision = {
    kind: 'prefill',
    costMs: prefillMs(rates, prompt.promptTokens - prompt.liveTokens),
  };
  const longestFirst = [...candidates].sort((a, b) => b.tokens - a.tokens);
  for (const candidate of longestFirst) {
    if (candidate.recut && rules.deterministic) continue;
    if (candidate.tokens <= prompt.liveTokens || candidate.tokens > prompt.promptTokens) continue;
    const rest = prefillMs(rates, prompt.promptTokens - candidate.tokens);
    const costMs = loadMs(rates, candidate) + rest;
    const better = best.kind === 'prefill' ? costMs <= best.costMs : costMs < best.costMs;
    if (better) best = { kind: 'load', name: candidate.name, tokens: candidate.tokens, costMs };
  }
  return best;
}

/** Restores that led nowhere, by unit. Bounded by the units of the catalog: forget() on eviction. */
export class Strikes {
  private static readonly LIMIT = 2;
  private readonly counts = new Map<string, number>();

  /** A row behind the restored state was accepted: the unit is sound. */
  progress(name: string): void {
    this.counts.delete(name);
  }

  /**
   * The restore failed, its cut was refused, or the request ended before a row was accepted. True: for
   * the second time in a row, so the unit is to be dropped.
   */
  strike(name: string): boolean {
    const count = (this.counts.get(name) ?? 0) + 1;
    this.counts.set(name, count);
    return count >= Strikes.LIMIT;
  }

  forget(name: string): void {
    this.counts.delete(name);
  }
}
