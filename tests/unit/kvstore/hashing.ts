// SHA-256 and HMAC as the store's cores take them, and keys made of text.
import { createHash, createHmac } from 'node:crypto';
import type { HmacSha256 } from '../../../src/kvstore/core/identity.ts';
import type { Sha256 } from '../../../src/kvstore/core/page-chain.ts';

export const sha256: Sha256 = (first, second) =>
  new Uint8Array(createHash('sha256').update(first).update(second).digest());

export const hmac: HmacSha256 = (key, message) =>
  new Uint8Array(createHmac('sha256', key).update(message).digest());

export const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text);
export const seedOf = (scope: string): Uint8Array => sha256(bytesOf(scope), new Uint8Array(0));
