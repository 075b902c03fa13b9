// Does a set of segments hold everything of a unit, and where does each row come from? Coverage is by
// logical coordinates (pool, layer, head, token), never by rank, so any plan can be served.
//
//   ranges by begin:   [0 ---------- 1000)
//                              [768 ------ 1500)     rows from 768 on come from the second
import { assert } from '../../base/assert.ts';
import { type Box, PAGE_TOKENS, type PoolSpec, type Segment } from './model.ts';

/** The part of a pool segment that a unit uses: tokens [begin, end). */
export interface UsedRange {
  readonly begin: number;
  readonly end: number;
  readonly segments: readonly Segment[];
}

/** Pool segments by token range; each range is used up to the begin of the next. */
export function usedRanges(segments: readonly Segment[], tokens: number): UsedRange[] {
  const byBegin = new Map<number, Segment[]>();
  for (const segment of segments) {
    if (segment.kind !== 'pool') continue;
    const group = byBegin.get(segment.tokenBegin);
    if (group === undefined) byBegin.set(segment.tokenBegin, [segment]);
    else group.push(segment);
  }
  const begins = [...byBegin.keys()].sort((a, b) => a - b);
  return begins.map((begin, index) => ({
    begin,
    end: begins[index + 1] ?? tokens,
    segments: byBegin.get(begin) ?? [],
  }));
}

/**
 * null where every (pool, layer, head, token) up to `tokens` is held exactly once and every boundary
 * part too; else a sentence that names the first hole or double.
 */
export function coverageFault(
  pools: readonly PoolSpec[],
  segments: readonly Segment[],
  tokens: number,
): string | null {
  const rows = pools.filter((pool) => pool.tokensPerRow > 0);
  const fixed = pools.filter((pool) => pool.tokensPerRow === 0);
  const boundary = segments.filter((segment) => segment.kind === 'boundary');
  return (
    rangesFault(rows, usedRanges(segments, tokens)) ??
    boundaryFault(fixed, boundary, tokens) ??
    textFault(segments, tokens)
  );
}

function rangesFault(pools: readonly PoolSpec[], ranges: readonly UsedRange[]): string | null {
  if (pools.length === 0) return null;
  if (ranges[0]?.begin !== 0) return 'no pool segment begins at token 0';
  for (const { begin, end, segments } of ranges) {
    if (begin % PAGE_TOKENS !== 0) return `a range begins inside a page, at token ${begin}`;
    const short = segments.find((segment) => segment.tokenEnd < end);
    if (short !== undefined) return `tokens ${short.tokenEnd}..${end} are in no segment`;
    const fault = boxesFault(pools, segments);
    if (fault !== null) return `${fault}, tokens ${begin}..${end}`;
  }
  return null;
}

function boundaryFault(
  pools: readonly PoolSpec[],
  segments: readonly Segment[],
  tokens: number,
): string | null {
  if (segments.some((segment) => segment.tokenEnd !== tokens)) {
    return `boundary state of another length than ${tokens}`;
  }
  const fault = boxesFault(pools, segments);
  return fault === null ? null : `${fault} of the boundary state`;
}

function textFault(segments: readonly Segment[], tokens: number): string | null {
  const texts = segments
    .filter((segment) => segment.kind === 'text')
    .sort((a, b) => a.tokenBegin - b.tokenBegin);
  let covered = 0;
  for (const { tokenBegin, tokenEnd } of texts) {
    if (tokenBegin > covered) return `ids ${covered}..${tokenBegin} are in no segment`;
    covered = Math.max(covered, tokenEnd);
  }
  if (covered !== tokens) return `ids end at ${covered}, not ${tokens}`;
  return segments.filter((segment) => segment.kind === 'tail').length === 1
    ? null
    : 'there is not exactly one tail segment';
}

/** Every cell (layer, head) of every pool in exactly one box. */
function boxesFault(pools: readonly PoolSpec[], segments: readonly Segment[]): string | null {
  for (const pool of pools) {
    const boxes = segments.flatMap((segment) =>
      segment.boxes.filter((box) => box.pool === pool.id),
    );
    for (const layer of pool.layers) {
      const fault = headsFault(pool, boxes, layer);
      if (fault !== null) return fault;
    }
  }
  return null;
}

function headsFault(pool: PoolSpec, boxes: readonly Box[], layer: number): string | null {
  const here = boxes
    .filter((box) => box.layerBegin <= layer && layer < box.layerEnd)
    .sort((a, b) => a.headBegin - b.headBegin);
  let covered = 0;
  for (const { headBegin, headEnd } of here) {
    if (headBegin > covered) break;
    if (headBegin < covered)
      return `pool ${pool.id} layer ${layer} head ${headBegin} is held twice`;
    covered = headEnd;
  }
  if (covered === pool.heads) return null;
  return `pool ${pool.id} layer ${layer} head ${covered} is held by nobody`;
}

/** Where one stretch of rows of one head lies, in a file and in the pool. */
export interface RowPiece {
  readonly segment: string;
  readonly directory: string;
  /** From the start of the segment's payload. */
  readonly offset: number;
  readonly bytes: number;
  readonly layer: number;
  readonly head: number;
  readonly tokenBegin: number;
  readonly tokenEnd: number;
}

/** Layers of the pool inside a box. */
function layersIn(pool: PoolSpec, box: Box): readonly number[] {
  return pool.layers.filter((layer) => box.layerBegin <= layer && layer < box.layerEnd);
}

/** Rows of a pool for tokens [begin, end): a row is written when its last token is there. */
export function rowsOf(pool: PoolSpec, begin: number, end: number): number {
  if (pool.tokensPerRow === 0) return 1;
  return Math.floor(end / pool.tokensPerRow) - Math.floor(begin / pool.tokensPerRow);
}

export function boxBytes(pool: PoolSpec, box: Box, begin: number, end: number): number {
  const heads = box.headEnd - box.headBegin;
  return layersIn(pool, box).length * heads * rowsOf(pool, begin, end) * pool.rowBytes;
}

/** Payload of a segment: pages of 256 tokens, in each the boxes, in each layers, heads, rows. */
export function payloadBytes(
  pools: readonly PoolSpec[],
  segment: Pick<Segment, 'boxes' | 'tokenBegin' | 'tokenEnd' | 'kind'>,
): number {
  let sum = 0;
  for (const box of segment.boxes) {
    const pool = poolOf(pools, box);
    // Rows are whole in every page (256 is a multiple of tokensPerRow), so pages add up to the range.
    sum += boxBytes(pool, box, segment.tokenBegin, segment.tokenEnd);
  }
  return sum;
}

export function poolOf(pools: readonly PoolSpec[], box: Box): PoolSpec {
  const pool = pools.find((each) => each.id === box.pool);
  assert(pool !== undefined, 'a box names a pool of its unit');
  return pool;
}

/** Every piece of `segment` that falls into `want`, tokens [begin, end). Boundary state: one piece. */
export function* piecesOf(
  pools: readonly PoolSpec[],
  segment: Segment,
  want: Box,
  range: { readonly begin: number; readonly end: number },
): Generator<RowPiece> {
  let offset = 0;
  let pageBegin = segment.kind === 'boundary' ? segment.tokenEnd : segment.tokenBegin;
  do {
    const pageEnd = Math.min(segment.tokenEnd, pageBegin - (pageBegin % PAGE_TOKENS) + PAGE_TOKENS);
    const page = { begin: pageBegin, end: Math.max(pageBegin, pageEnd) };
    for (const box of segment.boxes) {
      const pool = poolOf(pools, box);
      yield* piecesInPage({ pool, segment, box, want, range, page, offset });
      offset += boxBytes(pool, box, page.begin, page.end);
    }
    pageBegin = page.end;
  } while (pageBegin < segment.tokenEnd);
}

interface PageSite {
  readonly pool: PoolSpec;
  readonly segment: Segment;
  readonly box: Box;
  readonly want: Box;
  readonly range: { readonly begin: number; readonly end: number };
  readonly page: { readonly begin: number; readonly end: number };
  readonly offset: number;
}

function* piecesInPage(site: PageSite): Generator<RowPiece> {
  const { pool, box, want, page, range, segment } = site;
  if (want.pool !== pool.id) return;
  const fixed = pool.tokensPerRow === 0;
  const begin = fixed ? page.begin : Math.max(page.begin, range.begin);
  const end = fixed ? page.end : Math.min(page.end, range.end);
  const skipped = fixed ? 0 : rowsOf(pool, page.begin, begin);
  const rows = rowsOf(pool, begin, end);
  if (rows <= 0 || (!fixed && begin >= end)) return;
  const pitch = rowsOf(pool, page.begin, page.end) * pool.rowBytes;
  let offset = site.offset;
  for (const layer of layersIn(pool, box)) {
    for (let head = box.headBegin; head < box.headEnd; head += 1) {
      if (isWanted(want, layer, head)) {
        yield {
          segment: segment.id,
          directory: segment.directory,
          offset: offset + skipped * pool.rowBytes,
          bytes: rows * pool.rowBytes,
          layer,
          head,
          tokenBegin: begin,
          tokenEnd: end,
        };
      }
      offset += pitch;
    }
  }
}

function isWanted(want: Box, layer: number, head: number): boolean {
  return (
    want.layerBegin <= layer &&
    layer < want.layerEnd &&
    want.headBegin <= head &&
    head < want.headEnd
  );
}

/** Every piece that a rank needs of a unit to hold `want`: the re-cut, and the plain load too. */
export function* restorePieces(
  unit: {
    readonly pools: readonly PoolSpec[];
    readonly segments: readonly Segment[];
    readonly tokens: number;
  },
  want: Box,
): Generator<RowPiece> {
  const pool = poolOf(unit.pools, want);
  if (pool.tokensPerRow === 0) {
    const all = { begin: 0, end: unit.tokens };
    for (const segment of unit.segments) {
      if (segment.kind === 'boundary') yield* piecesOf(unit.pools, segment, want, all);
    }
    return;
  }
  for (const range of usedRanges(unit.segments, unit.tokens)) {
    for (const segment of range.segments) yield* piecesOf(unit.pools, segment, want, range);
  }
}

/**
 * What a rank that is to hold `wants` reads from directories of its own host, and what it pulls from
 * others, without the rest of the 64 KiB blocks that checksums touch. For the cost model.
 */
export function bytesToLoad(
  unit: {
    readonly pools: readonly PoolSpec[];
    readonly segments: readonly Segment[];
    readonly tokens: number;
  },
  wants: readonly Box[],
  isLocal: (directory: string) => boolean,
): { readonly localBytes: number; readonly remoteBytes: number } {
  let localBytes = 0;
  let remoteBytes = 0;
  for (const want of wants) {
    for (const { directory, bytes } of restorePieces(unit, want)) {
      if (isLocal(directory)) localBytes += bytes;
      else remoteBytes += bytes;
    }
  }
  return { localBytes, remoteBytes };
}
