// Where a prefix may be cut. Saving: at any token boundary on whole UTF-8; a common prefix at the last
// boundary at which both id sequences agree. Using: where the tokens behind the cut do not depend on
// the text before it, so that a hit and a miss evaluate the same ids.
import { assert } from '../../base/assert.ts';
import type { KeyPiece, KeyStream } from './key-bytes.ts';

/** At least so many tokens before a cut are tokenised again together with what follows. */
export const RETOKENISED_TOKENS = 8;
/** So many stored tokens are enough for a caller to hand in: text without a seam for longer is refused. */
export const CUT_WINDOW_TOKENS = 512;

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
  /** The last stored tokens, up to CUT_WINDOW_TOKENS or the beginning of the unit. */
  readonly ids: readonly number[];
  readonly pieces: readonly KeyPiece[];
  /** Nothing is stored before these tokens. */
  readonly fromBeginning: boolean;
  /** The prompt behind the cut, up to its first control token or media. */
  readonly suffixText: Uint8Array;
}

/**
 * The ids of `suffixText` behind the cut, as the whole text would have them; null where that cannot be
 * known, so that a shorter unit is to be tried. At a control token on either side it is known by itself.
 * In text, the last stored tokens are tokenised again with what follows and must come out the same. Eight
 * alone would not do: a run of digits is cut in threes from its start, wherever that was. So the window goes
 * back to where tokenisers begin afresh whatever came before: a control token, the beginning, or a seam
 * between words.
 */
export function idsBehindCut(site: CutSite, encode: EncodeMidText): readonly number[] | null {
  assert(site.ids.length === site.pieces.length, 'every stored token says what it stands for');
  if (site.suffixText.length === 0) return [];
  const texts = textBehindControl(site.pieces);
  const from = windowStart(texts, site.fromBeginning || texts.length < site.pieces.length);
  if (from === null) return null;
  const stored = site.ids.slice(site.ids.length - texts.length + from);
  const again = encode(joined([...texts.slice(from), site.suffixText]));
  if (again.length < stored.length) return null;
  return stored.every((id, index) => again[index] === id) ? again.slice(stored.length) : null;
}

/** Bytes of the tokens behind the last control token. */
function textBehindControl(pieces: readonly KeyPiece[]): Uint8Array[] {
  const texts: Uint8Array[] = [];
  for (const piece of pieces) {
    if (piece.kind === 'text') texts.push(piece.bytes);
    else texts.length = 0;
  }
  return texts;
}

function windowStart(texts: readonly Uint8Array[], startIsSeam: boolean): number | null {
  for (let from = texts.length - RETOKENISED_TOKENS; from > 0; from -= 1) {
    if (isSeam(texts[from - 1], texts[from])) return from;
  }
  return startIsSeam ? 0 : null;
}

/** A letter before, a space and a letter behind: every pre-tokeniser ends a word there. */
function isSeam(before: Uint8Array | undefined, behind: Uint8Array | undefined): boolean {
  return isLetter(before?.at(-1)) && behind?.[0] === 0x20 && isLetter(behind[1]);
}

function isLetter(byte: number | undefined): boolean {
  if (byte === undefined) return false;
  const small = byte | 0x20;
  return small >= 0x61 && small <= 0x7a;
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
