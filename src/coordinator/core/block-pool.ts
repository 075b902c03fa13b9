// The KV blocks of an epoch: which are free and how many live block tables hold each. The same ids are
// valid on every rank. Invariant: a block is on the free stack exactly when nobody holds it and the
// prefix index keeps no copy of it; kv-cache.ts is the only caller.
import { assert } from '../../base/assert.ts';

export class BlockPool {
  readonly total: number;
  private readonly free: number[] = [];
  private readonly holders: Int32Array;

  constructor(total: number) {
    this.total = total;
    this.holders = new Int32Array(total);
    for (let block = total - 1; block >= 0; block -= 1) this.free.push(block);
  }

  get freeCount(): number {
    return this.free.length;
  }

  /** Blocks in at least one live block table. O(total). */
  get heldCount(): number {
    let held = 0;
    for (const count of this.holders) if (count > 0) held += 1;
    return held;
  }

  isHeld(block: number): boolean {
    return (this.holders[block] ?? 0) > 0;
  }

  /** A free block with one holder, or null when none is free. */
  take(): number | null {
    const block = this.free.pop();
    if (block === undefined) return null;
    assert(this.holders[block] === 0, 'a free block has no holder');
    this.holders[block] = 1;
    return block;
  }

  retain(block: number): void {
    const count = this.holders[block];
    assert(count !== undefined, 'a retained block is one of the pool');
    this.holders[block] = count + 1;
  }

  /** Returns how many holders are left; at 0 the caller keeps it in the index or gives it back. */
  release(block: number): number {
    const count = this.holders[block];
    assert(count !== undefined && count > 0, 'a released block has a holder');
    this.holders[block] = count - 1;
    return count - 1;
  }

  giveBack(block: number): void {
    assert(this.holders[block] === 0, 'a block given back has no holder');
    this.free.push(block);
    assert(this.free.length <= this.total, 'no block is given back twice');
  }
}
