// What a unit is made of, in logical coordinates (pool, layer, head, token). A unit is one complete,
// restorable checkpoint of a prefix: pool segments that cover every token, boundary state valid at its
// end, token ids and key bytes, next-token logits and a witness. Segments are files, immutable once
// written, shared between the units of a lineage; a child names its parent's segments, never the parent.

/** Tokens of a page: full pages are immutable and shared, a partial last page is rewritten by a child. */
export const PAGE_TOKENS = 256;
/** Beyond so many token ranges a lineage is written whole again (compacted). */
export const RANGES_MAX = 16;

/** State rows of one kind. */
export interface PoolSpec {
  readonly id: number;
  /** Model layers that have such rows, ascending. */
  readonly layers: readonly number[];
  /** Heads that are stored apart (1 for latents and other state that cannot be cut by head). */
  readonly heads: number;
  /** Bytes of one row of one head. */
  readonly rowBytes: number;
  /** Tokens that one row stands for: 1, 4, 128. 0: boundary state, one row, valid at the unit's end. */
  readonly tokensPerRow: number;
}

/** The part of a pool that one segment holds: half-open ranges of model layers and of heads. */
export interface Box {
  readonly pool: number;
  readonly layerBegin: number;
  readonly layerEnd: number;
  readonly headBegin: number;
  readonly headEnd: number;
}

/** pool: rows of tokens. boundary: state at the end. text: ids and key bytes. tail: logits, witness. */
export type SegmentKind = 'pool' | 'boundary' | 'text' | 'tail';

export interface Segment {
  /** 32 hex digits: epoch and nonce; also the file's name. */
  readonly id: string;
  readonly kind: SegmentKind;
  /** Directory id (32 hex digits) of the one directory that holds the file. */
  readonly directory: string;
  /** SHA-256 of the whole file, 64 hex digits. */
  readonly digest: string;
  readonly fileBytes: number;
  /** A multiple of PAGE_TOKENS for pool and text segments. */
  readonly tokenBegin: number;
  readonly tokenEnd: number;
  /** Empty for text and tail. */
  readonly boxes: readonly Box[];
}

export type SaveReason =
  | 'input-end'
  | 'prompt-end'
  | 'output-end'
  | 'common-prefix'
  | 'interval'
  | 'anchor'
  | 'slot-evicted'
  | 'shutdown'
  | 'imported';

export interface Unit {
  /** 40 hex digits (page-chain.ts). */
  readonly name: string;
  /** 64 hex digits each. */
  readonly scope: string;
  readonly compat: string;
  readonly tokens: number;
  readonly keyBytes: number;
  readonly reason: SaveReason;
  readonly createdMs: number;
  readonly epoch: number;
  /** Plan under which it was written, 64 hex digits. */
  readonly plan: string;
  readonly pools: readonly PoolSpec[];
  /** By kind and token range. */
  readonly segments: readonly Segment[];
}

/** Token ranges of a unit's pool segments, ascending by begin, each once. */
export function rangesOf(segments: readonly Segment[]): readonly (readonly [number, number])[] {
  const ends = new Map<number, number>();
  for (const segment of segments) {
    if (segment.kind === 'pool') ends.set(segment.tokenBegin, segment.tokenEnd);
  }
  return [...ends].sort(([a], [b]) => a - b);
}

/**
 * What a child at `tokens` takes over from a unit whose first `common` tokens it shares, and where its
 * own first range begins. A segment is of use up to its last full page before `common`. Nothing is
 * taken over where the lineage would pass RANGES_MAX ranges: the child is then written whole.
 */
export function inherit(
  parent: Unit | null,
  common: number,
): { readonly segments: readonly Segment[]; readonly from: number } {
  const whole = { segments: [], from: 0 };
  if (parent === null) return whole;
  const from = common - (common % PAGE_TOKENS);
  const usable = parent.segments.filter(
    ({ kind, tokenBegin }) => (kind === 'pool' || kind === 'text') && tokenBegin < from,
  );
  if (rangesOf(usable).length >= RANGES_MAX) return whole;
  const covered = Math.max(0, ...usable.map(({ tokenEnd }) => tokenEnd));
  return { segments: usable, from: Math.min(from, covered - (covered % PAGE_TOKENS)) };
}
