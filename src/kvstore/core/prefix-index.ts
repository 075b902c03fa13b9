// Finds, for the key bytes of a prompt, every stored or live beginning of it, and how far it goes along
// with anything known. A tree of pages found by their chain hash: a node is a distinct beginning of
// whole pages; what continues it (further pages, tails that end there) stands in byte order.
//
//   root(scope, compat) -> page 1 -> page 2 -> ... -> continuations: [tail of unit A][page 3][tail of B]
//
// Invariants: every page that a hash finds is compared byte by byte before it counts; a node lives while
// a source ends in it or below it; sources of different seeds never share a node. A look-up costs one
// pass over the prompt and a binary search in the last page, whatever the number of sources.
import { assert, present } from '../../base/assert.ts';
import { commonBytes, compareBytes, equalBytes } from './bytes.ts';
import { hashKey, PAGE_BYTES, pageHashes, type Sha256, tailOf } from './page-chain.ts';

/** unit: on disk. slot: state in memory. recent: only the bytes of a past request are known. */
export type SourceKind = 'unit' | 'slot' | 'recent';

export interface Source {
  readonly kind: SourceKind;
  readonly id: string;
  /** Key bytes held. */
  readonly length: number;
}

export interface LongestCommon {
  /** Key bytes that the prompt shares with the source. */
  readonly bytes: number;
  readonly source: Source;
}

interface Continuation {
  /** A whole page (then `child` is set) or a tail shorter than one. */
  readonly bytes: Uint8Array;
  readonly child: PageNode | null;
  readonly ending: Source[];
}

interface PageNode {
  readonly key: string;
  readonly depth: number;
  readonly parent: PageNode | null;
  /** The page that leads here from the parent; empty at a root. */
  readonly page: Uint8Array;
  /** In byte order. */
  readonly continuations: Continuation[];
}

interface Place {
  readonly node: PageNode;
  readonly tail: Uint8Array;
  readonly source: Source;
}

export class PrefixIndex {
  private readonly sha256: Sha256;
  private readonly nodes = new Map<string, PageNode>();
  private readonly places = new Map<string, Place>();

  constructor(sha256: Sha256) {
    this.sha256 = sha256;
  }

  get size(): number {
    return this.places.size;
  }

  get pageCount(): number {
    return this.nodes.size;
  }

  has(kind: SourceKind, id: string): boolean {
    return this.places.has(placeKey(kind, id));
  }

  /** `bytes` are copied page by page; `seed` is the chain's H0. A known (kind, id) is moved. */
  add(kind: SourceKind, id: string, seed: Uint8Array, bytes: Uint8Array): void {
    this.remove(kind, id);
    let node = this.rootOf(seed);
    let at = 0;
    for (const hash of pageHashes(this.sha256, seed, bytes)) {
      node = this.childOf(node, hashKey(hash), bytes.subarray(at, at + PAGE_BYTES));
      at += PAGE_BYTES;
    }
    const source = { kind, id, length: bytes.length };
    const tail = tailOf(bytes).slice();
    this.continuation(node, tail, null).ending.push(source);
    this.places.set(placeKey(kind, id), { node, tail, source });
  }

  remove(kind: SourceKind, id: string): void {
    const place = this.places.get(placeKey(kind, id));
    if (place === undefined) return;
    this.places.delete(placeKey(kind, id));
    const index = lowerBound(place.node.continuations, place.tail);
    const continuation = present(place.node.continuations[index], 'a source has its tail');
    const at = continuation.ending.indexOf(place.source);
    assert(at >= 0, 'a source stands where it was put');
    continuation.ending.splice(at, 1);
    if (continuation.ending.length === 0) place.node.continuations.splice(index, 1);
    this.dropEmpty(place.node);
  }

  /** What is known of a prompt. Valid until the index changes. */
  lookup(seed: Uint8Array, prompt: Uint8Array): PrefixLookup {
    const root = this.nodes.get(hashKey(seed));
    if (root === undefined) return new PrefixLookup([], prompt);
    const path = [root];
    let node = root;
    let hash = seed;
    for (let at = 0; at + PAGE_BYTES <= prompt.length; at += PAGE_BYTES) {
      const page = prompt.subarray(at, at + PAGE_BYTES);
      hash = this.sha256(hash, page);
      const child = this.nodes.get(hashKey(hash));
      if (child?.parent !== node || !equalBytes(child.page, page)) break;
      path.push(child);
      node = child;
    }
    return new PrefixLookup(path, prompt);
  }

  private rootOf(seed: Uint8Array): PageNode {
    return this.node(hashKey(seed), null, new Uint8Array(0));
  }

  private childOf(parent: PageNode, key: string, page: Uint8Array): PageNode {
    const known = this.nodes.get(key);
    if (known !== undefined) {
      // Two different pages with one 128-bit hash would need a broken SHA-256.
      assert(known.parent === parent && equalBytes(known.page, page), 'page hashes are distinct');
      return known;
    }
    const own = page.slice();
    const child = this.node(key, parent, own);
    this.continuation(parent, own, child);
    return child;
  }

  private node(key: string, parent: PageNode | null, page: Uint8Array): PageNode {
    const known = this.nodes.get(key);
    if (known !== undefined) return known;
    const depth = parent === null ? 0 : parent.depth + 1;
    const node = { key, depth, parent, page, continuations: [] };
    this.nodes.set(key, node);
    return node;
  }

  private continuation(node: PageNode, bytes: Uint8Array, child: PageNode | null): Continuation {
    const index = lowerBound(node.continuations, bytes);
    const found = node.continuations[index];
    if (found !== undefined && equalBytes(found.bytes, bytes)) return found;
    const made = { bytes, child, ending: [] };
    node.continuations.splice(index, 0, made);
    return made;
  }

  private dropEmpty(start: PageNode): void {
    let node = start;
    while (node.continuations.length === 0) {
      this.nodes.delete(node.key);
      const { parent } = node;
      if (parent === null) return;
      const index = lowerBound(parent.continuations, node.page);
      assert(parent.continuations[index]?.child === node, 'a page continues its parent');
      parent.continuations.splice(index, 1);
      node = parent;
    }
  }
}

export class PrefixLookup {
  private readonly path: readonly PageNode[];
  private readonly prompt: Uint8Array;

  constructor(path: readonly PageNode[], prompt: Uint8Array) {
    this.path = path;
    this.prompt = prompt;
  }

  /** Sources of which every byte begins the prompt, longest first. */
  *covering(): Generator<Source> {
    for (let depth = this.path.length - 1; depth >= 0; depth -= 1) {
      const node = present(this.path[depth], 'the path is dense');
      const rest = this.prompt.subarray(depth * PAGE_BYTES, (depth + 1) * PAGE_BYTES);
      for (const continuation of prefixesOf(node.continuations, rest)) yield* continuation.ending;
    }
  }

  /** The source that shares most bytes with the prompt, covered or not. */
  longestCommon(): LongestCommon | null {
    const node = this.path.at(-1);
    if (node === undefined) return null;
    const rest = this.prompt.subarray(node.depth * PAGE_BYTES, (node.depth + 1) * PAGE_BYTES);
    const at = lowerBound(node.continuations, rest);
    let best: { readonly common: number; readonly continuation: Continuation } | null = null;
    for (const near of [node.continuations[at - 1], node.continuations[at]]) {
      if (near === undefined) continue;
      const common = commonBytes(near.bytes, rest);
      if (best === null || common > best.common) best = { common, continuation: near };
    }
    const { common, continuation } = present(best, 'a node has a continuation');
    return { bytes: node.depth * PAGE_BYTES + common, source: sourceBelow(continuation) };
  }
}

/** Any source that runs through the continuation. */
function sourceBelow(start: Continuation): Source {
  let continuation = start;
  for (;;) {
    const ending = continuation.ending.at(-1);
    if (ending !== undefined) return ending;
    const child = present(continuation.child, 'a continuation ends or goes on');
    continuation = present(child.continuations[0], 'a node has a continuation');
  }
}

/**
 * Those continuations of which all bytes begin `query`, longest first. The greatest entry <= query is
 * either one of them, or shares l bytes with it; then no other one is longer than l.
 */
function* prefixesOf(sorted: readonly Continuation[], query: Uint8Array): Generator<Continuation> {
  let rest = query;
  for (;;) {
    let at = lowerBound(sorted, rest);
    const exact = sorted[at];
    if (exact === undefined || !equalBytes(exact.bytes, rest)) at -= 1;
    const found = sorted[at];
    if (found === undefined) return;
    const common = commonBytes(found.bytes, rest);
    if (common === found.bytes.length) {
      yield found;
      if (common === 0) return;
      rest = rest.subarray(0, common - 1);
    } else rest = rest.subarray(0, common);
  }
}

/** Index of the first entry >= bytes. */
function lowerBound(sorted: readonly Continuation[], bytes: Uint8Array): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    const entry = present(sorted[middle], 'the index is in range');
    if (compareBytes(entry.bytes, bytes) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

function placeKey(kind: SourceKind, id: string): string {
  return `${kind} ${id}`;
}
