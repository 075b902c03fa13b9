// Nodes of the prefix index: one node a block of tokens, children continue their parent. The path to a
// node spells the exact ids from position 0, so a match is never a matter of hashes alone: the hash of
// a full block only finds the candidate, its ids are compared. Roots are per scope, so scopes cannot see
// each other. A node that is not full is a leaf.
import { assert } from '../../base/assert.ts';

export interface PrefixNode {
  readonly parent: PrefixNode | null;
  readonly scope: string;
  /** Ids of this block; the first `filled` are valid. */
  readonly ids: Int32Array;
  filled: number;
  /** Of the ids, once full. */
  hash: number;
  /** Blocks that hold these rows. More than one only while live sequences computed the same prefix. */
  readonly blocks: number[];
  /** Live sequences whose path runs through this node. */
  holders: number;
  /** Children by their first token. */
  readonly children: Map<number, PrefixNode[]>;
}

export function createNode(
  parent: PrefixNode | null,
  scope: string,
  blockTokens: number,
): PrefixNode {
  return {
    parent,
    scope,
    ids: new Int32Array(blockTokens),
    filled: 0,
    hash: 0,
    blocks: [],
    holders: 0,
    children: new Map(),
  };
}

export function attach(node: PrefixNode): void {
  const { parent } = node;
  assert(parent !== null && node.filled > 0, 'an indexed node has a parent and a first token');
  const first = node.ids[0] ?? 0;
  const siblings = parent.children.get(first);
  if (siblings === undefined) parent.children.set(first, [node]);
  else siblings.push(node);
}

export function detach(node: PrefixNode): void {
  const { parent } = node;
  assert(parent !== null, 'a detached node has a parent');
  const first = node.ids[0] ?? 0;
  const siblings = parent.children.get(first) ?? [];
  const index = siblings.indexOf(node);
  assert(index >= 0, 'a detached node is among the children of its parent');
  siblings.splice(index, 1);
  if (siblings.length === 0) parent.children.delete(first);
}

/** FNV-1a over whole ids. */
export function hashIds(ids: Int32Array): number {
  let hash = 0x811c9dc5;
  for (const id of ids) hash = Math.imul(hash ^ id, 0x01000193);
  return hash;
}

/** The full child that continues `parent` with exactly these ids. `ids` spans one block. */
export function findFullChild(parent: PrefixNode, ids: Int32Array): PrefixNode | null {
  const siblings = parent.children.get(ids[0] ?? 0);
  if (siblings === undefined) return null;
  const hash = hashIds(ids);
  for (const node of siblings) {
    if (
      node.filled === ids.length &&
      node.hash === hash &&
      commonLength(node, ids) === ids.length
    ) {
      return node;
    }
  }
  return null;
}

/** The child with the longest common prefix with `ids`, at least one id long. */
export function findLongestChild(
  parent: PrefixNode,
  ids: Int32Array,
): { readonly node: PrefixNode; readonly rows: number } | null {
  let best: { node: PrefixNode; rows: number } | null = null;
  for (const node of parent.children.get(ids[0] ?? 0) ?? []) {
    const rows = commonLength(node, ids);
    if (rows > (best?.rows ?? 0)) best = { node, rows };
  }
  return best;
}

function commonLength(node: PrefixNode, ids: Int32Array): number {
  const limit = Math.min(node.filled, ids.length);
  let length = 0;
  while (length < limit && node.ids[length] === ids[length]) length += 1;
  return length;
}
