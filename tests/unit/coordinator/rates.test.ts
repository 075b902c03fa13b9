import { expect, test } from 'vitest';
import { Rates } from '../../../src/coordinator/core/rates.ts';

test('before any measurement a step is a small probe', () => {
  expect(new Rates().prefillRows(0, 'none')).toBe(32);
});

test('chunks keep a step within 50 ms while anyone decodes and 250 ms while anyone waits', () => {
  const rates = new Rates();
  rates.measure({ decodeRows: 2, prefillRows: 0 }, 10_000);
  rates.measure({ decodeRows: 0, prefillRows: 100 }, 100_000);
  expect(rates.prefillRows(2, 'decode')).toBe(40);
  expect(rates.prefillRows(0, 'wait')).toBe(250);
  expect(rates.prefillRows(0, 'none')).toBe(500);
});

test('a chunk has 16 to 2,048 rows, however slow or fast the machine', () => {
  const slow = new Rates();
  slow.measure({ decodeRows: 0, prefillRows: 32 }, 32_000_000);
  expect(slow.prefillRows(1, 'decode')).toBe(16);
  const fast = new Rates();
  fast.measure({ decodeRows: 0, prefillRows: 1_000 }, 10);
  expect(fast.prefillRows(0, 'none')).toBe(2_048);
});

test('the decode rows of a mixed step do not count as prefill', () => {
  const rates = new Rates();
  rates.measure({ decodeRows: 4, prefillRows: 0 }, 20_000);
  rates.measure({ decodeRows: 4, prefillRows: 60 }, 80_000);
  expect(rates.predictUs({ decodeRows: 0, prefillRows: 1 })).toBe(1_000);
  expect(rates.predictUs({ decodeRows: 4, prefillRows: 10 })).toBe(30_000);
});
