// ds4's KVC container (version 1, payload ABI 2), read and written: header, key text, payload, trailers.
// Of the payload ("DSV4", versions 1 and 2) the head is understood: geometry, token ids, logits. The rows
// behind it fit DeepSeek V4 only and are carried as bytes; for other models an import yields text and
// ids, whose state is computed once and saved as a unit.
import { createHash } from 'node:crypto';
import { ByteReader, ByteWriter, damaged } from './bytes.ts';

const HEADER_BYTES = 48;
const VERSION = 1;
const ABI = 2;
const QUANTS: readonly number[] = [2, 4, 5, 6, 8];
const TEXT_BYTES_MAX = 64 * 1024 * 1024;
const TOKENS_MAX = 4 * 1024 * 1024;
const VOCAB_MAX = 1 << 20;
const PAYLOAD_MAGIC = 0x34565344;

export const KVC_REASONS = [
  'unknown',
  'cold',
  'continued',
  'evict',
  'shutdown',
  'agent-system',
  'agent-session',
] as const;

export interface KvcFile {
  /** Bits of the routed experts' quantisation. */
  readonly quantBits: number;
  readonly reason: (typeof KVC_REASONS)[number];
  /** bit 0 tool map, 1 responses-visible key, 2 thinking-visible key, 3 session title. */
  readonly flags: number;
  readonly modelId: number;
  readonly tokens: number;
  readonly hits: number;
  readonly context: number;
  /** Unix seconds. */
  readonly created: number;
  readonly lastUsed: number;
  readonly text: Uint8Array;
  readonly payload: Uint8Array;
  /** Tool-id map and title, as they are. */
  readonly trailers: Uint8Array;
}

/** 40 hex digits of SHA-1 of the key text: the name of the file without ".kv". */
export function kvcName(text: Uint8Array): string {
  return createHash('sha1').update(text).digest('hex');
}

export function encodeKvc(file: KvcFile): Uint8Array {
  const out = new ByteWriter();
  out.bytes(Buffer.from('KVC', 'latin1'));
  out.u8(VERSION);
  out.u8(file.quantBits);
  out.u8(KVC_REASONS.indexOf(file.reason));
  out.u8(file.flags);
  out.u8(file.modelId);
  out.u32(file.tokens);
  out.u32(file.hits);
  out.u32(file.context);
  out.u8(ABI);
  out.zeros(3);
  out.u64(file.created);
  out.u64(file.lastUsed);
  out.u64(file.payload.length);
  out.u32(file.text.length);
  out.bytes(file.text);
  out.bytes(file.payload);
  out.bytes(file.trailers);
  return out.finish().slice();
}

/** Throws KV_DAMAGED. Where `name` is given (without ".kv"), the text must hash to it. */
export function decodeKvc(what: string, bytes: Uint8Array, name?: string): KvcFile {
  const input = new ByteReader(what, bytes);
  if (bytes.length < HEADER_BYTES) input.fail('shorter than a header');
  input.magic('KVC');
  if (input.u8() !== VERSION) input.fail('a KVC version that is not known');
  const quantBits = input.u8();
  if (!QUANTS.includes(quantBits)) input.fail(`quantisation ${quantBits} is not known`);
  const reason = KVC_REASONS[input.u8()] ?? 'unknown';
  const [flags, modelId] = [input.u8(), input.u8()];
  const [tokens, hits, context] = [input.u32(), input.u32(), input.u32()];
  if (tokens === 0) input.fail('no tokens');
  if (input.u8() !== ABI) input.fail('a payload ABI that is not known');
  input.bytes(3);
  const [created, lastUsed, payloadBytes] = [input.u64(), input.u64(), input.u64()];
  const textBytes = input.atMost(input.u32(), TEXT_BYTES_MAX, 'the text');
  if (textBytes + payloadBytes > input.left) input.fail('text and payload are cut off');
  const text = input.bytes(textBytes);
  if (name !== undefined && kvcName(text) !== name) input.fail('the text is not that of the name');
  const payload = input.bytes(payloadBytes);
  const trailers = input.bytes(input.left);
  const numbers = { quantBits, flags, modelId, tokens, hits, context, created, lastUsed };
  return { ...numbers, reason, text, payload, trailers };
}

/** The head of a payload, and the rows behind it. */
export interface KvcState {
  readonly version: number;
  readonly context: number;
  readonly prefillChunk: number;
  readonly rawCapacity: number;
  readonly rawWindow: number;
  readonly compressedCapacity: number;
  readonly layers: number;
  readonly headDim: number;
  readonly indexerDim: number;
  readonly rawRows: number;
  readonly ids: Int32Array;
  /** Of the next token: an exact hit needs no prefill. */
  readonly logits: Float32Array;
  readonly rows: Uint8Array;
}

/** null for a stripped session (no payload). Throws KV_DAMAGED. */
export function decodeKvcState(what: string, file: KvcFile): KvcState | null {
  if (file.payload.length === 0) return null;
  const input = new ByteReader(what, file.payload);
  if (input.u32() !== PAYLOAD_MAGIC) input.fail('the payload is of another family');
  const version = input.u32();
  if (version !== 1 && version !== 2) input.fail(`payload version ${version} is not known`);
  const [context, prefillChunk, rawCapacity] = [input.u32(), input.u32(), input.u32()];
  const [rawWindow, compressedCapacity] = [input.u32(), input.u32()];
  const tokens = input.atMost(input.u32(), TOKENS_MAX, 'the number of tokens');
  const [layers, headDim, indexerDim] = [input.u32(), input.u32(), input.u32()];
  const vocab = input.atMost(input.u32(), VOCAB_MAX, 'the vocabulary');
  const rawRows = input.u32();
  if (tokens !== file.tokens) input.fail(`${tokens} tokens, the header says ${file.tokens}`);
  if ((tokens + vocab) * 4 > input.left) input.fail('ids and logits are cut off');
  const ids = Int32Array.from({ length: tokens }, () => input.u32());
  if (ids.some((id) => id < 0 || id >= vocab)) input.fail('an id outside the vocabulary');
  const raw = input.bytes(vocab * 4);
  const view = new DataView(raw.buffer, raw.byteOffset, raw.length);
  const logits = Float32Array.from({ length: vocab }, (_, at) => view.getFloat32(at * 4, true));
  const geometry = { context, prefillChunk, rawCapacity, rawWindow, compressedCapacity };
  const shape = { layers, headDim, indexerDim, rawRows };
  return { version, ...geometry, ...shape, ids, logits, rows: input.bytes(input.left) };
}

export function encodeKvcState(state: KvcState): Uint8Array {
  if (state.version !== 1 && state.version !== 2) throw damaged('payload', 'an unknown version');
  const out = new ByteWriter();
  for (const value of [
    PAYLOAD_MAGIC,
    state.version,
    state.context,
    state.prefillChunk,
    state.rawCapacity,
    state.rawWindow,
    state.compressedCapacity,
    state.ids.length,
    state.layers,
    state.headDim,
    state.indexerDim,
    state.logits.length,
    state.rawRows,
  ]) {
    out.u32(value);
  }
  for (const id of state.ids) out.u32(id);
  const logits = new DataView(new ArrayBuffer(state.logits.length * 4));
  state.logits.forEach((value, at) => {
    logits.setFloat32(at * 4, value, true);
  });
  out.bytes(new Uint8Array(logits.buffer));
  out.bytes(state.rows);
  return out.finish().slice();
}
