// The store as the coordinator sees it: what is known of a prompt, what was used, what goes. Owns the
// index, the catalog, the learned half-lives and the counters, and keeps them consistent: a unit is in
// the index exactly while it is complete.
// Pure: bytes of keys, sizes and times come in; which files to write or delete comes out.
import { assert, present } from '../../base/assert.ts';
import { Catalog, type UnitRecord } from './catalog.ts';
import {
  chooseVictims,
  decayedScore,
  type EvictionOrder,
  expired,
  type Need,
  type Victims,
} from './eviction.ts';
import { StoreMetrics } from './metrics.ts';
import type { Segment, Unit } from './model.ts';
import type { Sha256 } from './page-chain.ts';
import { chainStart } from './page-chain.ts';
import { type LongestCommon, PrefixIndex, type Source } from './prefix-index.ts';
import { RecentRequests } from './recent-requests.ts';
import { Strikes } from './restore-plan.ts';
import { type HalfLifeLimits, ReuseGaps } from './reuse-gaps.ts';

export interface StoreOptions {
  readonly sha256: Sha256;
  /** Units unused for longer expire. */
  readonly ttlMs: number;
  readonly halfLife?: HalfLifeLimits;
  /** Another order of eviction, for comparisons. */
  readonly order?: EvictionOrder;
}

/** dropped: damaged, or useless twice in a row. cleared: by hand. */
export type EvictReason = 'space' | 'expired' | 'dropped' | 'cleared';

export const TTL_MS = 3 * 24 * 3_600_000;

/** What is known of a prompt. Valid until the store changes. */
export interface Known {
  /** Complete units whose whole key begins the prompt, longest first. */
  readonly units: readonly UnitRecord[];
  /** Live slots whose whole key begins the prompt, longest first. */
  readonly slots: readonly Source[];
  readonly common: LongestCommon | null;
}

/** Candidates looked at by a request: one that fits comes first, the next serve when it fails. */
const CANDIDATES_MAX = 32;

export class PrefixStore {
  readonly catalog = new Catalog();
  readonly index: PrefixIndex;
  readonly gaps: ReuseGaps;
  readonly metrics = new StoreMetrics();
  readonly strikes = new Strikes();
  readonly ttlMs: number;
  private readonly recents: RecentRequests;
  private readonly order: EvictionOrder;

  constructor(options: StoreOptions) {
    this.index = new PrefixIndex(options.sha256);
    this.gaps = new ReuseGaps(options.halfLife);
    this.recents = new RecentRequests(this.index);
    this.order = options.order ?? decayedScore(this.gaps);
    this.ttlMs = options.ttlMs;
    this.seedOf = (scope, compat) => chainStart(options.sha256, scope, compat);
  }

  /** The seed of keys of a scope under a compat id. */
  readonly seedOf: (scope: Uint8Array, compat: Uint8Array) => Uint8Array;

  /** A unit that was committed, or found on disk at start. `key` has `unit.keyBytes` bytes. */
  adopt(
    unit: Unit,
    key: { readonly seed: Uint8Array; readonly bytes: Uint8Array },
    usage: { readonly hits: number; readonly lastUsedMs: number },
  ): UnitRecord {
    assert(key.bytes.length === unit.keyBytes, 'a unit comes with its key');
    const record = this.catalog.add(unit, usage);
    this.index.add('unit', unit.name, key.seed, key.bytes);
    return record;
  }

  known(seed: Uint8Array, prompt: Uint8Array): Known {
    const lookup = this.index.lookup(seed, prompt);
    const units: UnitRecord[] = [];
    const slots: Source[] = [];
    for (const source of lookup.covering()) {
      if (source.kind === 'slot') slots.push(source);
      if (source.kind !== 'unit') continue;
      const record = present(this.catalog.get(source.id), 'indexed units are in the catalog');
      if (record.state === 'complete') units.push(record);
      if (units.length === CANDIDATES_MAX) break;
    }
    return { units, slots, common: lookup.longestCommon() };
  }

  /** Remembers the bytes of a request, so that the next one finds what it shares with it. */
  noteRequest(seed: Uint8Array, key: Uint8Array): void {
    this.recents.note(seed, key);
  }

  /** State in memory of these key bytes; again when it has grown. Scope is in the seed, as for units. */
  slotHolds(id: string, seed: Uint8Array, key: Uint8Array): void {
    this.index.add('slot', id, seed, key);
  }

  slotGone(id: string): void {
    this.index.remove('slot', id);
  }

  /** Units that can never serve again. */
  quarantined(): UnitRecord[] {
    return [...this.catalog.records].filter(
      ({ state, pins }) => state === 'quarantined' && pins === 0,
    );
  }

  /** The unit served a request. */
  used(record: UnitRecord, nowMs: number): void {
    this.gaps.note(nowMs - record.lastUsedMs);
    record.hits += 1;
    record.lastUsedMs = Math.max(record.lastUsedMs, nowMs);
  }

  /** Who is to go so that `need` bytes become free. Changes nothing. */
  victims(need: Need, nowMs: number): Victims {
    return chooseVictims(this.catalog, need, this.order, nowMs);
  }

  expired(nowMs: number): UnitRecord[] {
    return expired(this.catalog, this.ttlMs, nowMs);
  }

  /** Forgets the unit. Its manifest goes first, then the files of the segments returned. */
  evict(record: UnitRecord, why: EvictReason): Segment[] {
    const { name } = record.unit;
    this.index.remove('unit', name);
    this.strikes.forget(name);
    this.metrics.count('cox_kv_evict_total', [why, String(record.hits === 0)]);
    return this.catalog.remove(name);
  }

  /** A segment failed its checksum or its witness: nothing that names it is offered again. */
  quarantine(segmentId: string): UnitRecord[] {
    const records = this.catalog.quarantine(segmentId);
    for (const { unit } of records) this.index.remove('unit', unit.name);
    this.metrics.count('cox_kv_quarantine_total', [], records.length);
    return records;
  }
}
