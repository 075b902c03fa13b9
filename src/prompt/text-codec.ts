// Text <-> ids for one vocabulary: cuts out special tokens, hands the plain text between them to the
// vocabulary's tokenizer, adds BOS and EOS as the model wants them.
import { CoxswainError } from '../base/errors.ts';
import { ByteLevelBpe } from './byte-level-bpe.ts';
import type { EncodeOptions, Segment } from './prompt-codec.ts';
import { replaceRawBytes, textFromBytes, wellFormed } from './raw-text.ts';
import { SentencePiece } from './sentence-piece.ts';
import { type Admission, SpecialTokens } from './special-tokens.ts';
import { isGuarded, TokenKind, type Vocabulary } from './vocabulary.ts';

/** Above every context in use, below what strings and arrays hold. */
const TEXT_UNITS_MAX = 128 * 1024 * 1024;

export class TextCodec {
  readonly addBos: boolean;
  readonly addEos: boolean;
  readonly specials: SpecialTokens;
  /** No token stands for more characters than this. */
  readonly tokenUnitsMax: number;
  private readonly vocabulary: Vocabulary;
  private readonly tokenizer: ByteLevelBpe | SentencePiece;

  constructor(vocabulary: Vocabulary) {
    this.vocabulary = vocabulary;
    this.specials = new SpecialTokens(vocabulary);
    this.tokenizer =
      vocabulary.model === 'bpe' ? new ByteLevelBpe(vocabulary) : new SentencePiece(vocabulary);
    this.tokenUnitsMax = vocabulary.texts.reduce((most, text) => Math.max(most, text.length), 1);
    const bosDefault =
      this.tokenizer instanceof ByteLevelBpe ? this.tokenizer.preTokenizer.addBosDefault : true;
    this.addBos = (vocabulary.addBos ?? bosDefault) && vocabulary.bos !== null;
    this.addEos = (vocabulary.addEos ?? false) && vocabulary.eos !== null;
  }

  encode(input: string | Uint8Array | readonly Segment[], options: EncodeOptions): number[] {
    const isPlain = typeof input === 'string' || input instanceof Uint8Array;
    return isPlain ? this.encodePlain(input, options) : this.encodeSegments(input, options);
  }

  private encodePlain(input: string | Uint8Array, options: EncodeOptions): number[] {
    checkLength(input.length);
    const text = typeof input === 'string' ? wellFormed(input) : this.expressible(input);
    const { kinds, bos, eos } = this.vocabulary;
    const admit: Admission =
      options.parseSpecial === true ? () => true : (id) => kinds[id] === TokenKind.userDefined;
    const ids: number[] = [];
    const addSpecial = options.addSpecial === true;
    if (addSpecial && this.addBos && bos !== null) ids.push(bos);
    this.encodeText(text, admit, ids);
    if (addSpecial && this.addEos && eos !== null) ids.push(eos);
    return ids;
  }

  /** Bytes outside UTF-8 that the vocabulary lacks (many lack 0xFF) become U+FFFD, not nothing. */
  private expressible(bytes: Uint8Array): string {
    return replaceRawBytes(textFromBytes(bytes), (byte) => this.tokenizer.hasByte(byte));
  }

  private encodeSegments(segments: readonly Segment[], options: EncodeOptions): number[] {
    let length = 0;
    for (const segment of segments) length += segment.text.length;
    checkLength(length);
    const text = wellFormed(segments.map((segment) => segment.text).join(''));
    const ids: number[] = [];
    this.encodeText(text, this.admitTrusted(segments), ids);
    const { bos } = this.vocabulary;
    if (options.addSpecial === true && this.addBos && bos !== null && ids[0] !== bos) {
      ids.unshift(bos);
    }
    return ids;
  }

  /** Guarded tokens only where every unit of them is trusted. */
  private admitTrusted(segments: readonly Segment[]): Admission {
    const { kinds, texts } = this.vocabulary;
    const starts: number[] = [];
    const ends: number[] = [];
    let at = 0;
    for (const { text, trusted } of segments) {
      if (trusted && ends.at(-1) === at) ends[ends.length - 1] = at + text.length;
      else if (trusted) {
        starts.push(at);
        ends.push(at + text.length);
      }
      at += text.length;
    }
    return (id, start, end) => {
      if (!isGuarded(kinds[id], texts[id] ?? '')) return true;
      const range = lastNotAbove(starts, start);
      return range >= 0 && end <= (ends[range] ?? 0);
    };
  }

  private encodeText(text: string, admit: Admission, ids: number[]): void {
    const { tokenizer, vocabulary } = this;
    let isFresh = true;
    for (const { start, end, id } of this.specials.partition(text, admit)) {
      if (id !== null) {
        ids.push(id);
        isFresh = true;
        continue;
      }
      const prefix =
        isFresh && vocabulary.addSpacePrefix && tokenizer instanceof SentencePiece ? ' ' : '';
      tokenizer.encode(prefix + text.slice(start, end), ids);
      isFresh = false;
    }
  }
}

function checkLength(units: number): void {
  if (units <= TEXT_UNITS_MAX) return;
  throw new CoxswainError(
    'CONTEXT_EXCEEDED',
    `the text has ${units} characters, more than ${TEXT_UNITS_MAX}`,
  );
}

/** Index of the last value <= limit, -1 when there is none; values ascend. */
function lastNotAbove(values: readonly number[], limit: number): number {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((values[middle] ?? 0) <= limit) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
