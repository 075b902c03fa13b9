// SHA-256 and HMAC as the cores take them. One-shot hashing of a joined buffer: a streaming hash object
// a page costs three times as much.
import { createHmac, hash } from 'node:crypto';
import type { HmacSha256 } from '../core/identity.ts';
import type { Sha256 } from '../core/page-chain.ts';

/** A page and the hash before it: the one size that is hashed by the thousand. */
const scratch = Buffer.alloc(32 + 1024);

export const sha256: Sha256 = (first, second) => {
  const size = first.length + second.length;
  const joined = size <= scratch.length ? scratch.subarray(0, size) : Buffer.alloc(size);
  joined.set(first);
  joined.set(second, first.length);
  return new Uint8Array(hash('sha256', joined, 'buffer'));
};

export const hmacSha256: HmacSha256 = (key, message) =>
  new Uint8Array(createHmac('sha256', key).update(message).digest());
