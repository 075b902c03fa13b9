// All units of the store, who names which segment, and what stands in the way of deleting it. Reference
// counts follow from the units and the pins held in memory; none is stored.
//
//   bytes in a directory = every segment named by a unit there, once
//   reclaimable(unit)    = its segments that no other unit names and nobody pins
//   leaf                 = no longer unit names its last pool segment
//
// Invariant: a segment is let go only when no unit names it and no pin holds it (`unnamed`).
import { assert, present } from '../../base/assert.ts';
import type { Segment, Unit } from './model.ts';

/**
 * complete: restorable. unavailable: a directory is absent; kept, not offered. lost: a file is missing.
 * unreadable: the coordinator could not read its text at start; kept for the next. quarantined: damaged, or
 * its manifest is being removed.
 */
export type UnitState = 'complete' | 'unavailable' | 'lost' | 'unreadable' | 'quarantined';

export interface UnitRecord {
  readonly unit: Unit;
  state: UnitState;
  hits: number;
  lastUsedMs: number;
  pins: number;
}

interface SegmentRecord {
  readonly segment: Segment;
  readonly namedBy: Set<UnitRecord>;
  /** Those of namedBy whose last pool segment this is: they become leaves when the others go. */
  readonly endOf: Set<UnitRecord>;
  pins: number;
  damaged: boolean;
}

/** Keeps segments from deletion until it is released. */
export interface SegmentPin {
  readonly segments: readonly Segment[];
  released: boolean;
}

const NOBODY: ReadonlySet<UnitRecord> = new Set();

export class Catalog {
  private readonly units = new Map<string, UnitRecord>();
  private readonly segments = new Map<string, SegmentRecord>();
  private readonly bytes = new Map<string, number>();

  get size(): number {
    return this.units.size;
  }

  get records(): IterableIterator<UnitRecord> {
    return this.units.values();
  }

  get(name: string): UnitRecord | undefined {
    return this.units.get(name);
  }

  isNamed(segmentId: string): boolean {
    return (this.segments.get(segmentId)?.namedBy.size ?? 0) > 0;
  }

  /** Named by a unit or held by a pin: must stay on disk. */
  isNeeded(segmentId: string): boolean {
    return this.segments.has(segmentId);
  }

  /** Needed, and not known to be damaged: a child may name it. */
  isSound(segmentId: string): boolean {
    return this.segments.get(segmentId)?.damaged === false;
  }

  bytesIn(directory: string): number {
    return this.bytes.get(directory) ?? 0;
  }

  get totalBytes(): number {
    let sum = 0;
    for (const bytes of this.bytes.values()) sum += bytes;
    return sum;
  }

  add(unit: Unit, usage: { readonly hits: number; readonly lastUsedMs: number }): UnitRecord {
    assert(!this.units.has(unit.name), 'a unit is added once');
    const record: UnitRecord = { unit, state: 'complete', pins: 0, ...usage };
    this.units.set(unit.name, record);
    for (const segment of unit.segments) this.segment(segment).namedBy.add(record);
    const last = lastPoolSegment(unit);
    if (last !== null) this.segment(last).endOf.add(record);
    // A segment that a save under way had taken over was found damaged meanwhile.
    if (unit.segments.some(({ id }) => !this.isSound(id))) record.state = 'quarantined';
    return record;
  }

  /** Forgets the unit. Returns the segments that nobody needs any more: their files may go. */
  remove(name: string): Segment[] {
    const record = present(this.units.get(name), 'a removed unit is in the catalog');
    assert(record.pins === 0, 'a pinned unit stays');
    this.units.delete(name);
    for (const { id } of record.unit.segments) {
      this.segments.get(id)?.namedBy.delete(record);
      this.segments.get(id)?.endOf.delete(record);
    }
    return record.unit.segments.filter((segment) => this.dropUnnamed(segment));
  }

  pinUnit(record: UnitRecord): void {
    record.pins += 1;
  }

  unpinUnit(record: UnitRecord): void {
    assert(record.pins > 0, 'an unpinned unit was pinned');
    record.pins -= 1;
  }

  /** For a save under way: segments that the coming unit names. */
  pinSegments(segments: readonly Segment[]): SegmentPin {
    for (const segment of segments) this.segment(segment).pins += 1;
    return { segments, released: false };
  }

  /** Returns the segments that nobody needs any more. */
  unpinSegments(pin: SegmentPin): Segment[] {
    assert(!pin.released, 'a pin is released once');
    pin.released = true;
    for (const { id } of pin.segments) {
      present(this.segments.get(id), 'a pinned segment is known').pins -= 1;
    }
    return pin.segments.filter((segment) => this.dropUnnamed(segment));
  }

  /** Bytes that evicting the unit would free. */
  reclaimable(record: UnitRecord): number {
    const only = new Set([record]);
    let sum = 0;
    for (const segment of record.unit.segments) {
      if (this.isFreeWithout(segment, only)) sum += segment.fileBytes;
    }
    return sum;
  }

  isLeaf(record: UnitRecord): boolean {
    return this.isLeafWithout(record, NOBODY);
  }

  /** A leaf, were the units `gone` evicted. */
  isLeafWithout(record: UnitRecord, gone: ReadonlySet<UnitRecord>): boolean {
    const last = lastPoolSegment(record.unit);
    if (last === null) return true;
    for (const other of this.segments.get(last.id)?.namedBy ?? []) {
      if (other !== record && !gone.has(other) && other.unit.tokens > record.unit.tokens) {
        return false;
      }
    }
    return true;
  }

  /** Deletable, were the units `gone` evicted. */
  isFreeWithout(segment: Segment, gone: ReadonlySet<UnitRecord>): boolean {
    const known = this.segments.get(segment.id);
    if (known === undefined || known.pins > 0) return false;
    for (const record of known.namedBy) if (!gone.has(record)) return false;
    return true;
  }

  /** Units that end where a segment of this one ends: its ancestors, and what forked off them. */
  *ancestors(record: UnitRecord): Generator<UnitRecord> {
    for (const { id } of record.unit.segments) {
      for (const other of this.segments.get(id)?.endOf ?? []) if (other !== record) yield other;
    }
  }

  /** A damaged segment takes every unit that names it. Returns those units. */
  quarantine(segmentId: string): UnitRecord[] {
    const hit: UnitRecord[] = [];
    const segment = this.segments.get(segmentId);
    if (segment !== undefined) segment.damaged = true;
    for (const record of segment?.namedBy ?? []) {
      if (record.state !== 'quarantined') hit.push(record);
      record.state = 'quarantined';
    }
    return hit;
  }

  /** What is at hand: a directory that is absent makes units unavailable, a missing file loses them. */
  reassess(
    isPresent: (directory: string) => boolean,
    hasFile: (segment: Segment) => boolean,
  ): void {
    for (const record of this.units.values()) {
      if (record.state === 'quarantined' || record.state === 'unreadable') continue;
      const { segments } = record.unit;
      if (segments.some((segment) => isPresent(segment.directory) && !hasFile(segment))) {
        record.state = 'lost';
      } else if (segments.some((segment) => !isPresent(segment.directory))) {
        record.state = 'unavailable';
      } else record.state = 'complete';
    }
  }

  /** Throws where the accounts do not follow from units and pins. O(everything). */
  check(): void {
    const named = new Map<string, number>();
    for (const { unit } of this.units.values()) {
      for (const { id } of unit.segments) named.set(id, (named.get(id) ?? 0) + 1);
    }
    const bytes = new Map<string, number>();
    for (const [id, record] of this.segments) {
      assert(record.namedBy.size === (named.get(id) ?? 0), 'names are counted from the units');
      assert(record.namedBy.size + record.pins > 0, 'a segment is named or pinned');
      const { directory, fileBytes } = record.segment;
      bytes.set(directory, (bytes.get(directory) ?? 0) + fileBytes);
    }
    assert(
      [...named.keys()].every((id) => this.segments.has(id)),
      'named segments are known',
    );
    for (const [directory, sum] of this.bytes) {
      assert(sum === (bytes.get(directory) ?? 0), 'bytes are those of the segments');
    }
  }

  private segment(segment: Segment): SegmentRecord {
    const known = this.segments.get(segment.id);
    if (known !== undefined) return known;
    const record = {
      segment,
      namedBy: new Set<UnitRecord>(),
      endOf: new Set<UnitRecord>(),
      pins: 0,
      damaged: false,
    };
    this.segments.set(segment.id, record);
    const { directory, fileBytes } = segment;
    this.bytes.set(directory, this.bytesIn(directory) + fileBytes);
    return record;
  }

  private dropUnnamed(segment: Segment): boolean {
    const record = this.segments.get(segment.id);
    if (record === undefined || record.namedBy.size > 0 || record.pins > 0) return false;
    this.segments.delete(segment.id);
    const { directory, fileBytes } = segment;
    this.bytes.set(directory, this.bytesIn(directory) - fileBytes);
    return true;
  }
}

function lastPoolSegment(unit: Unit): Segment | null {
  let last: Segment | null = null;
  for (const segment of unit.segments) {
    if (segment.kind !== 'pool') continue;
    if (last === null || segment.tokenBegin > last.tokenBegin) last = segment;
  }
  return last;
}
