// Simulated time: callbacks in order of (time, insertion). Nothing happens between them.
export class FakeClock {
  now = 0;
  private readonly heap: {
    readonly at: number;
    readonly order: number;
    readonly run: () => void;
  }[] = [];
  private inserted = 0;

  get pending(): number {
    return this.heap.length;
  }

  after(ms: number, run: () => void): void {
    this.at(this.now + ms, run);
  }

  /** Callbacks of one time run in the order in which they were set. */
  at(time: number, run: () => void): void {
    this.inserted += 1;
    const entry = { at: Math.max(this.now, time), order: this.inserted, run };
    this.heap.push(entry);
    let index = this.heap.length - 1;
    while (index > 0) {
      const parent = (index - 1) >> 1;
      if (!this.isBefore(index, parent)) break;
      this.swap(index, parent);
      index = parent;
    }
  }

  /** Runs the next callback; false when there is none. */
  runNext(): boolean {
    const first = this.heap[0];
    const last = this.heap.pop();
    if (first === undefined || last === undefined) return false;
    if (this.heap.length > 0) {
      this.heap[0] = last;
      this.sink();
    }
    this.now = first.at;
    first.run();
    return true;
  }

  private sink(): void {
    let index = 0;
    for (;;) {
      let least = index;
      for (const child of [2 * index + 1, 2 * index + 2]) {
        if (child < this.heap.length && this.isBefore(child, least)) least = child;
      }
      if (least === index) return;
      this.swap(index, least);
      index = least;
    }
  }

  private isBefore(a: number, b: number): boolean {
    const left = this.heap[a];
    const right = this.heap[b];
    if (left === undefined || right === undefined) return false;
    return left.at < right.at || (left.at === right.at && left.order < right.order);
  }

  private swap(a: number, b: number): void {
    const left = this.heap[a];
    const right = this.heap[b];
    if (left === undefined || right === undefined) return;
    this.heap[a] = right;
    this.heap[b] = left;
  }
}
