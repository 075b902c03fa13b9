// SentencePiece (BPE kind), as GGUF's `llama` tokenizer has it: a space is U+2581, symbols start as
// characters, and the adjacent pair whose text is the token of the highest score is merged, leftmost
// first among equals. A character that is no token becomes byte tokens.
//
// Only normal and user-defined tokens come out of merging: control, unknown, byte and unused ones are
// never spelled by text. A U+2581 in the text itself is not told from a space. Where no token has U+2581 behind another character, a merge cannot reach
// across such a place, so text is cut there into words and words are cached.

import { CoxswainError } from '../base/errors.ts';
import { MERGE_RANKS_MAX, MergeQueue } from './merge-queue.ts';
import { bytesFromText } from './raw-text.ts';
import { isGuarded, TokenKind, type Vocabulary } from './vocabulary.ts';

export const SPACE_MARK = '\u2581';

const CACHE_WORDS_MAX = 65_536;
const CACHE_WORD_UNITS_MAX = 40;
const WORDS = /\u2581*[^\u2581]+|\u2581+/gu;
const CROSSES_WORDS = /[^\u2581]\u2581/u;
const BYTE_TOKEN = /^<0x([0-9A-F]{2})>$/u;

/** The byte that a byte token `<0xXX>` stands for. */
export function byteOfToken(text: string): number | null {
  const hex = BYTE_TOKEN.exec(text)?.[1];
  return hex === undefined ? null : Number.parseInt(hex, 16);
}

export class SentencePiece {
  private readonly ids = new Map<string, number>();
  /** Token id -> position of its score among all scores, highest first. */
  private readonly ranks: Int32Array;
  private readonly byteIds = new Int32Array(256).fill(-1);
  private readonly unknown: number | null;
  private readonly unitsMax: number;
  private readonly cutsWords: boolean;
  private readonly queue = new MergeQueue();
  private readonly cache = new Map<string, readonly number[]>();
  // Symbols of the text in work: where each begins, ends, and its neighbours.
  private end = new Int32Array(256);
  private next = new Int32Array(256);
  private previous = new Int32Array(256);

  constructor(vocabulary: Vocabulary) {
    this.unknown = vocabulary.unknown;
    this.ranks = rankScores(vocabulary.scores);
    let unitsMax = 0;
    let crosses = false;
    vocabulary.texts.forEach((text, id) => {
      const kind = vocabulary.kinds[id];
      if (kind === TokenKind.byte) {
        const byte = byteOfToken(text);
        if (byte !== null) this.byteIds[byte] = id;
      } else if (!isGuarded(kind, text) && kind !== TokenKind.unused) {
        this.ids.set(text, id);
        unitsMax = Math.max(unitsMax, text.length);
        crosses ||= CROSSES_WORDS.test(text);
      }
    });
    this.unitsMax = unitsMax;
    this.cutsWords = !crosses;
  }

  /** Appends the ids of plain text; a space in front of it is the caller's affair. */
  encode(plain: string, ids: number[]): void {
    const text = plain.replaceAll(' ', SPACE_MARK);
    if (!this.cutsWords) {
      this.merge(text, ids);
      return;
    }
    for (const [word] of text.matchAll(WORDS)) {
      for (const id of this.word(word)) ids.push(id);
    }
  }

  /** Whether the vocabulary can express this byte at all. */
  hasByte(byte: number): boolean {
    return (this.byteIds[byte] ?? -1) >= 0;
  }

  private word(word: string): readonly number[] {
    const known = this.cache.get(word);
    if (known !== undefined) return known;
    const ids: number[] = [];
    this.merge(word, ids);
    if (word.length <= CACHE_WORD_UNITS_MAX) {
      if (this.cache.size >= CACHE_WORDS_MAX) this.cache.clear();
      this.cache.set(Buffer.from(word, 'utf16le').toString('utf16le'), ids);
    }
    return ids;
  }

  private merge(text: string, ids: number[]): void {
    this.start(text);
    const { queue, next, end } = this;
    for (let key = queue.pop(); key >= 0; key = queue.pop()) {
      const left = MergeQueue.leftOf(key);
      const right = next[left] ?? -1;
      // A dead symbol has no neighbour; a grown one makes another text, of another rank.
      if (right < 0 || this.rank(text, left, end[right] ?? 0) !== MergeQueue.rankOf(key)) continue;
      this.join(text, left, right);
    }
    for (let at = 0; at >= 0 && at < text.length; at = next[at] ?? -1) {
      this.emit(text.slice(at, end[at]), ids);
    }
  }

  private start(text: string): void {
    const size = text.length;
    if (this.end.length < size || this.end.length > 4 * size + 65_536) {
      this.end = new Int32Array(Math.max(size, 256));
      this.next = new Int32Array(Math.max(size, 256));
      this.previous = new Int32Array(Math.max(size, 256));
    }
    let before = -1;
    for (let at = 0; at < size; ) {
      const after = at + ((text.codePointAt(at) ?? 0) > 0xffff ? 2 : 1);
      this.end[at] = after;
      this.next[at] = after < size ? after : -1;
      this.previous[at] = before;
      if (before >= 0) this.offer(text, before, after);
      before = at;
      at = after;
    }
  }

  private offer(text: string, left: number, end: number): void {
    const rank = this.rank(text, left, end);
    if (rank >= 0) this.queue.push(rank, left);
  }

  private rank(text: string, start: number, end: number): number {
    if (end - start > this.unitsMax) return -1;
    const id = this.ids.get(text.slice(start, end));
    return id === undefined ? -1 : (this.ranks[id] ?? -1);
  }

  private join(text: string, left: number, right: number): void {
    const { end, next, previous } = this;
    const after = next[right] ?? -1;
    end[left] = end[right] ?? 0;
    next[left] = after;
    next[right] = -1;
    if (after >= 0) {
      previous[after] = left;
      this.offer(text, left, end[after] ?? 0);
    }
    const before = previous[left] ?? -1;
    if (before >= 0) this.offer(text, before, end[left] ?? 0);
  }

  private emit(symbol: string, ids: number[]): void {
    const id = this.ids.get(symbol);
    if (id !== undefined) {
      ids.push(id);
      return;
    }
    for (const byte of bytesFromText(symbol)) {
      const byteId = this.byteIds[byte] ?? -1;
      if (byteId >= 0) ids.push(byteId);
      else if (this.unknown !== null) ids.push(this.unknown);
    }
  }
}

function rankScores(scores: Float64Array): Int32Array {
  const order = [...scores.keys()];
  const score = (id: number) => {
    const value = scores[id] ?? 0;
    return Number.isNaN(value) ? Number.NEGATIVE_INFINITY : value;
  };
  order.sort((a, b) => (score(a) === score(b) ? 0 : score(a) > score(b) ? -1 : 1));
  const ranks = new Int32Array(scores.length);
  let rank = 0;
  order.forEach((id, at) => {
    const before = order[at - 1];
    if (before !== undefined && score(before) !== score(id)) rank += 1;
    ranks[id] = rank;
  });
  if (rank >= MERGE_RANKS_MAX) {
    throw new CoxswainError('GGUF_INVALID', 'tokenizer.ggml.scores has too many distinct scores');
  }
  return ranks;
}
