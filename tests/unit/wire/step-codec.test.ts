// The step codec against the layout of native/engine/step_record.h: exact words, round trips over
// arbitrary values, and truncation at every byte.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { CoxswainError } from '../../../src/base/errors.ts';
import type { StepRecord, StepResult } from '../../../src/base/step-record.ts';
import {
  decodeStepRecord,
  decodeStepResult,
  encodeStepRecord,
  encodeStepResult,
  StepEncoder,
} from '../../../src/wire/step-codec.ts';

const sampler = {
  temperature: 0.5,
  topK: 40,
  topP: 0.875,
  minP: 0.0625,
  repetitionPenalty: 1.25,
  presencePenalty: -0.5,
  frequencyPenalty: 0.25,
  seed: 0xfedcba9876543210n,
  choice: 2,
  promptLength: 3,
  lengthMax: 19,
  topLogprobs: 5,
  wantLogprob: true,
  stopIds: [2, 7],
  bias: [
    [11, -100],
    [12, 1.5],
  ] as const,
};

const record: StepRecord = {
  epoch: 4294967296 * 3 + 7,
  step: 4294967295,
  slotOps: [
    { kind: 'create', slot: 1, blocks: [9, 8], tokens: [100, 101, 102] },
    { kind: 'append', slot: 1, blocks: [7] },
    { kind: 'truncate', slot: 1, length: 2, blockCount: 1 },
    { kind: 'copy', from: 9, to: 4, rows: 17 },
    { kind: 'sampler', slot: 1, params: sampler },
    { kind: 'drop', slot: 5 },
  ],
  runs: [
    { slot: 1, pos0: 2, tokens: [55, 56] },
    { slot: 3, pos0: 90, tokens: { step: 4294967294, output: 6 } },
  ],
  outputs: [
    { row: 1, want: 'token' },
    { row: 2, want: 'score', target: 77 },
    { row: 2, want: 'score', target: null },
    { row: 0, want: 'logits' },
  ],
};

const result: StepResult = {
  epoch: 9,
  step: 4294967297,
  computeUs: 1200,
  waitUs: 30,
  outputs: [
    { want: 'token', skipped: false, id: 6, finish: 'length', logprob: -0.25, top: [[6, -0.25]] },
    { want: 'token', skipped: true },
    {
      want: 'score',
      skipped: false,
      argmax: 3,
      gap: 0.5,
      logsumexp: 12.5,
      targetLogit: 2,
      top: [
        [3, 4],
        [1, 3.5],
      ],
    },
    { want: 'logits', skipped: false, logits: new Float32Array([1, -2, 0.5]) },
  ],
};

function words(bytes: Uint8Array): number[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Array.from({ length: bytes.byteLength / 4 }, (_, index) =>
    view.getUint32(index * 4, true),
  );
}

function codeOf(action: () => unknown): string {
  try {
    action();
  } catch (thrown) {
    if (thrown instanceof CoxswainError) return thrown.code;
    throw thrown;
  }
  return 'nothing thrown';
}

describe('step records', () => {
  it('puts every field in the word that the layout names', () => {
    const small: StepRecord = {
      epoch: 4294967298,
      step: 5,
      slotOps: [{ kind: 'create', slot: 3, blocks: [8], tokens: [20, 21] }],
      runs: [
        { slot: 3, pos0: 2, tokens: [30] },
        { slot: 4, pos0: 9, tokens: { step: 4, output: 1 } },
      ],
      outputs: [
        { row: 0, want: 'token' },
        { row: 1, want: 'score', target: null },
      ],
    };
    expect(words(encodeStepRecord(small))).toEqual([
      0x31535843, 2, 1, 5, 0, 1, 2, 2, 1, 3, 2, 1, 2, 8, 20, 21, 3, 2, 1, 0, 30, 4, 9, 1, 1, 4, 0,
      1, 0, 1, 0, 1, 2, 0xffffffff,
    ]);
  });

  it('writes 22 fixed sampler words before the lists', () => {
    const bytes = encodeStepRecord({
      ...record,
      runs: [],
      outputs: [],
      slotOps: [{ kind: 'sampler', slot: 1, params: sampler }],
    });
    const got = words(bytes);
    expect(got.length).toBe(8 + 2 + 22 + 2 + 4);
    expect(got.slice(10 + 7, 10 + 16)).toEqual([0x76543210, 0xfedcba98, 2, 3, 19, 5, 1, 2, 2]);
    expect(got.slice(10 + 22, 10 + 24)).toEqual([2, 7]);
  });

  it('come back equal', () => {
    expect(decodeStepRecord(encodeStepRecord(record))).toEqual(record);
  });

  it('come back equal from an unaligned part of a larger buffer', () => {
    const bytes = encodeStepRecord(record);
    const shifted = new Uint8Array(bytes.length + 3);
    shifted.set(bytes, 3);
    expect(decodeStepRecord(shifted.subarray(3))).toEqual(record);
  });

  it('are refused with STEP_INVALID when cut at any byte', () => {
    const bytes = encodeStepRecord(record);
    for (let length = 0; length < bytes.length; length += 1) {
      expect(codeOf(() => decodeStepRecord(bytes.subarray(0, length)))).toBe('STEP_INVALID');
    }
  });

  it('are refused when words follow the end', () => {
    const bytes = encodeStepRecord(record);
    const longer = new Uint8Array(bytes.length + 4);
    longer.set(bytes);
    expect(codeOf(() => decodeStepRecord(longer))).toBe('STEP_INVALID');
  });

  it('are decoded or refused, never worse, when any word is damaged', () => {
    const bytes = encodeStepRecord(record);
    for (let word = 0; word < bytes.length / 4; word += 1) {
      for (const value of [0, 1, 5, 0x7fffffff, 0xffffffff]) {
        const damaged = bytes.slice();
        new DataView(damaged.buffer).setUint32(word * 4, value, true);
        expect(['STEP_INVALID', 'nothing thrown']).toContain(
          codeOf(() => decodeStepRecord(damaged)),
        );
      }
    }
  });

  it('name the word at which they end', () => {
    const bytes = encodeStepRecord(record);
    expect(() => decodeStepRecord(bytes.subarray(0, 12))).toThrow(
      /word 3, where the step should be/,
    );
  });

  it('reuse one buffer in the encoder without mixing records', () => {
    const encoder = new StepEncoder();
    const empty: StepRecord = { epoch: 1, step: 2, slotOps: [], runs: [], outputs: [] };
    const first = encoder.encode(record).slice();
    const second = encoder.encode(empty).slice();
    expect(decodeStepRecord(second)).toEqual(empty);
    expect(decodeStepRecord(encoder.encode(record))).toEqual(decodeStepRecord(first));
  });

  it('come back equal for arbitrary runs and outputs', () => {
    const u32 = fc.integer({ min: 0, max: 0xfffffffe });
    const run = fc.record({
      slot: u32,
      pos0: u32,
      tokens: fc.oneof(
        fc.array(u32, { maxLength: 20 }),
        fc.record({ step: fc.maxSafeNat(), output: u32 }),
      ),
    });
    const output = fc.oneof(
      fc.record({ row: u32, want: fc.constant('token' as const) }),
      fc.record({ row: u32, want: fc.constant('score' as const), target: fc.option(u32) }),
      fc.record({ row: u32, want: fc.constant('logits' as const) }),
    );
    const records = fc.record({
      epoch: fc.maxSafeNat(),
      step: fc.maxSafeNat(),
      slotOps: fc.constant([]),
      runs: fc.array(run, { maxLength: 8 }),
      outputs: fc.array(output, { maxLength: 8 }),
    });
    fc.assert(
      fc.property(records, (value) => {
        expect(decodeStepRecord(encodeStepRecord(value))).toEqual(value);
      }),
    );
  });
});

describe('step results', () => {
  it('put every field in the word that the layout names', () => {
    const bytes = encodeStepResult({
      epoch: 1,
      step: 2,
      computeUs: 7,
      waitUs: 8,
      outputs: [
        { want: 'token', skipped: false, id: 6, finish: 'stop', logprob: 0, top: [] },
        { want: 'logits', skipped: true },
      ],
    });
    expect(words(bytes)).toEqual([0x31525843, 1, 0, 2, 0, 2, 7, 8, 1, 0, 6, 1, 0, 0, 3, 1]);
  });

  it('come back equal', () => {
    expect(decodeStepResult(encodeStepResult(result))).toEqual(result);
  });

  it('are refused with STEP_INVALID when cut at any byte', () => {
    const bytes = encodeStepResult(result);
    for (let length = 0; length < bytes.length; length += 1) {
      expect(codeOf(() => decodeStepResult(bytes.subarray(0, length)))).toBe('STEP_INVALID');
    }
  });

  it('are refused before allocation when a count exceeds the bytes', () => {
    const bytes = encodeStepResult({ ...result, outputs: [] });
    new DataView(bytes.buffer).setUint32(20, 0x40000000, true);
    expect(() => decodeStepResult(bytes)).toThrow(/wants 2147483648 words/);
  });
});
