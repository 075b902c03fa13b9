// Byte-level BPE: words of the pre-tokenizer are cut into bytes and merged by rank.
//
// A *piece* is a text over the byte alphabet that is a token or that a merge names. Pieces below the
// vocabulary's size are the token ids themselves, so a merged symbol usually is its own token. Guarded
// tokens (vocabulary.ts) and unused ones are no pieces: text never becomes them here.
// Owns a bounded cache of words.
import { CoxswainError } from '../base/errors.ts';
import { alphabetFromBytes, BYTE_CHARACTERS } from './byte-alphabet.ts';
import { MERGE_RANKS_MAX, MergeQueue } from './merge-queue.ts';
import { PairTable } from './pair-table.ts';
import { createPreTokenizer, type PreTokenizer } from './pre-tokenizers.ts';
import { bytesFromText } from './raw-text.ts';
import { isGuarded, TokenKind, type Vocabulary } from './vocabulary.ts';

const CACHE_WORDS_MAX = 65_536;
const CACHE_WORD_UNITS_MAX = 40;

export class ByteLevelBpe {
  readonly preTokenizer: PreTokenizer;
  private readonly pieces: Map<string, number>;
  private readonly tokens: number;
  private readonly bytePieces: Int32Array;
  private readonly pairs: PairTable;
  private readonly queue = new MergeQueue();
  private readonly cache = new Map<string, Int32Array>();
  private readonly ends: number[] = [];
  // Symbols of the word in work: piece, and neighbours by position; -1 ends the list.
  private piece = new Int32Array(256);
  private next = new Int32Array(256);
  private previous = new Int32Array(256);

  constructor(vocabulary: Vocabulary) {
    this.preTokenizer = createPreTokenizer(vocabulary.pre);
    this.tokens = vocabulary.texts.length;
    this.pieces = tokenPieces(vocabulary);
    let extra = this.tokens;
    const pieceOf = (text: string): number => {
      const known = this.pieces.get(text);
      if (known !== undefined) return known;
      this.pieces.set(text, extra);
      extra += 1;
      return extra - 1;
    };
    this.bytePieces = Int32Array.from(BYTE_CHARACTERS, pieceOf);
    this.pairs = readMerges(vocabulary.merges, pieceOf);
  }

  /** Appends the ids of plain text. */
  encode(text: string, ids: number[]): void {
    const ends = this.ends;
    ends.length = 0;
    this.preTokenizer.split(text, ends);
    let start = 0;
    for (const end of ends) {
      for (const id of this.word(text.slice(start, end))) ids.push(id);
      start = end;
    }
    if (ends.length > 65_536) ends.length = 0;
  }

  /** Whether the vocabulary can express this byte at all. */
  hasByte(byte: number): boolean {
    return (this.bytePieces[byte] ?? this.tokens) < this.tokens;
  }

  private word(word: string): Int32Array {
    const known = this.cache.get(word);
    if (known !== undefined) return known;
    const ids = this.merge(bytesFromText(word));
    if (word.length <= CACHE_WORD_UNITS_MAX) {
      if (this.cache.size >= CACHE_WORDS_MAX) this.cache.clear();
      // A copy: a slice would keep the whole prompt alive.
      this.cache.set(Buffer.from(word, 'utf16le').toString('utf16le'), ids);
    }
    return ids;
  }

  private merge(bytes: Uint8Array): Int32Array {
    if (this.preTokenizer.ignoreMerges) {
      const whole = this.pieces.get(alphabetFromBytes(bytes));
      if (whole !== undefined && whole < this.tokens) return Int32Array.of(whole);
    }
    this.start(bytes);
    const { queue, piece, next } = this;
    for (let key = queue.pop(); key >= 0; key = queue.pop()) {
      const left = MergeQueue.leftOf(key);
      const right = next[left] ?? -1;
      const pair = right < 0 ? -1 : this.pairs.find(piece[left] ?? -1, piece[right] ?? -1);
      if (pair !== MergeQueue.rankOf(key)) continue;
      this.join(left, right, this.pairs.joined(pair));
    }
    return this.collect(bytes);
  }

  private start(bytes: Uint8Array): void {
    const size = bytes.length;
    if (this.piece.length < size || this.piece.length > 4 * size + 65_536) {
      this.piece = new Int32Array(Math.max(size, 256));
      this.next = new Int32Array(Math.max(size, 256));
      this.previous = new Int32Array(Math.max(size, 256));
    }
    for (let at = 0; at < size; at += 1) {
      this.piece[at] = this.bytePieces[bytes[at] ?? 0] ?? -1;
      this.next[at] = at + 1 < size ? at + 1 : -1;
      this.previous[at] = at - 1;
    }
    for (let at = 0; at + 1 < size; at += 1) this.offer(at, at + 1);
  }

  private offer(left: number, right: number): void {
    const rank = this.pairs.find(this.piece[left] ?? -1, this.piece[right] ?? -1);
    if (rank >= 0) this.queue.push(rank, left);
  }

  private join(left: number, right: number, joined: number): void {
    const { piece, next, previous } = this;
    const after = next[right] ?? -1;
    piece[left] = joined;
    // A dead symbol pairs with nothing, so its candidates in the queue are stale.
    piece[right] = -1;
    next[left] = after;
    next[right] = -1;
    if (after >= 0) {
      previous[after] = left;
      this.offer(left, after);
    }
    const before = previous[left] ?? -1;
    if (before >= 0) this.offer(before, left);
  }

  /** Ids of the symbols that are left. */
  private collect(bytes: Uint8Array): Int32Array {
    const ids: number[] = [];
    for (let at = 0; at >= 0 && at < bytes.length; ) {
      const piece = this.piece[at] ?? -1;
      const after = this.next[at] ?? -1;
      if (piece < this.tokens) ids.push(piece);
      else this.fallApart(bytes.subarray(at, after < 0 ? bytes.length : after), ids);
      at = after;
    }
    return Int32Array.from(ids);
  }

  /** A symbol that is no token becomes the tokens of its bytes, as far as there are any. */
  private fallApart(bytes: Uint8Array, ids: number[]): void {
    for (const byte of bytes) {
      const single = this.bytePieces[byte] ?? -1;
      if (single < this.tokens) ids.push(single);
    }
  }
}

function tokenPieces(vocabulary: Vocabulary): Map<string, number> {
  const pieces = new Map<string, number>();
  vocabulary.texts.forEach((text, id) => {
    const kind = vocabulary.kinds[id];
    if (!isGuarded(kind, text) && kind !== TokenKind.unused) pieces.set(text, id);
  });
  return pieces;
}

function readMerges(merges: readonly string[], pieceOf: (text: string) => number): PairTable {
  if (merges.length >= MERGE_RANKS_MAX) {
    throw new CoxswainError(
      'GGUF_INVALID',
      `tokenizer.ggml.merges has ${merges.length} entries, more than ${MERGE_RANKS_MAX - 1}`,
    );
  }
  const table = new PairTable(merges.length);
  merges.forEach((merge, rank) => {
    // The first space that is not the left part itself separates the parts.
    const cut = merge.indexOf(' ', 1);
    if (cut < 0 || cut + 1 === merge.length) {
      throw new CoxswainError('GGUF_INVALID', `tokenizer.ggml.merges[${rank}] is no pair of texts`);
    }
    const left = merge.slice(0, cut);
    const right = merge.slice(cut + 1);
    table.add({ rank, left: pieceOf(left), right: pieceOf(right), joined: pieceOf(left + right) });
  });
  return table;
}
