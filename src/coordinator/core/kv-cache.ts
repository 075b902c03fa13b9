// Owns the KV blocks of an epoch and the prefix index over them. A live sequence holds a lease: its
// block table, and the index nodes of those leading blocks whose rows are known (ids accepted and the
// step that computes them sent: steps run in order, so a later step may read them at once).
//
//   positions  0 ........ indexed ........ blocks * blockTokens
//              | nodes (shared or own)   | taken ahead, not indexed: freed at release
//
// Invariants: free + idle + held = total. `idle` holds the nodes without a live holder, each with exactly
// one block, in order of last use and children before their parents, so the first is always a leaf and
// the least recently used: that one is evicted when blocks run out.
import { assert, present } from '../../base/assert.ts';
import { BlockPool } from './block-pool.ts';
import {
  attach,
  createNode,
  detach,
  findFullChild,
  findLongestChild,
  hashIds,
  type PrefixNode,
} from './prefix-tree.ts';

export interface Lease {
  /** The block table of the slot. */
  readonly blocks: number[];
  /** Of the leading blocks. */
  readonly nodes: PrefixNode[];
  /** Null: private, never in the index (score requests). */
  readonly root: PrefixNode | null;
  indexed: number;
}

/** What the index knows of a prompt. Valid until the cache changes. */
export interface PrefixMatch {
  readonly root: PrefixNode;
  readonly nodes: readonly PrefixNode[];
  /** A block whose first `rows` rows go on with the prompt: to be copied. */
  readonly partial: { readonly node: PrefixNode; readonly rows: number } | null;
}

export class KvCache {
  readonly blockTokens: number;
  private readonly pool: BlockPool;
  private readonly roots = new Map<string, PrefixNode>();
  private readonly idle = new Set<PrefixNode>();

  constructor(blocks: number, blockTokens: number) {
    this.pool = new BlockPool(blocks);
    this.blockTokens = blockTokens;
  }

  get total(): number {
    return this.pool.total;
  }

  get cachedCount(): number {
    return this.idle.size;
  }

  get freeCount(): number {
    return this.pool.freeCount;
  }

  /** Free blocks and those that eviction can free. */
  get availableCount(): number {
    return this.pool.freeCount + this.idle.size;
  }

  /** Longest known prefix of `ids` in the scope. Changes nothing; cost grows with `ids` only. */
  match(scope: string, ids: Int32Array): PrefixMatch {
    const root = this.roots.get(scope) ?? createNode(null, scope, 0);
    const nodes: PrefixNode[] = [];
    let end = root;
    let start = 0;
    while (start + this.blockTokens <= ids.length) {
      const child = findFullChild(end, ids.subarray(start, start + this.blockTokens));
      if (child === null) break;
      nodes.push(child);
      end = child;
      start += this.blockTokens;
    }
    const rest = ids.subarray(start, start + this.blockTokens);
    return { root, nodes, partial: rest.length === 0 ? null : findLongestChild(end, rest) };
  }

  /** A lease on the matched full blocks. The partial one is the caller's to copy. */
  share(match: PrefixMatch): Lease {
    this.roots.set(match.root.scope, match.root);
    match.root.holders += 1;
    const blocks: number[] = [];
    for (const node of match.nodes) blocks.push(this.hold(node));
    const indexed = blocks.length * this.blockTokens;
    return { blocks, nodes: [...match.nodes], root: match.root, indexed };
  }

  /** A lease that shares nothing and stays out of the index. */
  private(): Lease {
    return { blocks: [], nodes: [], root: null, indexed: 0 };
  }

  /** Keeps a node's block from eviction while a copy of it is being arranged. */
  hold(node: PrefixNode): number {
    const block = present(node.blocks[0], 'an indexed node has a block');
    this.idle.delete(node);
    node.holders += 1;
    this.pool.retain(block);
    return block;
  }

  /** Undoes hold(). */
  letGo(node: PrefixNode, block: number): void {
    this.releaseNode(node, block, true);
  }

  /** Adds a block to the end of the table, evicting if need be; false when all are held. */
  extend(lease: Lease): boolean {
    let block = this.pool.take();
    if (block === null) {
      if (!this.evictOldest()) return false;
      block = present(this.pool.take(), 'an eviction frees a block');
    }
    lease.blocks.push(block);
    return true;
  }

  /** Records that the rows before `upto` hold `ids` (or will, when the steps sent so far have run). */
  advance(lease: Lease, ids: Int32Array, upto: number): void {
    if (lease.root === null) return;
    while (lease.indexed < upto) {
      const index = Math.floor(lease.indexed / this.blockTokens);
      const start = index * this.blockTokens;
      const node = lease.nodes[index] ?? this.openNode(lease, index);
      const end = Math.min(upto, start + this.blockTokens);
      node.ids.set(ids.subarray(lease.indexed, end), lease.indexed - start);
      const isNew = node.filled === 0;
      node.filled = end - start;
      if (isNew) attach(node);
      lease.indexed = end;
      if (node.filled === this.blockTokens) this.seal(lease, index, node);
    }
  }

  /** Ends the lease. With `keep`, known rows stay in the index until they are evicted. */
  release(lease: Lease, keep: boolean): void {
    for (let index = lease.blocks.length - 1; index >= 0; index -= 1) {
      const block = present(lease.blocks[index], 'a lease lists its blocks');
      const node = lease.nodes[index];
      if (node !== undefined) this.releaseNode(node, block, keep);
      else if (this.pool.release(block) === 0) this.pool.giveBack(block);
    }
    lease.blocks.length = 0;
    lease.nodes.length = 0;
    lease.indexed = 0;
    if (lease.root === null) return;
    lease.root.holders -= 1;
    this.dropRootIfEmpty(lease.root);
  }

  /** Throws when blocks leaked. With `quiet`, no sequence is live. O(blocks). */
  check(quiet: boolean): void {
    const held = this.pool.heldCount;
    const { total, freeCount } = this.pool;
    const sum = `${freeCount} free + ${this.idle.size} cached + ${held} held of ${total}`;
    assert(freeCount + this.idle.size + held === total, `blocks add up: ${sum}`);
    assert(!quiet || held === 0, `no block is held when nothing runs: ${sum}`);
  }

  private openNode(lease: Lease, index: number): PrefixNode {
    const root = present(lease.root, 'a lease in the index has a root');
    assert(index === lease.nodes.length, 'blocks are indexed in order');
    const parent = index === 0 ? root : present(lease.nodes[index - 1], 'parents come first');
    const node = createNode(parent, root.scope, this.blockTokens);
    node.blocks.push(present(lease.blocks[index], 'an indexed block is in the table'));
    node.holders = 1;
    lease.nodes.push(node);
    return node;
  }

  /** A block that became full joins the equal one that another sequence computed meanwhile. */
  private seal(lease: Lease, index: number, node: PrefixNode): void {
    const parent = present(node.parent, 'an indexed node has a parent');
    detach(node);
    const equal = findFullChild(parent, node.ids);
    if (equal === null) {
      node.hash = hashIds(node.ids);
      attach(node);
      return;
    }
    this.idle.delete(equal);
    equal.holders += 1;
    equal.blocks.push(...node.blocks);
    lease.nodes[index] = equal;
    this.dropSpares(equal);
  }

  private releaseNode(node: PrefixNode, block: number, keep: boolean): void {
    node.holders -= 1;
    assert(node.holders >= 0, 'a released node has a holder');
    this.pool.release(block);
    this.dropSpares(node);
    if (node.holders > 0) return;
    this.idle.add(node);
    if (!keep && node.children.size === 0) this.evict(node);
  }

  /** Of several blocks with equal rows those without a holder go, so that one remains. */
  private dropSpares(node: PrefixNode): void {
    for (let index = node.blocks.length - 1; index >= 0 && node.blocks.length > 1; index -= 1) {
      const block = present(node.blocks[index], 'the index is in range');
      if (this.pool.isHeld(block)) continue;
      node.blocks.splice(index, 1);
      this.pool.giveBack(block);
    }
  }

  private evictOldest(): boolean {
    for (const node of this.idle) {
      this.evict(node);
      return true;
    }
    return false;
  }

  private evict(node: PrefixNode): void {
    assert(node.holders === 0 && node.children.size === 0, 'only an idle leaf is evicted');
    this.idle.delete(node);
    detach(node);
    for (const block of node.blocks) this.pool.giveBack(block);
    if (node.parent?.parent === null) this.dropRootIfEmpty(node.parent);
  }

  private dropRootIfEmpty(root: PrefixNode): void {
    if (root.children.size === 0 && root.holders === 0) this.roots.delete(root.scope);
  }
}
