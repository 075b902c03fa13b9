// Rows of ours beside llama.cpp on one file, with the same threads: alternating rounds, and in each round the
// limit that applies, so that a row carries both the ratio and the share of the machine.
import { costOf } from '../bench/gguf.mjs';
import { limitsOf, readNow, readShare } from '../bench/limits.mjs';
import { alternate, atLeast, figure, median, ratioOf } from '../bench/measure.mjs';
import { ours } from '../bench/ours.mjs';
import { AVX2_CPU, llama } from '../bench/peer.mjs';

export const plural = (threads) => `${threads} thread${threads > 1 ? 's' : ''}`;

const held = (value, least) => (least === undefined ? figure(value) : atLeast(value, least));

function measuresOf(bench, order) {
  const { threads, avx2 = false, flash, ...work } = order;
  const flags = ['--threads', threads, ...(order.flags ?? [])];
  const env = avx2 ? { COX_ISA: 'avx2' } : {};
  const cpu = avx2 ? { cpu: AVX2_CPU } : {};
  const peerOrder = { ...work, threads, ...cpu, ...(flash === undefined ? {} : { flash }) };
  return {
    ...(work.test === 'decode' && order.share !== false
      ? { limit: () => readNow(bench, threads) }
      : {}),
    ours: () => ours({ ...work, flags, env }),
    peer: () => llama(peerOrder),
  };
}

/** The share of the machine that our rate is, by the limit that its test meets first. */
async function shareOf(bench, order, samples) {
  const { stepBytes, operations } = await costOf(order.model);
  if (order.test === 'decode') {
    const bytes = samples.ours.map((rate) => (rate * stepBytes) / (order.streams ?? 1));
    return readShare(bytes, samples.limit);
  }
  const peak = limitsOf(bench, order.threads)?.[order.peak ?? 'int8'];
  return peak === undefined ? null : (median(samples.ours) * operations) / peak.ops_per_second;
}

/**
 * One row. `order`: {model, test, tokens, threads, depth, streams, peak ('int8' | 'f32'), avx2, flash, share}.
 * `wanted`: {ratio, share}, each a least value or absent.
 */
export async function speedRow(bench, what, order, wanted = {}) {
  const samples = await alternate(bench.runs, measuresOf(bench, order));
  const share = order.share === false ? null : await shareOf(bench, order, samples);
  const limit = order.test === 'decode' ? 'of read bandwidth' : `of ${order.peak ?? 'int8'} peak`;
  return {
    what,
    cells: {
      'ours tok/s': figure(median(samples.ours)),
      'llama.cpp tok/s': figure(samples.peer ? median(samples.peer) : null),
      ratio: held(ratioOf(samples.ours, samples.peer), wanted.ratio),
      ...(order.share === false ? {} : { [limit]: held(share, wanted.share) }),
    },
    samples,
  };
}

/** Rows that one missing file or tool must not take from the others. */
export async function rowsOf(orders, make) {
  const rows = [];
  for (const order of orders) {
    try {
      rows.push(await make(order));
    } catch (error) {
      rows.push({ what: order.what, note: String(error.message).split('\n').at(-1), failed: true });
    }
  }
  return rows;
}
