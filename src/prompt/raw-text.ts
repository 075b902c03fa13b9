// Text that may hold bytes which are no valid UTF-8. Inside src/prompt such a byte b (128..255) stands
// in a string as the lone surrogate U+DC00 + b; well-formed text contains none, so nothing can be
// mistaken for it, and every byte survives encoding and decoding.

const RAW_BASE = 0xdc00;
const LONE_SURROGATE = /\p{Surrogate}/gu;
const ANY_LONE_SURROGATE = /\p{Surrogate}/u;

const strict = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
const encoder = new TextEncoder();

/** Text from outside: what is no Unicode text (a lone surrogate) becomes U+FFFD. */
export function wellFormed(text: string): string {
  return text.replace(LONE_SURROGATE, '\ufffd');
}

/** Bytes -> text with raw bytes as lone surrogates. */
export function textFromBytes(bytes: Uint8Array): string {
  try {
    return strict.decode(bytes);
  } catch {
    return escapeInvalid(bytes);
  }
}

function escapeInvalid(bytes: Uint8Array): string {
  let text = '';
  let start = 0;
  let at = 0;
  while (at < bytes.length) {
    const length = sequenceLength(bytes, at);
    if (length > 0) {
      at += length;
      continue;
    }
    text += strict.decode(bytes.subarray(start, at));
    text += String.fromCharCode(RAW_BASE + (bytes[at] ?? 0));
    at += 1;
    start = at;
  }
  return text + strict.decode(bytes.subarray(start));
}

/**
 * Length of the valid UTF-8 sequence at `at`: 0 when there is none, minus the bytes present when the
 * input ends inside one (Unicode 15, table 3-7).
 */
export function sequenceLength(bytes: Uint8Array, at: number): number {
  const lead = bytes[at] ?? 0;
  const length = leadLength(lead);
  for (let k = 1; k < length; k += 1) {
    const next = bytes[at + k];
    if (next === undefined) return -k;
    const [low, high] = k === 1 ? secondBytes(lead) : CONTINUATION;
    if (next < low || next > high) return 0;
  }
  return length;
}

function leadLength(lead: number): number {
  if (lead < 0x80) return 1;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  if (lead < 0xe0) return 2;
  return lead < 0xf0 ? 3 : 4;
}

const CONTINUATION = [0x80, 0xbf] as const;

/** Excludes overlong forms, surrogates, and what lies beyond U+10FFFF. */
function secondBytes(lead: number): readonly [low: number, high: number] {
  if (lead === 0xe0) return [0xa0, 0xbf];
  if (lead === 0xed) return [0x80, 0x9f];
  if (lead === 0xf0) return [0x90, 0xbf];
  if (lead === 0xf4) return [0x80, 0x8f];
  return CONTINUATION;
}

/** Raw bytes that `keeps` refuses become U+FFFD. */
export function replaceRawBytes(text: string, keeps: (byte: number) => boolean): string {
  return text.replace(LONE_SURROGATE, (raw) =>
    keeps(raw.charCodeAt(0) - RAW_BASE) ? raw : '\ufffd',
  );
}

/** Inverse of textFromBytes. */
export function bytesFromText(text: string): Uint8Array {
  if (!ANY_LONE_SURROGATE.test(text)) return encoder.encode(text);
  const out = new Uint8Array(text.length * 3);
  let size = 0;
  let start = 0;
  for (const { index } of text.matchAll(LONE_SURROGATE)) {
    size += encoder.encodeInto(text.slice(start, index), out.subarray(size)).written;
    out[size] = text.charCodeAt(index) - RAW_BASE;
    size += 1;
    start = index + 1;
  }
  size += encoder.encodeInto(text.slice(start), out.subarray(size)).written;
  return out.slice(0, size);
}
