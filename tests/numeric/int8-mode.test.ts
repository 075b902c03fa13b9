// The mode a8 (int8 activations) is bounded statistically: it strays from float activations no farther
// than llama.cpp's own kernels do on the same files, and shards stray from one rank less than that.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { present } from '../../src/base/assert.ts';
import type { Topology } from '../../src/engine/engine.ts';
import { oracleModel, Session, withCluster } from './driver.ts';
import { argmax, oracleVectors } from './oracle-case.ts';

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
  return withCluster({ model: oracleModel(model), topology }, async (cluster) => {
    const session = await Session.create(cluster, { slot: 0, tokensMax: prompt.length });
    return await session.feed(prompt);
  });
}

describe.each(TYPES.split(' '))('int8 activations on llama-q.%s', (type) => {
  const model = `llama-q.${type}`;
  const path = join(import.meta.dirname, '../vectors/oracle/vectors', `${model}.json`);
  const { native_vs_dequantized: llamaCpp } = JSON.parse(readFileSync(path, 'utf8'));
  const reference = present(
    oracleVectors(model).cases.find(({ name }) => name === 'long'),
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
