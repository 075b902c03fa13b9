// (left piece, right piece) -> rank, and rank -> joined piece: an open-addressing hash table in typed
// arrays, because a Map keyed by a combined number is several times slower at this size (300,000 pairs).

export interface Merge {
  readonly rank: number;
  readonly left: number;
  readonly right: number;
  readonly joined: number;
}

export class PairTable {
  private readonly mask: number;
  private readonly lefts: Int32Array;
  private readonly rights: Int32Array;
  private readonly ranks: Int32Array;
  private readonly joins: Int32Array;

  constructor(merges: number) {
    let capacity = 16;
    while (capacity < merges * 2) capacity *= 2;
    this.mask = capacity - 1;
    this.lefts = new Int32Array(capacity);
    this.rights = new Int32Array(capacity);
    this.ranks = new Int32Array(capacity).fill(-1);
    this.joins = new Int32Array(merges);
  }

  /** The first rank given to a pair stays. At most as many merges as the constructor was told. */
  add(merge: Merge): void {
    this.joins[merge.rank] = merge.joined;
    const slot = this.slot(merge.left, merge.right);
    if ((this.ranks[slot] ?? -1) >= 0) return;
    this.lefts[slot] = merge.left;
    this.rights[slot] = merge.right;
    this.ranks[slot] = merge.rank;
  }

  /** Rank of the pair, -1 when there is none. */
  find(left: number, right: number): number {
    return this.ranks[this.slot(left, right)] ?? -1;
  }

  joined(rank: number): number {
    return this.joins[rank] ?? -1;
  }

  private slot(left: number, right: number): number {
    let hash = Math.imul(left, 0x9e3779b1) ^ Math.imul(right, 0x85ebca77);
    hash ^= hash >>> 15;
    let slot = hash & this.mask;
    while (
      (this.ranks[slot] ?? -1) >= 0 &&
      (this.lefts[slot] !== left || this.rights[slot] !== right)
    ) {
      slot = (slot + 1) & this.mask;
    }
    return slot;
  }
}
