// Where a prefix may be cut. Saving: at any token boundary on whole UTF-8; a common prefix at the last
// boundary at which both id sequences agree. Using: where the tokens behind the cut do not depend on
// the text before it, so that a hit and a miss evaluate the same ids.
import { assert } from '../../base/assert.ts';
import type { KeyPiece, KeyStream } from './key-bytes.ts';

/** Tokens before a cut that are tokenised again together with what follows. */
export const RETOKENISED_TOKENS = 8;

/** The greatest boundary <= tokens behind which no UTF-8 sequence is open. 0 is always one. */
export function wholeBoundary(stream: Pick<KeyStream, 'whole'>, tokens: number): number {
  let at = Math.min(tokens, stream.whole.length);
  while (at > 0 && stream.whole[at - 1] === 0) at -= 1;
  return at;
}

/** The last whole boundary up to which both sequences have the same ids. */
export function commonBoundary(
  a: Pick<KeyStream, 'whole'> & { readonly ids: Int32Array },
  ids: Int32Array,
): number {
  const limit = Math.min(a.ids.length, ids.length);
  let common = 0;
  while (common < limit && a.ids[common] === ids[common]) common += 1;
  return wholeBoundary(a, common);
}

/** Tokens whose key bytes end at or before `offset`. Binary search. */
export function tokensWithin(ends: Uint32Array, offset: number): number {
  let low = 0;
  let high = ends.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((ends[middle] ?? 0) <= offset) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Text between control tokens -> ids, in mid-text mode: no BOS, no dummy prefix, no special tokens. */
export type EncodeMidText = (text: Uint8Array) => readonly number[];

/** What a unit holds at its end, and how the prompt goes on. */
export interface CutSite {
  /** The last stored tokens; at least RETOKENISED_TOKENS where the unit has them. */
  readonly ids: readonly number[];
  readonly pieces: readonly KeyPiece[];
  /** The prompt behind the cut, up to its first control token or media. */
  readonly suffixText: Uint8Array;
}

/**
 * True where the ids behind the cut are those that the whole text would get: the last stored token is
 * a control token, or text ends there (a control token follows directly), or tokenising the last stored
 * tokens together with what follows gives the stored ids again.
 */
export function isUsableCut(site: CutSite, encode: EncodeMidText): boolean {
  assert(site.ids.length === site.pieces.length, 'every stored token says what it stands for');
  const last = site.pieces.at(-1);
  if (last === undefined || last.kind !== 'text') return true;
  let from = site.pieces.length;
  while (from > 0 && site.pieces.length - from < RETOKENISED_TOKENS) {
    if (site.pieces[from - 1]?.kind !== 'text') break;
    from -= 1;
  }
  const stored = site.ids.slice(from);
  const texts = site.pieces.slice(from).flatMap((p) => (p.kind === 'text' ? [p.bytes] : []));
  const again = encode(joined([...texts, site.suffixText]));
  if (again.length < stored.length) return false;
  return stored.every((id, index) => again[index] === id);
}

function joined(parts: readonly Uint8Array[]): Uint8Array {
  const out = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}
