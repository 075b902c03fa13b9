// Seeds and bytes made of text, hashed as the store does it.
import { sha256 } from '../../../src/kvstore/format/hashing.ts';

export const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text);
export const seedOf = (scope: string): Uint8Array => sha256(bytesOf(scope), new Uint8Array(0));
