// The mode a8 (int8 activations) is bounded statistically: it strays from float activations no farther
// than llama.cpp's own kernels do on the same files, and shards stray from one rank less than that.
// Where shares end between the chunks of columns whose sums are added in f64, shards do not stray at all.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { present } from '../../src/base/assert.ts';
import type { Topology } from '../../src/engine/engine.ts';
import { oracleModel, Session, withCluster } from './driver.ts';
import { argmax, oracleVectors } from './oracle-case.ts';
import { ownModel, ownVectors } from './own-case.ts';

const TYPES =
  'q8_0 q4_0 q4_1 q5_0 q5_1 q2_k q3_k q4_k q5_k q6_k iq2_xxs iq3_xxs iq4_nl iq4_xs q4_k_m';

interface Distance {
  readonly rms_diff: number;
  readonly max_abs_diff: number;
  readonly argmax_changes: number;
}

function distance(got: readonly Float32Array[], wanted: readonly Float32Array[]): Distance {
  let squares = 0;
  let count = 0;
  let worst = 0;
  let changes = 0;
  for (const [index, row] of got.entries()) {
    const other = present(wanted[index], 'as many rows');
    for (const [id, logit] of row.entries()) {
      const difference = Math.abs(logit - present(other[id], 'as many logits'));
      squares += difference * difference;
      worst = Math.max(worst, difference);
      count += 1;
    }
    if (argmax(row) !== argmax(other)) changes += 1;
  }
  return { rms_diff: Math.sqrt(squares / count), max_abs_diff: worst, argmax_changes: changes };
}

function logitsOf(
  model: string,
  topology: Partial<Topology>,
  prompt: readonly number[],
): Promise<Float32Array[]> {
  return withCluster({ model, topology }, async (cluster) => {
    const session = await Session.create(cluster, { slot: 0, tokensMax: prompt.length });
    return await session.feed(prompt);
  });
}

describe.each(TYPES.split(' '))('int8 activations on llama-q.%s', (type) => {
  const model = oracleModel(`llama-q.${type}`);
  const path = join(import.meta.dirname, '../vectors/oracle/vectors', `llama-q.${type}.json`);
  const { native_vs_dequantized: llamaCpp } = JSON.parse(readFileSync(path, 'utf8'));
  const reference = present(
    oracleVectors(`llama-q.${type}`).cases.find(({ name }) => name === 'long'),
    'a long case',
  );

  it('stay as near to float activations as those of llama.cpp', async () => {
    const float = await logitsOf(model, { exact: true }, reference.prompt);
    const one = await logitsOf(model, { exact: false }, reference.prompt);
    const strayed = distance(one, float);
    expect(strayed.rms_diff).toBeGreaterThan(0.01);
    expect(strayed.rms_diff).toBeLessThan(1.1 * llamaCpp.long.rms_diff);
    expect(strayed.max_abs_diff).toBeLessThan(0.8);
    expect(strayed.argmax_changes).toBeLessThanOrEqual(10);

    const shared = await logitsOf(model, { exact: false, split: [3, 1] }, reference.prompt);
    expect(distance(shared, one).rms_diff).toBeLessThan(strayed.rms_diff);
  });
});

// 9 query heads of 64 and 512 FFN columns: shares of whole heads and of 128 columns.
describe('int8 activations on tensor-parallel ranks', () => {
  const model = ownModel('own-nine.q4_1');
  const prompt = present(ownVectors('own-nine.q4_1').cases[0], 'a case').prompt;

  it.each([[[1, 1]], [[1, 2]], [[2, 1, 1]], [[1, 1, 1, 1]]])(
    'give the bits of one rank, shared %j',
    async (split) => {
      const bits = (rows: readonly Float32Array[]) =>
        rows.map((row) => Buffer.from(row.buffer, row.byteOffset, row.byteLength).toString('hex'));
      const one = await logitsOf(model, { exact: false }, prompt);
      const shared = await logitsOf(model, { exact: false, split }, prompt);
      expect(bits(shared)).toEqual(bits(one));
    },
  );
});
