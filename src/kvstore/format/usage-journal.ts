// Hits and last use of units across restarts: an append-only journal beside the manifests, so that no
// committed file is ever rewritten. Losing its end costs accuracy of eviction, nothing else: it is not
// synced, and reading stops at the first damaged record.
import { crc32 } from 'node:zlib';
import { ByteReader, ByteWriter } from './bytes.ts';

export const USAGE_RECORD_BYTES = 36;

export interface UsageRecord {
  readonly name: string;
  readonly hits: number;
  readonly lastUsedMs: number;
}

export function encodeUsage(record: UsageRecord): Uint8Array {
  const out = new ByteWriter();
  out.hex(record.name);
  out.u32(record.hits);
  out.u64(record.lastUsedMs);
  out.u32(crc32(out.finish()));
  return out.finish().slice();
}

/** The last record of each unit. */
export function decodeUsage(bytes: Uint8Array): Map<string, UsageRecord> {
  const found = new Map<string, UsageRecord>();
  for (let at = 0; at + USAGE_RECORD_BYTES <= bytes.length; at += USAGE_RECORD_BYTES) {
    const record = bytes.subarray(at, at + USAGE_RECORD_BYTES);
    const input = new ByteReader('usage journal', record);
    const name = input.hex(20);
    const hits = input.u32();
    const raw = input.bytes(8);
    if (crc32(record.subarray(0, USAGE_RECORD_BYTES - 4)) !== input.u32()) break;
    const lastUsedMs = Number(new DataView(raw.buffer, raw.byteOffset).getBigUint64(0, true));
    found.set(name, { name, hits, lastUsedMs });
  }
  return found;
}
