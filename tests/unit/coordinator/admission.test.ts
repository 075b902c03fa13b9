import { expect, test } from 'vitest';
import {
  refuseMalformed,
  refuseTooLong,
  retryAfterSeconds,
  tokensMax,
} from '../../../src/coordinator/core/admission.ts';
import { generate, prompt, score } from '../../sim/requests.ts';

const LIMITS = {
  slots: 2,
  kvBlocks: 4,
  context: 2_000,
  stages: 1,
  rankCount: 1,
  stepRowsMax: 16,
  queueMax: 2,
  liveReuse: true,
};

test('the pool bounds a sequence where it is smaller than the context', () => {
  expect(tokensMax(LIMITS, 256)).toBe(1_025);
  expect(tokensMax({ ...LIMITS, context: 800 }, 256)).toBe(800);
});

test('a refusal names the figures and what to change', () => {
  const refused = refuseTooLong(generate('a', prompt(1_025, 1), 1), LIMITS, 256);
  expect(refused).toMatchObject({ code: 'CONTEXT_EXCEEDED', retryAfterSeconds: null });
  expect(refused?.message).toMatch(/1025 tokens.*1024 tokens that the KV cache holds \(--kv-mem\)/);
  expect(refuseTooLong(generate('a', prompt(1_024, 1), 1), LIMITS, 256)).toBeNull();
});

test('scores may fill the context and the pool to the last row', () => {
  const limits = { ...LIMITS, context: 20 };
  const refused = { code: 'CONTEXT_EXCEEDED' };
  expect(refuseTooLong(score('s', prompt(21, 1), new Map()), limits, 256)).toMatchObject(refused);
  expect(refuseTooLong(score('s', prompt(20, 1), new Map()), limits, 256)).toBeNull();
  expect(refuseTooLong(score('s', prompt(1_025, 1), new Map()), LIMITS, 256)).toMatchObject(
    refused,
  );
  expect(refuseTooLong(score('s', prompt(1_024, 1), new Map()), LIMITS, 256)).toBeNull();
});

test('requests that make no sense are refused, each with its reason', () => {
  expect(refuseMalformed(generate('a', [], 1))?.message).toMatch(/no token/);
  expect(refuseMalformed(generate('a', [1], 0))?.message).toMatch(/max_tokens/);
  expect(refuseMalformed(generate('a', [1], 1, { choices: 0 }))?.message).toMatch(/n must/);
  expect(refuseMalformed(score('s', [1], new Map(), 0))?.message).toMatch(/chunk/);
  const wrong = generate('a', [1, 2], 3, { sampler: { promptLength: 9 } });
  expect(refuseMalformed(wrong)?.message).toMatch(/prompt length is 9, not 2/);
  expect(refuseMalformed(generate('a', [1], 1))).toBeNull();
});

test('the time to try again follows the queue and stays between 1 and 60 s', () => {
  expect(retryAfterSeconds(0, 4, 100)).toBe(1);
  expect(retryAfterSeconds(8, 4, 3_000)).toBe(6);
  expect(retryAfterSeconds(1_000, 1, 9_000)).toBe(60);
});
