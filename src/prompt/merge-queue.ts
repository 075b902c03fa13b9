// The queue of candidate merges that both tokenizers drain: lowest rank first, then leftmost. A candidate
// is one number, rank * 2^32 + position of its left symbol, so that comparing numbers is the order.
// Candidates may be stale; whoever pops one checks that the pair still stands.

const POSITIONS = 2 ** 32;
/** rank * 2^32 must stay an exact double. */
export const MERGE_RANKS_MAX = 2 ** 21;

export class MergeQueue {
  private heap = new Float64Array(256);
  private count = 0;

  push(rank: number, left: number): void {
    if (this.count === this.heap.length) {
      const grown = new Float64Array(this.heap.length * 2);
      grown.set(this.heap);
      this.heap = grown;
    }
    const heap = this.heap;
    const key = rank * POSITIONS + left;
    let at = this.count;
    this.count += 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const above = heap[parent] ?? 0;
      if (above <= key) break;
      heap[at] = above;
      at = parent;
    }
    heap[at] = key;
  }

  /** The first candidate's key, or -1 when empty. */
  pop(): number {
    if (this.count === 0) return -1;
    const heap = this.heap;
    const top = heap[0] ?? 0;
    this.count -= 1;
    const key = heap[this.count] ?? 0;
    let at = 0;
    for (let child = 1; child < this.count; child = 2 * at + 1) {
      const right = child + 1;
      if (right < this.count && (heap[right] ?? 0) < (heap[child] ?? 0)) child = right;
      const below = heap[child] ?? 0;
      if (below >= key) break;
      heap[at] = below;
      at = child;
    }
    heap[at] = key;
    // A giant word's queue is not kept for ever.
    if (this.count === 0 && heap.length > 65_536) this.heap = new Float64Array(256);
    return top;
  }

  static rankOf(key: number): number {
    return Math.floor(key / POSITIONS);
  }

  static leftOf(key: number): number {
    return key % POSITIONS;
  }
}
