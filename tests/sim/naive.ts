// The deliberately dumb twin: each request alone, one token after another, everything computed again from
// position 0, no slots, blocks, batches or ranks. What the cluster answers must equal what this answers.
import type { OutputResult, SamplerParams } from '../../src/base/step-record.ts';
import {
  type FakeShape,
  fakeLogits,
  fakePartial,
  fakeRow,
  fakeSample,
  fakeScore,
  foldRow,
} from '../../src/engine/fake-model.ts';

export interface NaiveAnswer {
  readonly tokens: readonly number[];
  readonly reason: 'stop' | 'length';
}

export function naiveGenerate(
  shape: FakeShape,
  prompt: readonly number[],
  params: SamplerParams,
): NaiveAnswer {
  const ids = [...prompt];
  for (;;) {
    const logits = fakeLogits(naiveHidden(shape, ids).at(-1) ?? 0, shape.vocab);
    const sampled = fakeSample(params, ids, logits);
    if (sampled.finish === 'stop') return { tokens: ids.slice(prompt.length), reason: 'stop' };
    ids.push(sampled.id);
    if (sampled.finish === 'length') return { tokens: ids.slice(prompt.length), reason: 'length' };
  }
}

export function naiveScore(
  shape: FakeShape,
  ids: readonly number[],
  pos: number,
  target: number | null,
): OutputResult {
  return fakeScore(naiveLogits(shape, ids)[pos] ?? new Float32Array(), target);
}

/** Logits after every position. */
export function naiveLogits(shape: FakeShape, ids: readonly number[]): Float32Array[] {
  return Array.from(naiveHidden(shape, ids), (value) => fakeLogits(value, shape.vocab));
}

function naiveHidden(shape: FakeShape, ids: readonly number[]): Int32Array {
  const hidden = new Int32Array(ids.length);
  for (let layer = 0; layer < shape.layers; layer += 1) {
    for (let head = 0; head < shape.heads; head += 1) {
      let fold = 0;
      for (const [pos, id] of ids.entries()) {
        const row = fakeRow({ layer, head }, pos, id, fold);
        fold = foldRow(fold, pos, row);
        hidden[pos] = ((hidden[pos] ?? 0) + fakePartial({ layer, head }, row)) | 0;
      }
    }
  }
  return hidden;
}
