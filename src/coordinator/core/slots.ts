// Owns the engine slots of an epoch, the sequences that run in them, and the slot ops that the next step
// record will carry. Every op is recorded here in the order in which the accounts change, so the ranks'
// tables follow this one exactly.
// Invariant: a sequence is in `running` exactly while its `live` is set; each has a slot of its own.
import { assert, present } from '../../base/assert.ts';
import type { SlotOp } from '../../base/step-record.ts';
import type { CoreLimits } from './events.ts';
import type { KvCache, Lease, PrefixMatch } from './kv-cache.ts';
import { compareAge, knownRows, type Live, rowsMax, type Sequence } from './request.ts';

export class Slots {
  readonly kv: KvCache;
  /** Oldest first. */
  readonly running: Sequence[] = [];
  private readonly freeSlots: number[] = [];
  private readonly total: number;
  private readonly keep: boolean;
  private ops: SlotOp[] = [];
  /** The sequence that last found too few blocks, and how many there were. */
  private blocked: { readonly sequence: Sequence; readonly available: number } | null = null;

  constructor(limits: CoreLimits, kv: KvCache) {
    this.kv = kv;
    this.keep = limits.liveReuse;
    this.total = limits.slots;
    for (let slot = limits.slots - 1; slot >= 0; slot -= 1) this.freeSlots.push(slot);
  }

  get usedCount(): number {
    return this.total - this.freeSlots.length;
  }

  get freeCount(): number {
    return this.freeSlots.length;
  }

  get hasFree(): boolean {
    return this.freeSlots.length > 0;
  }

  /**
   * Gives the sequence a slot with its longest known prefix and blocks for all known rows; one block
   * more must be available, or it would be preempted at once. Null when blocks are short.
   */
  start(sequence: Sequence): Live | null {
    const { blocked } = this;
    const available = this.kv.availableCount;
    if (blocked?.sequence === sequence && available <= blocked.available) return null;
    const lease = this.leaseFor(sequence);
    if (lease === null) {
      this.blocked = { sequence, available };
      return null;
    }
    this.blocked = null;
    const slot = present(this.freeSlots.pop(), 'a sequence starts only when a slot is free');
    const { indexed } = lease;
    const live = { slot, lease, next: indexed, lastOutput: null, lastStep: -1, stepsInFlight: 0 };
    this.ops.push({
      kind: 'create',
      slot,
      blocks: [...lease.blocks],
      tokens: sequence.idsBetween(0, indexed),
    });
    const { sampler } = sequence;
    if (sampler !== null) this.ops.push({ kind: 'sampler', slot, params: sampler });
    sequence.live = live;
    const at = this.running.findIndex((other) => compareAge(sequence, other) < 0);
    this.running.splice(at < 0 ? this.running.length : at, 0, sequence);
    return live;
  }

  /** Makes sure that the next row has a block; false when blocks have run out. */
  provide(live: Live): boolean {
    const index = Math.floor(live.next / this.kv.blockTokens);
    const { lease, slot } = live;
    if (index < lease.blocks.length) return true;
    assert(index === lease.blocks.length, 'blocks are added one by one');
    if (!this.kv.extend(lease)) return false;
    this.ops.push({ kind: 'append', slot, blocks: [present(lease.blocks[index], 'just added')] });
    return true;
  }

  /** Frees the slot at the next step; known rows stay in the index. Results in flight are void. */
  stop(sequence: Sequence): void {
    const live = present(sequence.live, 'a stopped sequence runs');
    this.noteKnownRows(sequence, live);
    this.kv.release(live.lease, this.keep);
    this.ops.push({ kind: 'drop', slot: live.slot });
    this.freeSlots.push(live.slot);
    this.running.splice(this.running.indexOf(sequence), 1);
    sequence.live = null;
  }

  noteKnownRows(sequence: Sequence, live: Live): void {
    this.kv.advance(live.lease, sequence.ids, knownRows(sequence, live));
  }

  takeOps(): SlotOp[] {
    const { ops } = this;
    this.ops = [];
    return ops;
  }

  /** Throws when slots or blocks leaked. */
  check(): void {
    assert(this.usedCount === this.running.length, 'used slots are those of running sequences');
    this.kv.check(this.running.length === 0);
  }

  private leaseFor(sequence: Sequence): Lease | null {
    if (!sequence.generates) return this.fill(sequence, this.kv.private(), null);
    // The last known id is always computed again: its logits are what the answer goes on from.
    const match = this.kv.match(this.scopeOf(sequence), sequence.ids.subarray(0, -1));
    return (
      this.fill(sequence, this.kv.share(match), match.partial) ??
      // In a tight pool the block to be copied may be the very one that is needed.
      (match.partial === null ? null : this.fill(sequence, this.kv.share(match), null))
    );
  }

  /** Without reuse, only the choices of one request share. */
  private scopeOf({ request }: Sequence): string {
    return this.keep
      ? `s:${request.request.kind === 'generate' ? request.request.scope : ''}`
      : `r:${request.id}`;
  }

  private fill(sequence: Sequence, lease: Lease, partial: PrefixMatch['partial']): Lease | null {
    const { kv } = this;
    const source = partial === null ? null : kv.hold(partial.node);
    const now = Math.ceil(sequence.length / kv.blockTokens);
    const wanted = Math.min(now + 1, Math.ceil(rowsMax(sequence) / kv.blockTokens));
    const fits = kv.availableCount >= wanted - lease.blocks.length;
    const target = lease.blocks.length;
    if (fits) {
      while (lease.blocks.length < now) assert(kv.extend(lease), 'available blocks can be taken');
    }
    if (partial !== null && source !== null) {
      if (fits) {
        const to = present(lease.blocks[target], 'the copied rows have a block');
        this.ops.push({ kind: 'copy', from: source, to, rows: partial.rows });
        kv.advance(lease, sequence.ids, lease.indexed + partial.rows);
      }
      kv.letGo(partial.node, source);
    }
    if (fits) return lease;
    kv.release(lease, true);
    return null;
  }
}
