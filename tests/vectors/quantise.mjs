// Quantises the matrices of a tiny model to the simplest block types (formulas: the GGUF block layouts),
// so that block types meet shapes that the oracle's quantised files lack. Rounding is plain, without any search.
import { f32ToF16Bits } from './oracle/gguf-writer.mjs';

const BLOCK = 32;
/** name -> GGUF type, general.file_type, quantiser of 32 floats -> {bytes, values}. */
const TYPES = { q8_0: ['Q8_0', 7, q8_0], q4_0: ['Q4_0', 2, q4_0], q4_1: ['Q4_1', 3, q4_1] };

export const isBlockType = (type) => type in TYPES;

/** A scale as the file holds it: its bits and their value. */
function half(x) {
  const bits = f32ToF16Bits(x);
  const [sign, exponent, mantissa] = [bits & 0x8000 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  const value = exponent ? (1 + mantissa / 1024) * 2 ** (exponent - 15) : mantissa * 2 ** -24;
  return { bits, value: sign * value };
}

const clamp = (x, low, high) => Math.min(high, Math.max(low, x));
const levels = (x, d, low, high) => [...x].map((v) => (d === 0 ? 0 : clamp(Math.round(v / d), low, high)));

function block(scales, body) {
  const bytes = Buffer.alloc(2 * scales.length + body.length);
  scales.forEach((scale, i) => bytes.writeUInt16LE(scale.bits, 2 * i));
  bytes.set(body, 2 * scales.length);
  return bytes;
}

/** 32 levels of 4 bits: element i in the low half of byte i, element 16 + i in the high half. */
const nibbles = (q) => Uint8Array.from({ length: BLOCK / 2 }, (_, i) => q[i] | (q[i + BLOCK / 2] << 4));

function q8_0(x) {
  const d = half(Math.max(...x.map(Math.abs)) / 127);
  const q = levels(x, d.value, -127, 127);
  return { bytes: block([d], Int8Array.from(q)), values: q.map((v) => v * d.value) };
}

function q4_0(x) {
  const largest = x.reduce((a, b) => (Math.abs(b) > Math.abs(a) ? b : a), 0);
  const d = half(largest / -8);
  const q = levels(x, d.value, -8, 7);
  return { bytes: block([d], nibbles(q.map((v) => v + 8))), values: q.map((v) => v * d.value) };
}

function q4_1(x) {
  const low = half(Math.min(...x));
  const d = half((Math.max(...x) - Math.min(...x)) / 15);
  const q = levels(x.map((v) => v - low.value), d.value, 0, 15);
  return { bytes: block([d, low], nibbles(q)), values: q.map((v) => v * d.value + low.value) };
}

/** Every matrix of an oracle Model becomes `type`; with `dequantised`, F32 of the same values. */
export function quantise(model, type, dequantised) {
  const [name, fileType, quantiseBlock] = TYPES[type];
  model.name += `.${type}${dequantised ? '.f32' : ''}`;
  if (!dequantised) model.w.setKv('general.file_type', fileType);
  for (const tensor of [...model.w.tensors]) {
    if (tensor.shape.length < 2) continue;
    const floats = new Float32Array(tensor.buf.buffer, tensor.buf.byteOffset, tensor.buf.length / 4);
    const bytes = [];
    const values = new Float32Array(floats.length);
    for (let at = 0; at < floats.length; at += BLOCK) {
      const made = quantiseBlock(floats.subarray(at, at + BLOCK));
      bytes.push(made.bytes);
      values.set(made.values, at);
    }
    if (dequantised) model.w.retype(tensor, 'F32', values);
    else model.w.retype(tensor, name, Buffer.concat(bytes));
  }
  return model;
}
