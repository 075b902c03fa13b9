// The generated 1.1 B model in types that the default model's width keeps out: decode beside llama.cpp and as a share
// of the read bandwidth, and a short prefill.
import { large } from '../bench/models.mjs';
import { plural, rowsOf, speedRow } from './speed-rows.mjs';

export const title = 'The 1.1 B model of random weights';

const SHARES = { Q4_K: 0.75, Q6_K: 0.75, Q2_K: undefined, IQ2_XXS: undefined, MXFP4: 0.75 };

export function run(bench) {
  const { largeDecode, largePrefill } = bench.tokens;
  const orders = Object.keys(SHARES).flatMap((type) =>
    bench.threads.flatMap((threads) => [
      { type, threads, test: 'decode', tokens: largeDecode, share: threads === 1 },
      { type, threads, test: 'prefill', tokens: largePrefill },
    ]),
  );
  return rowsOf(
    orders.map((order) => ({
      ...order,
      what: `${order.test} ${order.tokens}, ${order.type}, ${plural(order.threads)}`,
    })),
    ({ what, type, threads, test, tokens, share }) =>
      speedRow(
        bench,
        what,
        { model: large(bench, type), threads, test, tokens },
        { ratio: 1, ...(share ? { share: SHARES[type] } : {}) },
      ),
  );
}
