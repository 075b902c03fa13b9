// Key bytes: the spelling of a token sequence by which prefixes are compared. Text stands as its bytes,
// a control token as 0xFF and its id in LEB128, media as 0xFE and a 32-byte digest. Neither lead byte
// occurs in UTF-8, so text can never spell a control token; a raw 0xFE or 0xFF that was sampled is
// escaped as 0xFF with the overlong LEB128 of 0 or 1, which no id is written as.
// Invariants: different sequences of (text, control, media) have different key bytes; a key stream's
// `ends` rise strictly except after tokens that stand for no bytes.
import { assert } from '../../base/assert.ts';

export const CONTROL_LEAD = 0xff;
export const MEDIA_LEAD = 0xfe;
export const MEDIA_DIGEST_BYTES = 32;
/** Ids are below 2^31 everywhere (a vocabulary of 2^31 entries has no file format). */
export const CONTROL_ID_MAX = 0x7fffffff;

/** What one token stands for. */
export type KeyPiece =
  | { readonly kind: 'text'; readonly bytes: Uint8Array }
  | { readonly kind: 'control'; readonly id: number }
  | { readonly kind: 'media'; readonly digest: Uint8Array };

/** Key bytes of a token sequence with the place of every token boundary. */
export interface KeyStream {
  readonly bytes: Uint8Array;
  /** Offset behind token i. */
  readonly ends: Uint32Array;
  /** 1 where no UTF-8 sequence is open behind token i. */
  readonly whole: Uint8Array;
  /** 1 where token i is a control token or media. */
  readonly control: Uint8Array;
}

/** Grows key bytes token by token. Owner: whoever holds the session. */
export class KeyWriter {
  private buffer = new Uint8Array(1024);
  private size = 0;
  /** Continuation bytes that the last UTF-8 lead still wants. */
  private open = 0;

  get length(): number {
    return this.size;
  }

  /** False inside a UTF-8 sequence. */
  get isWhole(): boolean {
    return this.open === 0;
  }

  /** A view, valid until the next append. */
  get bytes(): Uint8Array {
    return this.buffer.subarray(0, this.size);
  }

  append(piece: KeyPiece): void {
    if (piece.kind === 'text') this.text(piece.bytes);
    else if (piece.kind === 'control') this.control(piece.id);
    else this.media(piece.digest);
  }

  text(bytes: Uint8Array): void {
    this.reserve(bytes.length * 3);
    for (const byte of bytes) {
      this.open = openAfter(this.open, byte);
      if (byte < MEDIA_LEAD) this.buffer[this.size++] = byte;
      else this.escape(byte);
    }
  }

  control(id: number): void {
    assert(Number.isInteger(id) && id >= 0 && id <= CONTROL_ID_MAX, 'a control id fits 31 bits');
    this.reserve(6);
    this.open = 0;
    this.buffer[this.size++] = CONTROL_LEAD;
    let rest = id;
    while (rest >= 0x80) {
      this.buffer[this.size++] = (rest & 0x7f) | 0x80;
      rest >>>= 7;
    }
    this.buffer[this.size++] = rest;
  }

  media(digest: Uint8Array): void {
    assert(digest.length === MEDIA_DIGEST_BYTES, 'a media digest has 32 bytes');
    this.reserve(1 + MEDIA_DIGEST_BYTES);
    this.open = 0;
    this.buffer[this.size++] = MEDIA_LEAD;
    this.buffer.set(digest, this.size);
    this.size += MEDIA_DIGEST_BYTES;
  }

  private escape(byte: number): void {
    this.buffer[this.size++] = CONTROL_LEAD;
    this.buffer[this.size++] = 0x80 | (byte - MEDIA_LEAD);
    this.buffer[this.size++] = 0;
  }

  private reserve(more: number): void {
    const needed = this.size + more;
    if (needed <= this.buffer.length) return;
    const grown = new Uint8Array(Math.max(needed, this.buffer.length * 2));
    grown.set(this.bytes);
    this.buffer = grown;
  }
}

/** Key bytes of ids, given what each stands for. */
export function keyStreamOf(pieces: readonly KeyPiece[]): KeyStream {
  const writer = new KeyWriter();
  const ends = new Uint32Array(pieces.length);
  const whole = new Uint8Array(pieces.length);
  const control = new Uint8Array(pieces.length);
  pieces.forEach((piece, index) => {
    writer.append(piece);
    ends[index] = writer.length;
    whole[index] = writer.isWhole ? 1 : 0;
    control[index] = piece.kind === 'text' ? 0 : 1;
  });
  return { bytes: writer.bytes.slice(), ends, whole, control };
}

/** Reads key bytes back, neighbouring text joined; null where they are no key bytes. */
export function readKeyBytes(bytes: Uint8Array): KeyPiece[] | null {
  const pieces: KeyPiece[] = [];
  let text: number[] = [];
  const flush = () => {
    if (text.length > 0) pieces.push({ kind: 'text', bytes: Uint8Array.from(text) });
    text = [];
  };
  let at = 0;
  while (at < bytes.length) {
    const byte = bytes[at] ?? 0;
    if (byte < MEDIA_LEAD) {
      text.push(byte);
      at += 1;
      continue;
    }
    const marked = byte === MEDIA_LEAD ? readMedia(bytes, at) : readControl(bytes, at);
    if (marked === null) return null;
    if (marked.raw !== null) text.push(marked.raw);
    else {
      flush();
      pieces.push(marked.piece);
    }
    at = marked.end;
  }
  flush();
  return pieces;
}

type Marked = { readonly end: number } & (
  | { readonly raw: number }
  | { readonly raw: null; readonly piece: KeyPiece }
);

function readMedia(bytes: Uint8Array, at: number): Marked | null {
  const end = at + 1 + MEDIA_DIGEST_BYTES;
  if (end > bytes.length) return null;
  return { end, raw: null, piece: { kind: 'media', digest: bytes.slice(at + 1, end) } };
}

function readControl(bytes: Uint8Array, at: number): Marked | null {
  let id = 0;
  for (let k = 0; k < 5; k += 1) {
    const byte = bytes[at + 1 + k];
    if (byte === undefined) return null;
    id += (byte & 0x7f) * 2 ** (7 * k);
    if ((byte & 0x80) !== 0) continue;
    const end = at + 2 + k;
    if (byte !== 0 || k === 0) {
      return id > CONTROL_ID_MAX ? null : { end, raw: null, piece: { kind: 'control', id } };
    }
    return k === 1 && id <= 1 ? { end, raw: MEDIA_LEAD + id } : null;
  }
  return null;
}

/** How many continuation bytes are wanted after `byte`, when `open` were wanted before it. */
function openAfter(open: number, byte: number): number {
  if (open > 0 && byte >= 0x80 && byte < 0xc0) return open - 1;
  if (byte >= 0xc2 && byte < 0xe0) return 1;
  if (byte >= 0xe0 && byte < 0xf0) return 2;
  return byte >= 0xf0 && byte < 0xf5 ? 3 : 0;
}
