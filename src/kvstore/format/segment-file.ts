// Segment files: header, payload, checksums. See docs/KVSTORE.md for the bytes.
//
//   [header, boxes, zeros, CRC] 4096 * k | payload | CRC-32 of each 64 KiB | CRC-32 of those | end mark
//
// The table of checksums comes last, so that a file is written in one pass; its size follows from the
// header, so a cut file is found before a byte of payload is read. Any range can be read and checked by
// the 64 KiB blocks that it touches.
import { crc32 } from 'node:zlib';
import { assert } from '../../base/assert.ts';
import { type Box, PAGE_TOKENS, type SegmentKind } from '../core/model.ts';
import { BOX_BYTES, readBoxes, readKind, writeBoxes, writeKind } from './boxes.ts';
import { ByteReader, ByteWriter, damaged } from './bytes.ts';

const MAGIC = 'COXKVSEG';
const END_MARK = 0x4745534b;
export const SEGMENT_VERSION = 1;
/** Payloads begin on a disk page, so that they can be read past the page cache. */
export const HEADER_ALIGN = 4096;
export const BLOCK_BYTES = 65_536;
const FIXED_BYTES = 96;
/** Bound of a header: 4096 boxes. */
export const HEADER_BYTES_MAX = 65_536;
const TRAILER_BYTES = 8;
/** 1 TiB: far beyond any unit, and small enough that sizes stay exact. */
export const PAYLOAD_BYTES_MAX = 2 ** 40;

export interface SegmentHeader {
  readonly id: string;
  readonly store: string;
  readonly directory: string;
  readonly epoch: number;
  readonly kind: SegmentKind;
  readonly tokenBegin: number;
  readonly tokenEnd: number;
  readonly boxes: readonly Box[];
  readonly payloadBytes: number;
}

export function headerBytes(boxCount: number): number {
  const needed = FIXED_BYTES + boxCount * BOX_BYTES + 4;
  return Math.ceil(needed / HEADER_ALIGN) * HEADER_ALIGN;
}

export function blockCount(payload: number): number {
  return Math.ceil(payload / BLOCK_BYTES);
}

export function segmentFileBytes(boxCount: number, payload: number): number {
  return headerBytes(boxCount) + payload + 4 * blockCount(payload) + TRAILER_BYTES;
}

export function encodeSegmentHeader(header: SegmentHeader): Uint8Array {
  const size = headerBytes(header.boxes.length);
  assert(size <= HEADER_BYTES_MAX, 'a header is bounded');
  const out = new ByteWriter();
  out.bytes(Buffer.from(MAGIC, 'latin1'));
  out.u16(SEGMENT_VERSION);
  out.u16(0);
  out.u32(size);
  out.hex(header.id);
  out.hex(header.store);
  out.hex(header.directory);
  out.u64(header.epoch);
  writeKind(out, header.kind);
  out.u8(0);
  out.u16(header.boxes.length);
  out.u32(header.tokenBegin);
  out.u32(header.tokenEnd);
  out.u32(BLOCK_BYTES);
  out.u64(header.payloadBytes);
  assert(out.length === FIXED_BYTES, 'the fixed part has its documented size');
  writeBoxes(out, header.boxes);
  out.zeros(size - 4 - out.length);
  out.u32(crc32(out.finish()));
  return out.finish();
}

/** Size of the header, from the first bytes of a file. */
export function peekHeaderBytes(what: string, start: Uint8Array): number {
  const input = new ByteReader(what, start);
  input.magic(MAGIC);
  input.version(SEGMENT_VERSION);
  const size = input.atMost(input.u32(), HEADER_BYTES_MAX, 'the header');
  if (size === 0 || size % HEADER_ALIGN !== 0) input.fail(`a header of ${size} bytes`);
  return size;
}

/** `bytes` is the whole header; `fileBytes` the size of the file. Throws KV_DAMAGED, KV_UNSUPPORTED. */
export function decodeSegmentHeader(
  what: string,
  bytes: Uint8Array,
  fileBytes: number,
): SegmentHeader {
  const input = new ByteReader(what, bytes);
  const size = peekHeaderBytes(what, bytes);
  if (bytes.length !== size) input.fail(`the header is cut off at ${bytes.length} bytes`);
  input.bytes(16);
  if (crc32(bytes.subarray(0, size - 4)) !== lastU32(bytes)) input.fail('the header is damaged');
  const names = { id: input.hex(16), store: input.hex(16), directory: input.hex(16) };
  const epoch = input.u64();
  const kind = readKind(input);
  input.zeros(1);
  const boxCount = input.u16();
  const tokens = { tokenBegin: input.u32(), tokenEnd: input.u32() };
  if (input.u32() !== BLOCK_BYTES) input.fail('checksum blocks of another size');
  const payloadBytes = input.atMost(input.u64(), PAYLOAD_BYTES_MAX, 'the payload');
  const boxes = readBoxes(input, boxCount);
  input.zeros(size - 4 - input.offset);
  checkTokens(input, kind, tokens);
  if (headerBytes(boxCount) !== size) input.fail('the header has another size than its boxes need');
  const expected = segmentFileBytes(boxCount, payloadBytes);
  if (fileBytes !== expected) input.fail(`${fileBytes} bytes, should be ${expected}`);
  return { ...names, epoch, kind, ...tokens, boxes, payloadBytes };
}

function checkTokens(
  input: ByteReader,
  kind: SegmentKind,
  { tokenBegin, tokenEnd }: { readonly tokenBegin: number; readonly tokenEnd: number },
): void {
  if (tokenBegin > tokenEnd || tokenEnd > 0x7fffffff) input.fail('tokens in the wrong order');
  const paged = kind === 'pool' || kind === 'text';
  if (paged && tokenBegin % PAGE_TOKENS !== 0) input.fail('begins inside a page');
}

/** Checksums of a payload that comes in pieces. */
export class PayloadChecksums {
  private readonly sums: number[] = [];
  private inBlock = 0;
  private sum = 0;
  private total = 0;

  get bytes(): number {
    return this.total;
  }

  push(piece: Uint8Array): void {
    this.total += piece.length;
    let at = 0;
    while (at < piece.length) {
      const end = Math.min(piece.length, at + BLOCK_BYTES - this.inBlock);
      this.sum = crc32(piece.subarray(at, end), this.sum);
      this.inBlock += end - at;
      at = end;
      if (this.inBlock === BLOCK_BYTES) this.close();
    }
  }

  /** The end of the file. */
  trailer(): Uint8Array {
    if (this.inBlock > 0) this.close();
    const out = new ByteWriter();
    for (const sum of this.sums) out.u32(sum);
    out.u32(crc32(out.finish()));
    out.u32(END_MARK);
    return out.finish();
  }

  private close(): void {
    this.sums.push(this.sum);
    this.sum = 0;
    this.inBlock = 0;
  }
}

/** Checksums by block, from the end of the file. */
export function decodeTrailer(what: string, bytes: Uint8Array, payload: number): Uint32Array {
  const input = new ByteReader(what, bytes);
  const count = blockCount(payload);
  if (bytes.length !== 4 * count + TRAILER_BYTES) input.fail('the checksums are cut off');
  const sums = Uint32Array.from({ length: count }, () => input.u32());
  const own = input.u32();
  if (own !== crc32(bytes.subarray(0, 4 * count))) input.fail('the checksums are damaged');
  if (input.u32() !== END_MARK) input.fail('the end mark is missing');
  return sums;
}

/** The whole blocks that a range of the payload touches. */
export function blocksAround(
  payload: number,
  range: { readonly offset: number; readonly bytes: number },
): { readonly first: number; readonly offset: number; readonly bytes: number } {
  assert(range.offset >= 0 && range.offset + range.bytes <= payload, 'a range inside the payload');
  const first = Math.floor(range.offset / BLOCK_BYTES);
  const offset = first * BLOCK_BYTES;
  const end = Math.min(
    payload,
    Math.ceil((range.offset + range.bytes) / BLOCK_BYTES) * BLOCK_BYTES,
  );
  return { first, offset, bytes: end - offset };
}

/** Throws KV_DAMAGED unless `bytes`, whole blocks from block `first` on, have their checksums. */
export function checkBlocks(
  what: string,
  sums: Uint32Array,
  first: number,
  bytes: Uint8Array,
): void {
  for (let at = 0, block = first; at < bytes.length; at += BLOCK_BYTES, block += 1) {
    if (crc32(bytes.subarray(at, at + BLOCK_BYTES)) !== sums[block]) {
      throw damaged(what, `block ${block} (payload offset ${block * BLOCK_BYTES}) is damaged`);
    }
  }
}

/** A whole file, for segments that are held in memory anyway. */
export function encodeSegment(
  header: Omit<SegmentHeader, 'payloadBytes'>,
  payload: Uint8Array,
): Uint8Array {
  const sums = new PayloadChecksums();
  sums.push(payload);
  const start = encodeSegmentHeader({ ...header, payloadBytes: payload.length });
  return Uint8Array.from(Buffer.concat([start, payload, sums.trailer()]));
}

export function decodeSegment(
  what: string,
  file: Uint8Array,
): { readonly header: SegmentHeader; readonly payload: Uint8Array } {
  const start = file.subarray(0, Math.min(file.length, peekHeaderBytes(what, file)));
  const header = decodeSegmentHeader(what, start, file.length);
  const end = start.length + header.payloadBytes;
  const payload = file.subarray(start.length, end);
  const sums = decodeTrailer(what, file.subarray(end), header.payloadBytes);
  checkBlocks(what, sums, 0, payload);
  return { header, payload };
}

function lastU32(bytes: Uint8Array): number {
  return new DataView(bytes.buffer, bytes.byteOffset).getUint32(bytes.length - 4, true);
}
