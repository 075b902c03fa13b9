// Decode at depth: 8,000 tokens of context, Q4_0, beside llama.cpp with flash attention off and on (the faster of
// the two counts); and how fast the cache is read: its bytes over the time that the context adds to a step.
import { readNow, readShare } from '../bench/limits.mjs';
import { alternate, atLeast, figure, median, ratioOf } from '../bench/measure.mjs';
import { variant } from '../bench/models.mjs';
import { ours, planOf } from '../bench/ours.mjs';
import { llama } from '../bench/peer.mjs';
import { plural, rowsOf } from './speed-rows.mjs';

export const title = 'Decode at depth, Q4_0';

const RATIO_WANTED = 2;
const KV_SHARE_WANTED = 0.75;

/** Faster of two sets of samples, or the one there is. */
const faster = (a, b) => (a && b ? (median(a) >= median(b) ? a : b) : (a ?? b));

/** Bytes a second of each round; null where depth cost no time that could be measured. */
function cacheRates({ ours: deep, shallow }, bytes) {
  const added = deep.map((rate, round) => 1 / rate - 1 / shallow[round]);
  return added.every((seconds) => seconds > 0) ? added.map((seconds) => bytes / seconds) : null;
}

async function depthRow(bench, { what, threads }) {
  const model = variant(bench, 'Q4_0');
  const { depth, decode } = bench.tokens;
  const flags = ['--threads', threads];
  const deep = { model, test: 'decode', tokens: decode, depth };
  const peer = { ...deep, threads, warm: false };
  const samples = await alternate(bench.runs, {
    limit: () => readNow(bench, threads),
    shallow: () => ours({ ...deep, depth: 1, flags }),
    ours: () => ours({ ...deep, flags }),
    ...(threads === bench.threads.at(-1)
      ? { plain: () => llama({ ...peer, flash: 0 }), flash: () => llama({ ...peer, flash: 1 }) }
      : {}),
  });
  const best = faster(samples.plain, samples.flash);
  const bytes = planOf(model).kv_bytes_per_token * (depth - 1);
  const read = cacheRates(samples, bytes);
  const ratio = ratioOf(samples.ours, best);
  return {
    what,
    cells: {
      'ours tok/s': figure(median(samples.ours)),
      'llama.cpp tok/s': figure(best ? median(best) : null),
      ratio: best ? atLeast(ratio, RATIO_WANTED) : figure(null),
      'cache GB/s': figure(read === null ? null : median(read) / 1e9),
      'of read bandwidth':
        threads === 1
          ? atLeast(readShare(read, samples.limit), KV_SHARE_WANTED)
          : figure(readShare(read, samples.limit)),
    },
    samples,
  };
}

export function run(bench) {
  const orders = bench.threads.map((threads) => ({
    what: `${bench.tokens.depth} tokens, ${plural(threads)}`,
    threads,
  }));
  return rowsOf(orders, (order) => depthRow(bench, order));
}
