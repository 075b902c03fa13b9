// The identity of key bytes: a hash chain over pages of 1 KiB. H0 = SHA-256(scope, compat id),
// Hi = SHA-256(H(i-1), page i). One pass over a prompt gives the identity of every beginning of it that
// ends on a page; the tail behind the last full page is compared byte by byte.
// SHA-256 arrives as a function: cores import nothing.
import { assert } from '../../base/assert.ts';
import { toHex } from './bytes.ts';

export const PAGE_BYTES = 1024;
export const HASH_BYTES = 32;
const UNIT_NAME_DIGITS = 40;

/** SHA-256 of the two parts, one behind the other: 32 bytes of their own. */
export type Sha256 = (first: Uint8Array, second: Uint8Array) => Uint8Array;

/** H0. Both are 32 bytes, so the parts cannot be cut differently. */
export function chainStart(sha256: Sha256, scope: Uint8Array, compat: Uint8Array): Uint8Array {
  assert(scope.length === HASH_BYTES && compat.length === HASH_BYTES, 'seeds have 32 bytes');
  return sha256(scope, compat);
}

/** H1..Hn of the full pages of `bytes`. */
export function pageHashes(sha256: Sha256, start: Uint8Array, bytes: Uint8Array): Uint8Array[] {
  const hashes: Uint8Array[] = [];
  let hash = start;
  for (let at = 0; at + PAGE_BYTES <= bytes.length; at += PAGE_BYTES) {
    hash = sha256(hash, bytes.subarray(at, at + PAGE_BYTES));
    hashes.push(hash);
  }
  return hashes;
}

export function tailOf(bytes: Uint8Array): Uint8Array {
  return bytes.subarray(bytes.length - (bytes.length % PAGE_BYTES));
}

/** Name of the unit with these key bytes: 40 hex digits of SHA-256(last page hash, tail). */
export function unitName(sha256: Sha256, start: Uint8Array, bytes: Uint8Array): string {
  const last = pageHashes(sha256, start, bytes).at(-1) ?? start;
  return toHex(sha256(last, tailOf(bytes))).slice(0, UNIT_NAME_DIGITS);
}

/** 128 bits of a hash as a map key. What they find is compared byte by byte. */
export function hashKey(hash: Uint8Array): string {
  let key = '';
  for (let at = 0; at < 16; at += 2) {
    key += String.fromCharCode(((hash[at] ?? 0) << 8) | (hash[at + 1] ?? 0));
  }
  return key;
}
