// Prefill of 512 tokens, the default model in five types, and of 4,096 in Q4_0, beside llama.cpp and as a share of
// the arithmetic peak (two operations a weight, embeddings not counted).
import { variant } from '../bench/models.mjs';
import { plural, rowsOf, speedRow } from './speed-rows.mjs';

export const title = 'Prefill';

const WANTED = {
  Q4_1: { ratio: 5, share: 0.36 },
  Q4_K_M: { ratio: 2.5 },
  Q4_0: { ratio: 1.8, share: 0.36 },
  Q8_0: { ratio: 2.2, share: 0.36 },
  F16: { ratio: 1.1, peak: 'f32' },
};
const LONG_WANTED = { ratio: 2 };

export async function run(bench) {
  const { prefill, longPrefill } = bench.tokens;
  const orders = [
    ...Object.entries(WANTED).flatMap(([type, { peak, ...wanted }]) =>
      bench.threads.map((threads) => ({ type, threads, peak, wanted, tokens: prefill })),
    ),
    ...bench.threads.map((threads) => ({
      type: 'Q4_0',
      threads,
      wanted: LONG_WANTED,
      tokens: longPrefill,
    })),
  ].map((order) => ({
    ...order,
    what: `${order.tokens} tokens, ${order.type}, ${plural(order.threads)}`,
  }));
  return rowsOf(orders, ({ what, type, threads, peak, wanted, tokens }) =>
    speedRow(
      bench,
      what,
      { model: variant(bench, type), test: 'prefill', tokens, threads, peak },
      wanted,
    ),
  );
}
