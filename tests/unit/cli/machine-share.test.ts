import { describe, expect, it } from 'vitest';
import type { Inspection, MachineLimits } from '../../../src/base/addon.ts';
import {
  decodeShare,
  operationsPerToken,
  prefillShare,
  weightBytesPerStep,
} from '../../../src/cli/machine-share.ts';

const LIMITS: MachineLimits = {
  threads: 2,
  readBytesPerSecond: 10_000,
  int8: { opsPerSecond: 80_000, instruction: 'dot' },
  bf16: null,
  f32: { opsPerSecond: 20_000, instruction: 'fma' },
};

function model(type: string, tiedOutput: boolean): Inspection {
  const tensors = [
    { name: 'token_embd.weight', type, dims: [10, 8], bytes: 80 },
    ...(tiedOutput ? [] : [{ name: 'output.weight', type, dims: [10, 8], bytes: 80 }]),
    { name: 'blk.0.attn_norm.weight', type: 'F32', dims: [10], bytes: 40 },
    { name: 'blk.0.ffn_up.weight', type, dims: [10, 4], bytes: 40 },
  ];
  return {
    fileBytes: 1000,
    fingerprint: '0'.repeat(64),
    architecture: 'llama',
    name: 'made for this test',
    tensors,
    shape: {
      layers: 1,
      hidden: 10,
      heads: 1,
      kvHeads: 1,
      headDim: 10,
      ffn: 4,
      vocab: 8,
      context: 16,
      tiedOutput,
    },
    problem: null,
  };
}

describe('what a token costs', () => {
  it('reads a tied embedding as the output matrix, and an embedding of its own only by rows', () => {
    expect(weightBytesPerStep(model('Q8_0', true))).toBe(160);
    expect(weightBytesPerStep(model('Q8_0', false))).toBe(160);
  });

  it('counts two operations a weight of the trunk, without embeddings, output and norms', () => {
    expect(operationsPerToken(model('Q8_0', false))).toBe(80);
  });
});

describe('shares of the machine', () => {
  it('let streams share one reading of the weights while each reads its own cache', () => {
    const rate = { tokensPerSecond: 100, streams: 4, kvBytes: 10 };
    const share = decodeShare(model('Q8_0', true), LIMITS, rate);
    expect(share).toMatchObject({ limit: 'read bandwidth', per_token: 50, share: 0.5 });
  });

  it('hold block types to the int8 peak and floats to the f32 peak', () => {
    const rate = { tokensPerSecond: 100, streams: 1 };
    expect(prefillShare(model('Q8_0', true), LIMITS, rate)).toMatchObject({ share: 0.1 });
    expect(prefillShare(model('F16', true), LIMITS, rate)).toMatchObject({
      limit: 'f32 peak',
      share: 0.4,
    });
  });

  it('are unknown where the machine has no such instruction', () => {
    const rate = { tokensPerSecond: 100, streams: 1 };
    expect(prefillShare(model('Q8_0', true), { ...LIMITS, int8: null }, rate)).toBeNull();
  });
});
