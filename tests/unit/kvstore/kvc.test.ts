// ds4's container, byte for byte.
import { expect, test } from 'vitest';
import {
  decodeKvc,
  decodeKvcState,
  encodeKvc,
  encodeKvcState,
  type KvcFile,
  kvcName,
} from '../../../src/kvstore/format/kvc.ts';
import { bytesOf } from './hashing.ts';

const state = {
  version: 2,
  context: 4096,
  prefillChunk: 4096,
  rawCapacity: 128,
  rawWindow: 128,
  compressedCapacity: 1024,
  layers: 43,
  headDim: 512,
  indexerDim: 128,
  rawRows: 3,
  ids: Int32Array.of(1, 2, 4),
  logits: Float32Array.of(0, 1, 2, 3, 4),
  rows: Uint8Array.of(9, 8, 7),
};
const file: KvcFile = {
  quantBits: 2,
  reason: 'cold',
  flags: 9,
  modelId: 0,
  tokens: 3,
  hits: 5,
  context: 4096,
  created: 1_700_000_000,
  lastUsed: 1_700_000_100,
  text: bytesOf('Hello'),
  payload: encodeKvcState(state),
  trailers: bytesOf('KTM'),
};

test('the header has the documented bytes', () => {
  const bytes = Buffer.from(encodeKvc(file));
  expect(bytes.subarray(0, 8).toString('hex')).toBe('4b56430102010900');
  expect(bytes.readUInt32LE(8)).toBe(3);
  expect(bytes.readUInt32LE(12)).toBe(5);
  expect(bytes.readUInt32LE(16)).toBe(4096);
  expect([...bytes.subarray(20, 24)]).toEqual([2, 0, 0, 0]);
  expect(bytes.readBigUInt64LE(24)).toBe(1_700_000_000n);
  expect(bytes.readBigUInt64LE(40)).toBe(BigInt(file.payload.length));
  expect(bytes.readUInt32LE(48)).toBe(5);
  expect(bytes.subarray(52, 57).toString()).toBe('Hello');
  expect(Buffer.from(file.payload).subarray(0, 4).toString('latin1')).toBe('DSV4');
  expect(kvcName(file.text)).toBe('f7ff9e8b7bb2e09b70935a5d785e0cc5d9d0abf0');
});

test('container and state read back equal', () => {
  const back = decodeKvc('x.kv', encodeKvc(file), kvcName(file.text));
  expect(back).toEqual(file);
  expect(decodeKvcState('x.kv', back)).toEqual(state);
});

test('a file cut anywhere before its trailers is no entry; longer is fine', () => {
  const bytes = encodeKvc(file);
  for (let size = 0; size < bytes.length - 3; size += 1) {
    expect(() => decodeKvc('x', bytes.subarray(0, size))).toThrow(/x: /);
  }
  expect(decodeKvc('x', bytes.subarray(0, bytes.length - 3)).trailers).toHaveLength(0);
});

test.each([
  ['another text than the name says', () => decodeKvc('x', encodeKvc(file), kvcName(bytesOf('x')))],
  ['no tokens', () => decodeKvc('x', encodeKvc({ ...file, tokens: 0 }))],
  ['an unknown quantisation', () => decodeKvc('x', encodeKvc({ ...file, quantBits: 3 }))],
  ['a token count of its own', () => decodeKvcState('x', { ...file, tokens: 4 })],
  [
    'an id outside the vocabulary',
    () =>
      decodeKvcState('x', {
        ...file,
        payload: encodeKvcState({ ...state, ids: Int32Array.of(1, 2, 5) }),
      }),
  ],
  [
    'a payload cut off',
    () => decodeKvcState('x', { ...file, payload: file.payload.subarray(0, 60) }),
  ],
])('%s is refused', (_what, work) => {
  expect(work).toThrow(/x: /);
});

test('a stripped session has no state', () => {
  expect(decodeKvcState('x', { ...file, payload: new Uint8Array(0) })).toBeNull();
});
