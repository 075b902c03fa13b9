// The generated benchmark model: the same bytes for the same seed, and weights that a model could have.
import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { inspectModel } from '../../../src/base/addon.ts';
import { testModel } from '../../e2e/cox.ts';

interface Order {
  readonly type: string;
  readonly out: string;
  readonly tokenizerFrom: string;
  readonly seed?: number;
  readonly layers?: number;
}

const { makeLargeModel }: { makeLargeModel(order: Order): void } = await import(
  new URL('../../perf/make-large-model.mjs', import.meta.url).href
);

const folder = mkdtempSync(join(tmpdir(), 'coxswain-large-'));
afterAll(() => rmSync(folder, { recursive: true }));

function made(type: string, name: string, seed: number): string {
  const out = join(folder, `${name}.gguf`);
  makeLargeModel({ type, out, tokenizerFrom: testModel('llama'), seed, layers: 1 });
  return out;
}

const digest = (path: string) => createHash('sha256').update(readFileSync(path)).digest('hex');

describe('the generated model', () => {
  it('is the same for the same seed and another for another', () => {
    const first = digest(made('Q2_K', 'first', 1));
    expect(digest(made('Q2_K', 'again', 1))).toBe(first);
    expect(digest(made('Q2_K', 'other', 2))).not.toBe(first);
  });

  it.each(['Q4_K', 'Q6_K', 'IQ2_XXS', 'MXFP4'])(
    'is a llama that the engine accepts in %s',
    async (type) => {
      const model = await inspectModel(made(type, type, 1));
      expect(model.problem).toBeNull();
      expect(model.shape).toMatchObject({
        layers: 1,
        hidden: 2048,
        ffn: 8192,
        heads: 32,
        kvHeads: 8,
      });
      const matrices = model.tensors.filter((tensor) => tensor.dims.length > 1);
      expect(new Set(matrices.map((tensor) => tensor.type))).toEqual(new Set([type]));
    },
  );

  it('refuses a type whose scales it does not know', () => {
    expect(() => made('IQ3_S', 'unknown', 1)).toThrow(/IQ3_S is not among the types/);
  });
});
