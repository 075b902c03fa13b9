// Decode of 64 tokens from an empty context, the default model in five types, beside llama.cpp and as a share of
// the read bandwidth; last, what llama.cpp reaches through node-llama-cpp's JavaScript.
import { alternate, figure, median, ratioOf } from '../bench/measure.mjs';
import { variant } from '../bench/models.mjs';
import { ours } from '../bench/ours.mjs';
import { llamaThroughNode } from '../bench/peer.mjs';
import { plural, rowsOf, speedRow } from './speed-rows.mjs';

export const title = 'Decode, tokens 2 to 65';

/** Ratio to llama.cpp with one thread and with two; share of the read bandwidth with one. */
const WANTED = {
  Q4_1: { ratios: [2.1, 1.7], share: 0.8 },
  Q4_K_M: { ratios: [1.5, 1.5] },
  Q4_0: { ratios: [1.15, 1.15], share: 0.8 },
  Q8_0: { ratios: [1.15, 1.1], share: 0.8 },
  F16: { ratios: [1, 1] },
};

async function throughNode(bench, { what, threads }) {
  const sizes = { prefill: 8, decode: bench.tokens.decode };
  const samples = await alternate(bench.runs, {
    ours: () =>
      ours({
        model: bench.model,
        test: 'decode',
        tokens: sizes.decode,
        flags: ['--threads', threads],
      }),
    peer: () => llamaThroughNode(bench.model, threads, sizes)?.decode ?? null,
  });
  const cells = {
    'ours tok/s': figure(median(samples.ours)),
    'llama.cpp tok/s': figure(samples.peer ? median(samples.peer) : null),
    ratio: figure(ratioOf(samples.ours, samples.peer)),
  };
  return { what, cells, samples };
}

export async function run(bench) {
  const orders = Object.entries(WANTED).flatMap(([type, { ratios, share }]) =>
    bench.threads.map((threads) => ({
      what: `${type}, ${plural(threads)}`,
      type,
      threads,
      wanted: { ratio: ratios[threads - 1], ...(threads === 1 ? { share } : {}) },
    })),
  );
  const rows = await rowsOf(orders, ({ what, type, threads, wanted }) => {
    const model = variant(bench, type);
    const order = { model, threads, test: 'decode', tokens: bench.tokens.decode };
    return speedRow(bench, what, order, wanted);
  });
  const nodeOrders = bench.threads.map((threads) => ({
    what: `Q4_1, ${plural(threads)}, node-llama-cpp`,
    threads,
  }));
  return [...rows, ...(await rowsOf(nodeOrders, (order) => throughNode(bench, order)))];
}
