// Writes the benchmark's second model: a llama of about 1.1 billion random weights (hidden 2,048, FFN 8,192,
// 16 layers, 32 query and 8 KV heads, tied output), all matrices in one type, with another file's tokenizer, so
// that every engine loads it. The same seed gives the same bytes. Memory stays bounded: a piece of a tensor at a time.
//   node make-large-model.mjs TYPE OUT.gguf --tokenizer FILE.gguf [--seed 1] [--layers 16]
// TYPE: Q4_K Q6_K Q2_K IQ2_XXS MXFP4 Q8_0 Q4_0 Q4_1. Codes are random bytes, which are valid in all of these; scales
// are set so that weights have a mean of nought and a deviation of about 0.02, and logits stay finite.
import { createCipheriv, createHash } from 'node:crypto';
import { closeSync, fsyncSync, openSync, renameSync, writeSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { f32ToF16Bits, KV, readGguf, TYPES } from '../vectors/oracle/gguf-writer.mjs';

const HIDDEN = 2048;
const FFN = 8192;
const LAYERS = 16;
const HEADS = 32;
const KV_HEADS = 8;
const CONTEXT = 8192;
const DEVIATION = 0.02;
const ALIGNMENT = 32;
const PIECE_BLOCKS = 1 << 14;

const half = (block, at, value) => block.writeUInt16LE(f32ToF16Bits(value), at);

/** Makes one block of random bytes a block of weights with mean 0 and deviation DEVIATION. */
const SETTLE = {
  Q8_0: (block) => half(block, 0, DEVIATION / 74),
  Q4_0: (block) => half(block, 0, DEVIATION / 4.6),
  Q4_1: (block) => {
    half(block, 0, DEVIATION / 4.6);
    half(block, 2, (-7.5 * DEVIATION) / 4.6);
  },
  // Two bits times a 4-bit scale, minus a 4-bit minimum: equal scales and minima centre the codes 0..3.
  Q2_K: (block) => {
    for (let i = 0; i < 16; i++) block[i] = (block[i] & 15) * 17;
    half(block, 80, DEVIATION / 9.8);
    half(block, 82, (1.5 * DEVIATION) / 9.8);
  },
  // Six-bit scales equal to the six-bit minima; of the four last pairs the low nibbles are the scale's.
  Q4_K: (block) => {
    half(block, 0, DEVIATION / 168);
    half(block, 2, (7.5 * DEVIATION) / 168);
    for (let i = 0; i < 4; i++) {
      block[8 + i] = block[4 + i];
      block[12 + i] = (block[12 + i] & 15) * 17;
    }
  },
  Q6_K: (block) => half(block, 208, DEVIATION / 1367),
  IQ2_XXS: (block) => half(block, 0, DEVIATION / 50),
  MXFP4: (block) => {
    block[0] = 119 + (block[0] & 1);
  },
};

const blockBytes = (type) => TYPES[type].bytes;

/** An endless stream of bytes that the seed and the name determine: AES in counter mode over zeros. */
function randomBytes(seed, name) {
  const key = createHash('sha256').update(`${seed} ${name}`).digest();
  const cipher = createCipheriv('aes-256-ctr', key, Buffer.alloc(16));
  return (length) => cipher.update(Buffer.alloc(length));
}

function* matrixPieces({ seed, name, type, elements }) {
  const next = randomBytes(seed, name);
  const size = blockBytes(type);
  for (let left = elements / TYPES[type].block; left > 0; left -= PIECE_BLOCKS) {
    const piece = next(Math.min(left, PIECE_BLOCKS) * size);
    for (let at = 0; at < piece.length; at += size) SETTLE[type](piece.subarray(at, at + size));
    yield piece;
  }
}

const ones = (count) => Buffer.from(new Float32Array(count).fill(1).buffer);

function tensorList(type, vocab, layers) {
  const matrix = (name, columns, rows) => ({ name, shape: [columns, rows], type });
  const norm = (name) => ({ name, shape: [HIDDEN], type: 'F32' });
  const kv = (HIDDEN / HEADS) * KV_HEADS;
  return [
    matrix('token_embd.weight', HIDDEN, vocab),
    ...Array.from({ length: layers }, (_, i) => `blk.${i}.`).flatMap((block) => [
      norm(`${block}attn_norm.weight`),
      matrix(`${block}attn_q.weight`, HIDDEN, HIDDEN),
      matrix(`${block}attn_k.weight`, HIDDEN, kv),
      matrix(`${block}attn_v.weight`, HIDDEN, kv),
      matrix(`${block}attn_output.weight`, HIDDEN, HIDDEN),
      norm(`${block}ffn_norm.weight`),
      matrix(`${block}ffn_gate.weight`, HIDDEN, FFN),
      matrix(`${block}ffn_up.weight`, HIDDEN, FFN),
      matrix(`${block}ffn_down.weight`, FFN, HIDDEN),
    ]),
    norm('output_norm.weight'),
  ];
}

function metadata(tokenizer, type, layers) {
  const vocab = tokenizer.get('tokenizer.ggml.tokens').value.length;
  const u32 = (value) => ({ type: KV.U32, value });
  const f32 = (value) => ({ type: KV.F32, value });
  return new Map([
    ['general.architecture', { type: KV.STR, value: 'llama' }],
    ['general.name', { type: KV.STR, value: `random llama, ${layers} layers, ${type}` }],
    ['general.alignment', u32(ALIGNMENT)],
    ['llama.block_count', u32(layers)],
    ['llama.context_length', u32(CONTEXT)],
    ['llama.embedding_length', u32(HIDDEN)],
    ['llama.feed_forward_length', u32(FFN)],
    ['llama.attention.head_count', u32(HEADS)],
    ['llama.attention.head_count_kv', u32(KV_HEADS)],
    ['llama.attention.layer_norm_rms_epsilon', f32(1e-5)],
    ['llama.rope.dimension_count', u32(HIDDEN / HEADS)],
    ['llama.rope.freq_base', f32(10_000)],
    ['llama.vocab_size', u32(vocab)],
    ...[...tokenizer].filter(([key]) => key.startsWith('tokenizer.')),
  ]);
}

// ---------------------------------------------------------------- the file

const number = (bytes, write) => (value) => {
  const buffer = Buffer.alloc(bytes);
  buffer[write](value);
  return buffer;
};
const u32 = number(4, 'writeUInt32LE');
const wide = number(8, 'writeBigUInt64LE');
const u64 = (value) => wide(BigInt(value));
const text = (value) => Buffer.concat([u64(Buffer.byteLength(value)), Buffer.from(value)]);
const SCALARS = {
  [KV.U8]: number(1, 'writeUInt8'),
  [KV.I8]: number(1, 'writeInt8'),
  [KV.U16]: number(2, 'writeUInt16LE'),
  [KV.I16]: number(2, 'writeInt16LE'),
  [KV.U32]: u32,
  [KV.I32]: number(4, 'writeInt32LE'),
  [KV.F32]: number(4, 'writeFloatLE'),
  [KV.BOOL]: (value) => Buffer.from([value ? 1 : 0]),
  [KV.STR]: text,
  [KV.U64]: u64,
  [KV.F64]: number(8, 'writeDoubleLE'),
};

function valueBytes({ type, elemType, value }) {
  if (type !== KV.ARR) return [SCALARS[type](value)];
  return [u32(elemType), u64(value.length), ...value.map(SCALARS[elemType])];
}

const elementsOf = (shape) => shape.reduce((a, b) => a * b, 1);
const bytesOf = ({ shape, type }) => (elementsOf(shape) / TYPES[type].block) * blockBytes(type);
const padding = (length) => Buffer.alloc((ALIGNMENT - (length % ALIGNMENT)) % ALIGNMENT);

function header(keys, tensors) {
  const parts = [Buffer.from('GGUF'), u32(3), u64(tensors.length), u64(keys.size)];
  for (const [key, entry] of keys) parts.push(text(key), u32(entry.type), ...valueBytes(entry));
  let offset = 0;
  for (const tensor of tensors) {
    const { name, shape, type } = tensor;
    parts.push(text(name), u32(shape.length), ...shape.map(u64), u32(TYPES[type].id), u64(offset));
    const bytes = bytesOf(tensor);
    offset += bytes + padding(bytes).length;
  }
  const all = Buffer.concat(parts);
  return Buffer.concat([all, padding(all.length)]);
}

function writeAll(file, bytes) {
  for (let at = 0; at < bytes.length; ) at += writeSync(file, bytes, at);
}

/**
 * `tokenizerFrom`: a GGUF file whose tokenizer (and so vocabulary) is copied. The file appears under its name only
 * when it is complete.
 */
export function makeLargeModel({ type, out, tokenizerFrom, seed = 1, layers = LAYERS }) {
  if (!(type in SETTLE))
    throw new Error(`${type} is not among the types made here: ${Object.keys(SETTLE).join(', ')}`);
  const { kv } = readGguf(tokenizerFrom);
  const keys = metadata(kv, type, layers);
  const tensors = tensorList(type, keys.get('llama.vocab_size').value, layers);
  const partial = `${out}.${process.pid}.part`;
  const file = openSync(partial, 'w');
  try {
    writeAll(file, header(keys, tensors));
    for (const tensor of tensors) {
      const { name, shape } = tensor;
      const elements = elementsOf(shape);
      const pieces =
        tensor.type === 'F32' ? [ones(elements)] : matrixPieces({ seed, name, type, elements });
      for (const piece of pieces) writeAll(file, piece);
      writeAll(file, padding(bytesOf(tensor)));
    }
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
  renameSync(partial, out);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      tokenizer: { type: 'string' },
      seed: { type: 'string', default: '1' },
      layers: { type: 'string', default: String(LAYERS) },
    },
  });
  const [type, out] = positionals;
  if (out === undefined || values.tokenizer === undefined)
    throw new Error('usage: make-large-model.mjs TYPE OUT.gguf --tokenizer FILE.gguf');
  makeLargeModel({
    type,
    out,
    tokenizerFrom: values.tokenizer,
    seed: Number(values.seed),
    layers: Number(values.layers),
  });
}
