// Which units go when space is needed. Candidates are leaves that nobody pins; units that can never be
// restored go first, then the lowest (hits + 1) * 2^(-age / H); equal scores: the deeper one. A parent
// becomes a candidate when its last child goes.
// The score is compared as log2(hits + 1) - age / H, which orders the same and never underflows.
import type { Catalog, UnitRecord } from './catalog.ts';
import type { ReuseGaps } from './reuse-gaps.ts';

/** Lower goes first. */
export type EvictionOrder = (record: UnitRecord, nowMs: number) => number;

export function decayedScore(gaps: ReuseGaps): EvictionOrder {
  return (record, nowMs) => {
    if (record.state === 'lost' || record.state === 'quarantined') return -Infinity;
    const age = Math.max(0, nowMs - record.lastUsedMs);
    return Math.log2(record.hits + 1) - age / gaps.halfLifeMs;
  };
}

/** Bytes that must be freed, by directory. */
export type Need = ReadonlyMap<string, number>;

export interface Victims {
  readonly units: readonly UnitRecord[];
  /** False: even evicting all of these leaves a directory too full. Then nothing should be evicted. */
  readonly enough: boolean;
}

/** In the order in which they are to go. Changes nothing. */
export function chooseVictims(
  catalog: Catalog,
  need: Need,
  order: EvictionOrder,
  nowMs: number,
): Victims {
  const missing = new Map([...need].filter(([, bytes]) => bytes > 0));
  if (missing.size === 0) return { units: [], enough: true };
  const trial = new Trial(catalog, order, nowMs);
  while (missing.size > 0) {
    const victim = trial.take((record) => helps(record, missing));
    if (victim === null) return { units: trial.taken, enough: false };
    for (const [directory, bytes] of victim.freed) {
      const left = missing.get(directory);
      if (left === undefined) continue;
      if (left <= bytes) missing.delete(directory);
      else missing.set(directory, left - bytes);
    }
  }
  return { units: trial.taken, enough: true };
}

/** A unit that holds nothing in the directories that are too full is no use as a victim. */
function helps(record: UnitRecord, missing: Need): boolean {
  return record.unit.segments.some((segment) => missing.has(segment.directory));
}

/** Units unused for longer than `ttlMs`; only leaves, so that a lineage expires from its ends. */
export function expired(catalog: Catalog, ttlMs: number, nowMs: number): UnitRecord[] {
  return [...catalog.records].filter(
    (record) => record.pins === 0 && nowMs - record.lastUsedMs > ttlMs && catalog.isLeaf(record),
  );
}

interface Candidate {
  readonly record: UnitRecord;
  readonly score: number;
}

/** Eviction on paper: who would go, what that frees, who becomes a leaf thereby. */
class Trial {
  readonly taken: UnitRecord[] = [];
  private readonly catalog: Catalog;
  private readonly order: EvictionOrder;
  private readonly nowMs: number;
  private readonly gone = new Set<UnitRecord>();
  /** Lowest last. */
  private readonly queue: Candidate[];
  private readonly queued: Set<UnitRecord>;

  constructor(catalog: Catalog, order: EvictionOrder, nowMs: number) {
    this.catalog = catalog;
    this.order = order;
    this.nowMs = nowMs;
    this.queue = [...catalog.records]
      .filter((record) => record.pins === 0 && catalog.isLeaf(record))
      .map((record) => ({ record, score: order(record, nowMs) }))
      .sort(laterFirst);
    this.queued = new Set(this.queue.map(({ record }) => record));
  }

  take(
    helpsNow: (record: UnitRecord) => boolean,
  ): { readonly freed: ReadonlyMap<string, number> } | null {
    for (;;) {
      const next = this.queue.pop();
      if (next === undefined) return null;
      const { record } = next;
      if (!helpsNow(record)) continue;
      this.gone.add(record);
      this.taken.push(record);
      for (const ancestor of this.catalog.ancestors(record)) this.consider(ancestor);
      return { freed: this.freedBy(record) };
    }
  }

  private consider(record: UnitRecord): void {
    if (record.pins > 0 || this.gone.has(record)) return;
    if (!this.catalog.isLeafWithout(record, this.gone)) return;
    if (this.queued.has(record)) return;
    this.queued.add(record);
    const candidate = { record, score: this.order(record, this.nowMs) };
    let at = this.queue.length;
    while (at > 0 && laterFirst(candidate, this.queue[at - 1] ?? candidate) < 0) at -= 1;
    this.queue.splice(at, 0, candidate);
  }

  private freedBy(record: UnitRecord): ReadonlyMap<string, number> {
    const freed = new Map<string, number>();
    for (const segment of record.unit.segments) {
      if (!this.catalog.isFreeWithout(segment, this.gone)) continue;
      const { directory, fileBytes } = segment;
      freed.set(directory, (freed.get(directory) ?? 0) + fileBytes);
    }
    return freed;
  }
}

function laterFirst(a: Candidate, b: Candidate): number {
  return b.score - a.score || a.record.unit.tokens - b.record.unit.tokens;
}
