// Ids -> bytes -> text. A token's bytes do not depend on its neighbours, except that SentencePiece drops
// the one space it put in front of a whole sequence. A streaming decoder holds back at most three
// bytes: the begun, still valid part of one UTF-8 sequence.
import { bytesFromAlphabet } from './byte-alphabet.ts';
import type { DecoderOptions, StreamingDecoder } from './prompt-codec.ts';
import { sequenceLength } from './raw-text.ts';
import { byteOfToken, SPACE_MARK } from './sentence-piece.ts';
import { TokenKind, type Vocabulary } from './vocabulary.ts';

const NOTHING = new Uint8Array(0);
const SPACE = 0x20;
const encoder = new TextEncoder();
/** Bytes that are no UTF-8 become U+FFFD, a byte order mark stays. */
const lenient = new TextDecoder('utf-8', { ignoreBOM: true });

export class Detokenizer {
  private readonly vocabulary: Vocabulary;
  private readonly plain: (Uint8Array | undefined)[] = [];

  constructor(vocabulary: Vocabulary) {
    this.vocabulary = vocabulary;
  }

  /** Bytes of an id in ordinary text; ids outside the vocabulary have none. */
  bytes(id: number): Uint8Array {
    const known = this.plain[id];
    if (known !== undefined) return known;
    const text = this.vocabulary.texts[id];
    if (text === undefined) return NOTHING;
    const bytes = this.decodeToken(text, this.vocabulary.kinds[id] ?? TokenKind.normal);
    this.plain[id] = bytes;
    return bytes;
  }

  /** As bytes(), but control tokens have the bytes of their text. */
  bytesWithSpecials(id: number): Uint8Array {
    return this.isHidden(id) ? encoder.encode(this.vocabulary.texts[id] ?? '') : this.bytes(id);
  }

  decode(ids: readonly number[], options: DecoderOptions): Uint8Array {
    const drop = this.createLeadingSpace(options.continuation ?? false);
    const parts = ids.map((id) => drop(this.bytesOf(id, options)));
    return Buffer.concat(parts);
  }

  createDecoder(options: DecoderOptions): StreamingDecoder {
    const drop = this.createLeadingSpace(options.continuation ?? true);
    let held: Uint8Array = NOTHING;
    return {
      push: (id) => {
        const bytes = drop(this.bytesOf(id, options));
        const all = held.length === 0 ? bytes : Buffer.concat([held, bytes]);
        const complete = completeLength(all);
        held = all.slice(complete);
        return lenient.decode(all.subarray(0, complete));
      },
      flush: () => {
        const text = lenient.decode(held);
        held = NOTHING;
        return text;
      },
      get pendingBytes() {
        return held.length;
      },
    };
  }

  private bytesOf(id: number, options: DecoderOptions): Uint8Array {
    return options.special === true ? this.bytesWithSpecials(id) : this.bytes(id);
  }

  private isHidden(id: number): boolean {
    const kind = this.vocabulary.kinds[id];
    return kind === TokenKind.control || kind === TokenKind.unknown;
  }

  private decodeToken(text: string, kind: number): Uint8Array {
    switch (kind) {
      case TokenKind.control:
      case TokenKind.unknown:
      case TokenKind.unused:
        return NOTHING;
      case TokenKind.userDefined:
        return encoder.encode(text);
      case TokenKind.byte: {
        const byte = byteOfToken(text);
        return byte === null ? encoder.encode(text) : Uint8Array.of(byte);
      }
      default:
        return this.vocabulary.model === 'bpe'
          ? bytesFromAlphabet(text)
          : encoder.encode(text.replaceAll(SPACE_MARK, ' '));
    }
  }

  /** Passes bytes on, without the first space of the sequence where the vocabulary put one there. */
  private createLeadingSpace(continuation: boolean): (bytes: Uint8Array) => Uint8Array {
    let pending =
      this.vocabulary.addSpacePrefix && this.vocabulary.model === 'spm' && !continuation;
    return (bytes) => {
      if (!pending || bytes.length === 0) return bytes;
      pending = false;
      return bytes[0] === SPACE ? bytes.subarray(1) : bytes;
    };
  }
}

/** How many bytes can be decoded now: all but a begun sequence at the end. */
function completeLength(bytes: Uint8Array): number {
  for (let back = 1; back <= 3 && back <= bytes.length; back += 1) {
    const at = bytes.length - back;
    const byte = bytes[at] ?? 0;
    if (byte < 0x80) break;
    if (byte >= 0xc0) return sequenceLength(bytes, at) < 0 ? at : bytes.length;
  }
  return bytes.length;
}
