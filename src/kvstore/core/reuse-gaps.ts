// How long units rest between two uses, learned while serving. The half-life of the eviction score is
// half the median gap. Half of it: with the whole, units that were used often and are done with outlive
// fresh ones in a large store. One half-life for all kinds of unit: learning anchors, intervals and ends
// apart was no better on any trace (`npm run bench:evict`).
// Bounds: the last 256 gaps.

export interface HalfLifeLimits {
  /** Until enough gaps were seen. */
  readonly initialMs: number;
  readonly minMs: number;
  readonly maxMs: number;
}

export const HALF_LIFE: HalfLifeLimits = {
  initialMs: 300_000,
  minMs: 60_000,
  maxMs: 21_600_000,
};

const GAPS_KEPT = 256;
/** Below so many gaps the half-life stays what it was: a median of three says nothing. */
const GAPS_NEEDED = 16;
const MEDIAN_SHARE = 0.5;

export class ReuseGaps {
  private readonly limits: HalfLifeLimits;
  private readonly kept: number[] = [];
  private seen = 0;
  private learnedMs: number | null = null;

  constructor(limits: HalfLifeLimits = HALF_LIFE) {
    this.limits = limits;
  }

  get halfLifeMs(): number {
    return this.learnedMs ?? this.limits.initialMs;
  }

  note(gapMs: number): void {
    this.kept[this.seen % GAPS_KEPT] = Math.max(0, gapMs);
    this.seen += 1;
    if (this.seen < GAPS_NEEDED || this.seen % GAPS_NEEDED !== 0) return;
    const sorted = [...this.kept].sort((a, b) => a - b);
    const wanted = (sorted[sorted.length >>> 1] ?? 0) * MEDIAN_SHARE;
    this.learnedMs = Math.min(this.limits.maxMs, Math.max(this.limits.minMs, wanted));
  }
}
