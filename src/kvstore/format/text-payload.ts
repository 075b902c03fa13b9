// Payloads of the coordinator's own segments. text: token ids and key bytes of a token range. tail: the
// logits of the next token, so that an exact hit needs no prefill, and the witness: one fixed extra token
// and the logits that follow it, evaluated on a fork when the unit was saved and again after a restore.
import { ByteReader, ByteWriter } from './bytes.ts';

const TOKENS_MAX = 0x7fffffff;
const VOCAB_MAX = 1 << 24;
const WHOLE = 1;
const CONTROL = 2;

/** Ids of tokens [begin, end) and what they stand for. */
export interface TextRange {
  readonly ids: Int32Array;
  /** Key offset behind each token, from the first byte of the range. */
  readonly ends: Uint32Array;
  readonly whole: Uint8Array;
  readonly control: Uint8Array;
  readonly key: Uint8Array;
}

export function encodeText(text: TextRange): Uint8Array {
  const out = new ByteWriter();
  out.u32(text.ids.length);
  out.u32(text.key.length);
  for (const id of text.ids) out.u32(id);
  for (const end of text.ends) out.u32(end);
  text.whole.forEach((whole, index) => {
    out.u8((whole ? WHOLE : 0) | (text.control[index] ? CONTROL : 0));
  });
  out.bytes(text.key);
  return out.finish().slice();
}

export function decodeText(what: string, payload: Uint8Array): TextRange {
  const input = new ByteReader(what, payload);
  const count = input.atMost(input.u32(), TOKENS_MAX, 'the number of ids');
  const keyBytes = input.u32();
  if (count * 9 + keyBytes !== input.left) input.fail('ids and key do not fill the payload');
  const ids = Int32Array.from({ length: count }, () => input.u32());
  let last = 0;
  const ends = Uint32Array.from({ length: count }, () => {
    const end = input.u32();
    if (end < last || end > keyBytes) input.fail('token ends are out of order');
    last = end;
    return end;
  });
  if (last !== keyBytes) input.fail('the key goes on behind the last token');
  const flags = input.bytes(count);
  if (flags.some((flag) => flag > (WHOLE | CONTROL))) input.fail('an unknown flag');
  return {
    ids,
    ends,
    whole: flags.map((flag) => flag & WHOLE),
    control: flags.map((flag) => (flag & CONTROL) >> 1),
    key: input.bytes(keyBytes).slice(),
  };
}

/** The part of a text from token `from` on, as a segment that begins there. */
export function textFrom(text: TextRange, from: number): TextRange {
  const base = from === 0 ? 0 : (text.ends[from - 1] ?? 0);
  return {
    ids: text.ids.slice(from),
    ends: text.ends.slice(from).map((end) => end - base),
    whole: text.whole.slice(from),
    control: text.control.slice(from),
    key: text.key.slice(base),
  };
}

/** A unit's text from its segments, each used up to the begin of the next. */
export function joinText(
  what: string,
  parts: readonly { readonly tokenBegin: number; readonly text: TextRange }[],
  tokens: number,
): TextRange {
  const sorted = [...parts].sort((a, b) => a.tokenBegin - b.tokenBegin);
  const whole = { ids: new Int32Array(tokens), ends: new Uint32Array(tokens) };
  const flags = { whole: new Uint8Array(tokens), control: new Uint8Array(tokens) };
  const keys: Uint8Array[] = [];
  let at = 0;
  let key = 0;
  sorted.forEach(({ tokenBegin, text }, index) => {
    const end = sorted[index + 1]?.tokenBegin ?? tokens;
    const count = end - tokenBegin;
    if (tokenBegin !== at || count < 0 || count > text.ids.length) {
      new ByteReader(what, new Uint8Array(0)).fail(`ids ${at}..${end} are missing`);
    }
    whole.ids.set(text.ids.subarray(0, count), at);
    whole.ends.set(
      text.ends.subarray(0, count).map((offset) => offset + key),
      at,
    );
    flags.whole.set(text.whole.subarray(0, count), at);
    flags.control.set(text.control.subarray(0, count), at);
    const used = count === 0 ? 0 : (text.ends[count - 1] ?? 0);
    keys.push(text.key.subarray(0, used));
    key += used;
    at = end;
  });
  return { ...whole, ...flags, key: Uint8Array.from(Buffer.concat(keys)) };
}

export interface Tail {
  /** Of the next token; null where none were kept. */
  readonly logits: Float32Array | null;
  readonly witness: { readonly token: number; readonly logits: Float32Array } | null;
}

export function encodeTail(tail: Tail): Uint8Array {
  const vocab = tail.logits?.length ?? tail.witness?.logits.length ?? 0;
  const out = new ByteWriter();
  out.u32(vocab);
  out.u32((tail.logits === null ? 0 : 1) | (tail.witness === null ? 0 : 2));
  out.u32(tail.witness?.token ?? 0);
  out.u32(0);
  for (const logits of [tail.logits, tail.witness?.logits ?? null]) {
    if (logits !== null) out.bytes(littleEndian(logits));
  }
  return out.finish().slice();
}

export function decodeTail(what: string, payload: Uint8Array): Tail {
  const input = new ByteReader(what, payload);
  const vocab = input.atMost(input.u32(), VOCAB_MAX, 'the vocabulary');
  const flags = input.u32();
  const token = input.u32();
  input.zeros(4);
  if (flags > 3) input.fail('an unknown flag');
  const count = (flags & 1) + (flags >> 1);
  if (count * vocab * 4 !== input.left) input.fail('the logits do not fill the payload');
  const read = () => fromLittleEndian(input.bytes(vocab * 4));
  const logits = (flags & 1) === 0 ? null : read();
  const witness = (flags & 2) === 0 ? null : { token, logits: read() };
  if (witness === null && token !== 0) input.fail('a witness token without logits');
  return { logits, witness };
}

function littleEndian(values: Float32Array): Uint8Array {
  const view = new DataView(new ArrayBuffer(values.length * 4));
  values.forEach((value, index) => {
    view.setFloat32(index * 4, value, true);
  });
  return new Uint8Array(view.buffer);
}

function fromLittleEndian(bytes: Uint8Array): Float32Array {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  return Float32Array.from({ length: bytes.length / 4 }, (_, at) => view.getFloat32(at * 4, true));
}
