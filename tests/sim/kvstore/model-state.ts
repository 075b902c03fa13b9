// A model's state that tells on every mistake: each row is a hash of all ids up to its last token, its
// pool, layer and head. Loading a wrong, shifted or stale row gives other bytes than computing it.
import { createHash } from 'node:crypto';
import { boxBytes, poolOf, restorePieces, rowsOf } from '../../../src/kvstore/core/coverage.ts';
import {
  type Box,
  PAGE_TOKENS,
  type PoolSpec,
  type Segment,
  type SegmentKind,
  type Unit,
} from '../../../src/kvstore/core/model.ts';
import { encodeSegment, type SegmentHeader } from '../../../src/kvstore/format/segment-file.ts';

export const sha256Hex = (bytes: Uint8Array): string =>
  createHash('sha256').update(bytes).digest('hex');

/** Hash of ids[0..i], for every i. */
export function prefixHashes(ids: Int32Array): Int32Array {
  let hash = 0x811c9dc5;
  return ids.map((id) => {
    hash = Math.imul(hash ^ id, 0x01000193) ^ (hash >>> 13);
    return hash;
  });
}

interface RowPlace {
  readonly pool: PoolSpec;
  readonly layer: number;
  readonly head: number;
  /** The last token that the row depends on. */
  readonly token: number;
}

function writeRow(out: DataView, at: number, place: RowPlace, hashes: Int32Array): void {
  const { pool, layer, head, token } = place;
  let value = (hashes[token] ?? 0) ^ Math.imul(1 + pool.id * 4099 + layer * 67 + head, 0x9e3779b1);
  for (let byte = 0; byte < pool.rowBytes; byte += 4) {
    out.setInt32(at + byte, value, true);
    value = Math.imul(value ^ (value >>> 15), 0x2c1b3c6d);
  }
}

function rowToken(pool: PoolSpec, begin: number, row: number, tokens: number): number {
  if (pool.tokensPerRow === 0) return tokens - 1;
  return (Math.floor(begin / pool.tokensPerRow) + row + 1) * pool.tokensPerRow - 1;
}

/** What an engine that computed `ids` hands out for a segment. */
export function payloadOf(
  pools: readonly PoolSpec[],
  segment: Pick<Segment, 'kind' | 'tokenBegin' | 'tokenEnd' | 'boxes'>,
  hashes: Int32Array,
): Uint8Array {
  const parts: Uint8Array[] = [];
  let begin = segment.kind === 'boundary' ? segment.tokenEnd : segment.tokenBegin;
  do {
    const end = Math.max(begin, Math.min(segment.tokenEnd, begin + PAGE_TOKENS));
    for (const box of segment.boxes) {
      parts.push(
        boxInPage(poolOf(pools, box), box, { begin, end, tokens: segment.tokenEnd }, hashes),
      );
    }
    begin = end;
  } while (begin < segment.tokenEnd);
  return Uint8Array.from(Buffer.concat(parts));
}

function boxInPage(
  pool: PoolSpec,
  box: Box,
  page: { readonly begin: number; readonly end: number; readonly tokens: number },
  hashes: Int32Array,
): Uint8Array {
  const out = new DataView(new ArrayBuffer(boxBytes(pool, box, page.begin, page.end)));
  const rows = rowsOf(pool, page.begin, page.end);
  const layers = pool.layers.filter((l) => l >= box.layerBegin && l < box.layerEnd);
  let at = 0;
  for (const layer of layers) {
    for (let head = box.headBegin; head < box.headEnd; head += 1) {
      for (let row = 0; row < rows; row += 1, at += pool.rowBytes) {
        const token = rowToken(pool, page.begin, row, page.tokens);
        writeRow(out, at, { pool, layer, head, token }, hashes);
      }
    }
  }
  return new Uint8Array(out.buffer);
}

/** Two pools of rows, one of pairs of tokens in some layers, one of boundary state. */
export const POOLS: readonly PoolSpec[] = [
  { id: 0, layers: [0, 1, 2], heads: 6, rowBytes: 4, tokensPerRow: 1 },
  { id: 1, layers: [0, 2], heads: 3, rowBytes: 4, tokensPerRow: 1 },
  { id: 2, layers: [1], heads: 1, rowBytes: 12, tokensPerRow: 4 },
  { id: 3, layers: [0, 2], heads: 1, rowBytes: 20, tokensPerRow: 0 },
];

export interface Plan {
  readonly tp: number;
  readonly pp: number;
}

/** The boxes of a rank: layers by stage, heads by tensor-parallel index, whole pools by its leader. */
export function boxesOf(plan: Plan, rank: number, kind: SegmentKind): Box[] {
  const stage = Math.floor(rank / plan.tp);
  const index = rank % plan.tp;
  const cut = (count: number, parts: number, part: number) => Math.floor((count * part) / parts);
  const layers = { layerBegin: cut(3, plan.pp, stage), layerEnd: cut(3, plan.pp, stage + 1) };
  return POOLS.filter((pool) => (pool.tokensPerRow === 0) === (kind === 'boundary'))
    .filter((pool) => pool.heads > 1 || index === 0)
    .filter((pool) => pool.layers.some((l) => l >= layers.layerBegin && l < layers.layerEnd))
    .map((pool) => ({
      pool: pool.id,
      ...layers,
      headBegin: pool.heads === 1 ? 0 : cut(pool.heads, plan.tp, index),
      headEnd: pool.heads === 1 ? 1 : cut(pool.heads, plan.tp, index + 1),
    }));
}

/** A segment file as its writer makes it. */
export function makeSegment(
  header: Omit<SegmentHeader, 'payloadBytes'>,
  payload: Uint8Array,
): { readonly segment: Segment; readonly file: Uint8Array } {
  const file = encodeSegment(header, payload);
  const { id, kind, directory, tokenBegin, tokenEnd, boxes } = header;
  const facts = { id, kind, directory, tokenBegin, tokenEnd, boxes };
  return { segment: { ...facts, digest: sha256Hex(file), fileBytes: file.length }, file };
}

/** What a rank of `plan` holds after loading: rows by place, or null where a piece is not as computed. */
export function firstWrongRow(
  unit: Unit,
  want: Box,
  hashes: Int32Array,
  read: (segment: string, offset: number, bytes: number) => Uint8Array,
): string | null {
  const pool = poolOf(unit.pools, want);
  let rows = 0;
  for (const piece of restorePieces(unit, want)) {
    const got = read(piece.segment, piece.offset, piece.bytes);
    const box = { ...want, layerBegin: piece.layer, layerEnd: piece.layer + 1 };
    const expected = new DataView(new ArrayBuffer(piece.bytes));
    const count = piece.bytes / pool.rowBytes;
    for (let row = 0; row < count; row += 1) {
      const token = rowToken(pool, piece.tokenBegin, row, unit.tokens);
      const place = { pool, layer: piece.layer, head: piece.head, token };
      writeRow(expected, row * pool.rowBytes, place, hashes);
    }
    rows += count;
    if (!Buffer.from(got).equals(Buffer.from(expected.buffer))) {
      return `pool ${box.pool} layer ${piece.layer} head ${piece.head} token ${piece.tokenBegin}`;
    }
  }
  const heads = want.headEnd - want.headBegin;
  const layers = pool.layers.filter((l) => l >= want.layerBegin && l < want.layerEnd).length;
  const expectedRows = layers * heads * rowsOf(pool, 0, unit.tokens);
  return rows === expectedRows ? null : `${rows} rows of ${expectedRows}`;
}
