// Reads an oracle vectors file and compares an engine's logits with it. Tolerances: the oracle's README
// (1e-3 on logits; arg max and greedy tokens where the gap to the runner-up exceeds 5e-3).
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { present } from '../../src/base/assert.ts';

const TOLERANCE = 1e-3;
const GAP = 5e-3;

interface PositionReference {
  readonly pos: number;
  readonly top: readonly (readonly [id: number, logit: number])[];
  readonly sampled: readonly number[];
  readonly logsumexp: number;
}

export interface OracleCase {
  readonly name: string;
  readonly prompt: readonly number[];
  readonly positions: readonly PositionReference[];
  readonly argmax_all: readonly number[];
  readonly gap_all: readonly number[];
  readonly full: { readonly pos: number; readonly data: string };
  readonly greedy: {
    readonly tokens: readonly number[];
    readonly logit: readonly number[];
    readonly gap: readonly number[];
  };
}

export interface OracleVectors {
  readonly sampleIds: readonly number[];
  readonly cases: readonly OracleCase[];
}

/** The reference for float activations: the dequantised model where there is one. */
export function oracleVectors(model: string): OracleVectors {
  const path = join(import.meta.dirname, '../vectors/oracle/vectors', `${model}.json`);
  const { sample_ids, references } = JSON.parse(readFileSync(path, 'utf8'));
  const { cases } = references.dequantized_f32 ?? references.native;
  return { sampleIds: sample_ids, cases };
}

export function argmax(logits: Float32Array): number {
  let best = 0;
  for (let id = 1; id < logits.length; id += 1) {
    if (at(logits, id) > at(logits, best)) best = id;
  }
  return best;
}

export function logSumExp(logits: Float32Array): number {
  const max = at(logits, argmax(logits));
  let sum = 0;
  for (const logit of logits) sum += Math.exp(logit - max);
  return max + Math.log(sum);
}

/** `logits` after every prompt position. */
export function expectPrompt(
  reference: OracleCase,
  sampleIds: readonly number[],
  logits: readonly Float32Array[],
): void {
  let worst = 0;
  const compare = (got: number, wanted: number) => {
    worst = Math.max(worst, Math.abs(got - wanted));
  };
  for (const { pos, top, sampled, logsumexp } of reference.positions) {
    const row = present(logits[pos], 'a row a position');
    for (const [id, logit] of top) compare(at(row, id), logit);
    sampled.forEach((logit, index) => {
      compare(at(row, present(sampleIds[index], 'an id')), logit);
    });
    compare(logSumExp(row), logsumexp);
  }
  const full = present(logits[reference.full.pos], 'the full row');
  const bytes = Uint8Array.from(Buffer.from(reference.full.data, 'base64'));
  new Float32Array(bytes.buffer).forEach((logit, id) => {
    compare(at(full, id), logit);
  });
  expect(worst).toBeLessThan(TOLERANCE);
  const clear = reference.argmax_all.flatMap((id, pos) =>
    present(reference.gap_all[pos], 'a gap a position') > GAP ? [{ pos, id }] : [],
  );
  expect(clear.length).toBeGreaterThan(reference.prompt.length / 2);
  expect(
    clear.map(({ pos }) => ({ pos, id: argmax(present(logits[pos], 'a row a position')) })),
  ).toEqual(clear);
}

/** How many greedy tokens must agree: up to the first whose gap is within rounding. */
export function clearGreedyCount(reference: OracleCase): number {
  const unclear = reference.greedy.gap.findIndex((gap) => gap <= GAP);
  return unclear < 0 ? reference.greedy.tokens.length : unclear;
}

function at(logits: Float32Array, id: number): number {
  return present(logits[id], 'an id of the vocabulary');
}
