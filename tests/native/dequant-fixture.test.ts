// The native tests read a text form of the oracle's dequantisation vectors; it must not drift from them.
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

test('the text fixture of the native dequantisation test equals the oracle vectors', async () => {
  const generator = new URL('../vectors/kernels/make-dequant-fixture.mjs', import.meta.url);
  const { dequantFixture } = (await import(generator.href)) as { dequantFixture: () => string };
  const text = readFileSync(new URL('../vectors/kernels/dequant.txt', import.meta.url), 'utf8');
  expect(text).toBe(dequantFixture());
  expect(text.match(/^block /gmu)).toHaveLength(60);
});
