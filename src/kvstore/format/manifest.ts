// Manifests: one file a unit, the only thing that makes segments a unit. Renaming it into place is the
// commit. See docs/KVSTORE.md for the bytes. Ends with SHA-256 of all before it; a manifest that decodes
// encodes to the same bytes.
import { createHash } from 'node:crypto';
import { coverageFault, payloadBytes } from '../core/coverage.ts';
import type { PoolSpec, SaveReason, Segment, Unit } from '../core/model.ts';
import { BOXES_MAX, readBoxes, readKind, writeBoxes, writeKind } from './boxes.ts';
import { ByteReader, ByteWriter } from './bytes.ts';
import { PAYLOAD_BYTES_MAX, segmentFileBytes } from './segment-file.ts';

const MAGIC = 'COXKVMAN';
export const MANIFEST_VERSION = 1;
export const MANIFEST_BYTES_MAX = 16 * 1024 * 1024;
const DIGEST_BYTES = 32;
const POOLS_MAX = 64;
const LAYERS_MAX = 4096;
const SEGMENTS_MAX = 65_536;
const SEGMENT_BYTES_MIN = 84;
const TOKENS_MAX = 0x7fffffff;

const REASONS: readonly SaveReason[] = [
  'input-end',
  'prompt-end',
  'output-end',
  'common-prefix',
  'interval',
  'anchor',
  'slot-evicted',
  'shutdown',
  'imported',
];

export interface Manifest {
  /** 32 hex digits of the store that it belongs to. */
  readonly store: string;
  readonly unit: Unit;
}

export function encodeManifest({ store, unit }: Manifest): Uint8Array {
  const out = new ByteWriter();
  out.bytes(Buffer.from(MAGIC, 'latin1'));
  out.u16(MANIFEST_VERSION);
  out.u16(0);
  out.u32(0);
  out.hex(store);
  out.hex(unit.name);
  out.u32(unit.tokens);
  out.u32(unit.keyBytes);
  out.u8(REASONS.indexOf(unit.reason));
  out.zeros(3);
  out.hex(unit.scope);
  out.hex(unit.compat);
  out.hex(unit.plan);
  out.u64(unit.epoch);
  out.u64(unit.createdMs);
  out.u16(unit.pools.length);
  out.zeros(2);
  out.u32(unit.segments.length);
  for (const pool of unit.pools) writePool(out, pool);
  for (const segment of unit.segments) writeSegment(out, segment);
  const body = out.finish();
  new DataView(body.buffer, body.byteOffset).setUint32(12, body.length + DIGEST_BYTES, true);
  return Uint8Array.from(Buffer.concat([body, sha256(body)]));
}

/** Throws KV_DAMAGED (also where the segments do not cover the unit) or KV_UNSUPPORTED. */
export function decodeManifest(what: string, bytes: Uint8Array): Manifest {
  const input = new ByteReader(what, bytes);
  input.atMost(bytes.length, MANIFEST_BYTES_MAX, 'a manifest');
  input.magic(MAGIC);
  input.version(MANIFEST_VERSION);
  if (input.u32() !== bytes.length) input.fail(`${bytes.length} bytes are not its size`);
  if (bytes.length < DIGEST_BYTES + input.offset) input.fail('too short');
  const body = bytes.subarray(0, bytes.length - DIGEST_BYTES);
  if (!sha256(body).equals(bytes.subarray(body.length))) input.fail('the digest does not fit');
  return readBody(new ByteReader(what, body.subarray(input.offset)));
}

function readBody(input: ByteReader): Manifest {
  const store = input.hex(16);
  const name = input.hex(20);
  const tokens = input.atMost(input.u32(), TOKENS_MAX, 'the length');
  const keyBytes = input.u32();
  const reason = REASONS[input.u8()] ?? input.fail('an unknown reason');
  input.zeros(3);
  const [scope, compat, plan] = [input.hex(32), input.hex(32), input.hex(32)];
  const [epoch, createdMs] = [input.u64(), input.u64()];
  const poolCount = input.atMost(input.u16(), POOLS_MAX, 'the number of pools');
  input.zeros(2);
  const segmentCount = input.atMost(input.u32(), SEGMENTS_MAX, 'the number of segments');
  const pools = Array.from({ length: poolCount }, () => readPool(input));
  if (segmentCount * SEGMENT_BYTES_MIN > input.left) input.fail('the segments are cut off');
  const segments = Array.from({ length: segmentCount }, () => readSegment(input));
  input.end();
  if (new Set(segments.map(({ id }) => id)).size !== segmentCount) input.fail('a segment twice');
  checkSizes(input, pools, segments);
  const fault = coverageFault(pools, segments, tokens);
  if (fault !== null) input.fail(fault);
  const identity = { name, scope, compat, plan, tokens, keyBytes };
  return { store, unit: { ...identity, reason, createdMs, epoch, pools, segments } };
}

function writePool(out: ByteWriter, pool: PoolSpec): void {
  out.u16(pool.id);
  out.u16(pool.heads);
  out.u32(pool.rowBytes);
  out.u16(pool.tokensPerRow);
  out.u16(pool.layers.length);
  for (const layer of pool.layers) out.u16(layer);
}

function readPool(input: ByteReader): PoolSpec {
  const [id, heads] = [input.u16(), input.u16()];
  const [rowBytes, tokensPerRow] = [input.u32(), input.u16()];
  const count = input.atMost(input.u16(), LAYERS_MAX, 'the number of layers');
  if (count * 2 > input.left) input.fail('the layers are cut off');
  const layers = Array.from({ length: count }, () => input.u16());
  if (layers.some((layer, index) => index > 0 && layer <= (layers[index - 1] ?? 0))) {
    input.fail(`pool ${id}: the layers do not ascend`);
  }
  if (heads === 0 || rowBytes === 0 || count === 0) input.fail(`pool ${id} is empty`);
  if (tokensPerRow !== 0 && 256 % tokensPerRow !== 0) input.fail(`pool ${id}: rows cross pages`);
  return { id, layers, heads, rowBytes, tokensPerRow };
}

function writeSegment(out: ByteWriter, segment: Segment): void {
  out.hex(segment.id);
  out.hex(segment.directory);
  out.hex(segment.digest);
  out.u64(segment.fileBytes);
  out.u32(segment.tokenBegin);
  out.u32(segment.tokenEnd);
  writeKind(out, segment.kind);
  out.zeros(1);
  out.u16(segment.boxes.length);
  writeBoxes(out, segment.boxes);
}

function readSegment(input: ByteReader): Segment {
  const [id, directory, digest] = [input.hex(16), input.hex(16), input.hex(32)];
  const fileBytes = input.atMost(input.u64(), 2 * PAYLOAD_BYTES_MAX, 'a segment');
  const [tokenBegin, tokenEnd] = [input.u32(), input.u32()];
  const kind = readKind(input);
  input.zeros(1);
  const boxes = readBoxes(input, input.atMost(input.u16(), BOXES_MAX, 'the number of boxes'));
  if (tokenBegin > tokenEnd) input.fail(`segment ${id} ends before it begins`);
  return { id, kind, directory, digest, fileBytes, tokenBegin, tokenEnd, boxes };
}

/** The size of a file with rows follows from its boxes: a wrong one would shift every row. */
function checkSizes(
  input: ByteReader,
  pools: readonly PoolSpec[],
  segments: readonly Segment[],
): void {
  if (new Set(pools.map(({ id }) => id)).size !== pools.length) input.fail('a pool twice');
  for (const segment of segments) {
    if (segment.kind === 'text' || segment.kind === 'tail') continue;
    for (const box of segment.boxes) {
      const pool = pools.find(({ id }) => id === box.pool);
      if (pool === undefined) input.fail(`segment ${segment.id} is of pool ${box.pool}: unknown`);
      if ((pool.tokensPerRow === 0) !== (segment.kind === 'boundary')) {
        input.fail(`segment ${segment.id} holds pool ${box.pool} as ${segment.kind}`);
      }
    }
    const expected = segmentFileBytes(segment.boxes.length, payloadBytes(pools, segment));
    if (segment.fileBytes !== expected) {
      input.fail(`segment ${segment.id} has ${segment.fileBytes} bytes, needs ${expected}`);
    }
  }
}

function sha256(bytes: Uint8Array): Buffer {
  return createHash('sha256').update(bytes).digest();
}
