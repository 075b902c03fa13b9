// Several sessions decoding at once, all tokens together, Q4_1: llama.cpp has as many sequences in one batch.
import { variant } from '../bench/models.mjs';
import { plural, rowsOf, speedRow } from './speed-rows.mjs';

export const title = 'Decode of several sessions, Q4_1, in all';

const WANTED = { 8: { ratio: 5 } };

export function run(bench) {
  const threads = bench.threads.at(-1);
  const orders = [1, 4, 8].map((streams) => ({
    what: `${streams} session${streams > 1 ? 's' : ''}, ${plural(threads)}`,
    streams,
  }));
  return rowsOf(orders, ({ what, streams }) => {
    const model = variant(bench, 'Q4_1');
    const order = { model, threads, streams, test: 'decode', tokens: bench.tokens.decode };
    return speedRow(bench, what, { ...order, share: false }, WANTED[streams]);
  });
}
