// Heartbeat datagrams: what a rank's executor is doing, every 100 ms, apart from control and data plane.
//
//   offset  0 u32 "CXHB" (beat) or "CXHA" (answer)   4 u32 rank       8 u64 counter, only grows
//          16 u64 epoch   24 u64 step   32 u32 item   36 u32 busy   40 32 bytes HMAC-SHA-256 of 0..40
//
// The key belongs to one control connection (proof.ts), so a datagram of an earlier one proves nothing.
// A datagram that does not verify decodes to null: strangers are dropped in silence.
import { createHmac, timingSafeEqual } from 'node:crypto';

const BEAT_MAGIC = 0x42485843; // "CXHB"
const ANSWER_MAGIC = 0x41485843; // "CXHA"
const BODY_BYTES = 40;
const MAC_BYTES = 32;
const HEARTBEAT_BYTES = BODY_BYTES + MAC_BYTES;
export const HEARTBEAT_INTERVAL_MS = 100;

export interface Heartbeat {
  readonly kind: 'beat' | 'answer';
  readonly rank: number;
  readonly counter: number;
  readonly epoch: number;
  readonly step: number;
  readonly item: number;
  readonly busy: boolean;
}

export function encodeHeartbeat(beat: Heartbeat, key: Uint8Array): Buffer {
  const bytes = Buffer.alloc(HEARTBEAT_BYTES);
  bytes.writeUInt32LE(beat.kind === 'beat' ? BEAT_MAGIC : ANSWER_MAGIC, 0);
  bytes.writeUInt32LE(beat.rank, 4);
  bytes.writeBigUInt64LE(BigInt(beat.counter), 8);
  bytes.writeBigUInt64LE(BigInt(beat.epoch), 16);
  bytes.writeBigUInt64LE(BigInt(beat.step), 24);
  bytes.writeUInt32LE(beat.item, 32);
  bytes.writeUInt32LE(beat.busy ? 1 : 0, 36);
  macOf(bytes, key).copy(bytes, BODY_BYTES);
  return bytes;
}

/** The rank that a datagram claims to come from, to find its key; null when it is no heartbeat. */
export function claimedRank(bytes: Uint8Array): number | null {
  if (bytes.length !== HEARTBEAT_BYTES) return null;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const magic = view.getUint32(0, true);
  return magic === BEAT_MAGIC || magic === ANSWER_MAGIC ? view.getUint32(4, true) : null;
}

/** null: not a heartbeat under this key. */
export function decodeHeartbeat(bytes: Uint8Array, key: Uint8Array): Heartbeat | null {
  const rank = claimedRank(bytes);
  if (rank === null) return null;
  if (!timingSafeEqual(macOf(bytes, key), bytes.subarray(BODY_BYTES))) return null;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return {
    kind: view.getUint32(0, true) === BEAT_MAGIC ? 'beat' : 'answer',
    rank,
    counter: Number(view.getBigUint64(8, true)),
    epoch: Number(view.getBigUint64(16, true)),
    step: Number(view.getBigUint64(24, true)),
    item: view.getUint32(32, true),
    busy: view.getUint32(36, true) === 1,
  };
}

function macOf(bytes: Uint8Array, key: Uint8Array): Buffer {
  return createHmac('sha256', key).update(bytes.subarray(0, BODY_BYTES)).digest();
}
