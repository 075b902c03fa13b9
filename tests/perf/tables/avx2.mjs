// Both engines held to AVX2: ours by COX_ISA, llama.cpp by loading only its library for the first CPUs with AVX2.
import { variant } from '../bench/models.mjs';
import { plural, rowsOf, speedRow } from './speed-rows.mjs';

export const title = 'Held to AVX2';

const TYPES = ['Q4_1', 'Q4_K_M', 'Q4_0', 'Q8_0', 'F16'];

export function run(bench) {
  if (process.arch !== 'x64') return [{ what: 'AVX2', note: 'this is no x86-64' }];
  const { decode, prefill } = bench.tokens;
  const orders = TYPES.flatMap((type) =>
    [
      ['decode', decode],
      ['prefill', prefill],
    ].map(([test, tokens]) => ({ type, test, tokens })),
  ).flatMap((order) =>
    bench.threads.map((threads) => ({
      ...order,
      threads,
      what: `${order.test} ${order.tokens}, ${order.type}, ${plural(threads)}`,
    })),
  );
  return rowsOf(orders, ({ what, type, ...order }) =>
    speedRow(
      bench,
      what,
      { ...order, model: variant(bench, type), avx2: true, share: false },
      { ratio: 1 },
    ),
  );
}
