// Loading of the default model from a warm page cache: the rank's own time, and from the start of `cox up` to its
// ready line; and what the rank then holds in memory beside its weights and its cache (touched at load, so that
// memory cannot run out in mid-answer): with the default cache, and with a small one.
import { alternate, atMost, figure, median } from '../bench/measure.mjs';
import { planOf } from '../bench/ours.mjs';
import { memoryOf, Server } from '../bench/server.mjs';
import { plural, rowsOf } from './speed-rows.mjs';

export const title = 'Loading';

const LOAD_MS_MOST = 500;
const MEGABYTE = 1e6;
const BLOCK_TOKENS = 256;

const SMALL_CACHE = '100MB';

async function loadNow(bench, { threads, flags }) {
  const server = await Server.start(bench.model, ['--threads', threads, ...flags]);
  try {
    const load = await server.load();
    const [rank] = server.pids.ranks;
    const { kv_blocks: blocks } = await server.cluster();
    return {
      readyMs: server.readyMs,
      loadMs: load.load_ms,
      weights: load.weight_bytes,
      cache: blocks.total * BLOCK_TOKENS * planOf(bench.model).kv_bytes_per_token,
      resident: process.platform === 'linux' ? memoryOf(rank, 'Rss') : null,
    };
  } finally {
    await server.stop();
  }
}

async function loadRow(bench, order) {
  await loadNow(bench, order); // the page cache is warm from here on
  const { found } = await alternate(bench.runs, { found: () => loadNow(bench, order) });
  const of = (key) => median(found.map((sample) => sample[key]));
  const resident = found[0].resident === null ? null : of('resident');
  const rest = resident === null ? null : resident - of('weights') - of('cache');
  return {
    what: order.what,
    cells: {
      'rank loads in ms': atMost(of('loadMs'), LOAD_MS_MOST),
      'cox up ready in ms': figure(of('readyMs')),
      'resident MB': figure(resident === null ? null : resident / MEGABYTE),
      'weights MB': figure(of('weights') / MEGABYTE),
      'cache MB': figure(of('cache') / MEGABYTE),
      'rest MB': figure(rest === null ? null : rest / MEGABYTE),
    },
    samples: found,
  };
}

export function run(bench) {
  const caches = [
    { name: 'default cache', flags: [] },
    { name: `cache of ${SMALL_CACHE}`, flags: ['--kv-mem', SMALL_CACHE] },
  ];
  const orders = bench.threads.flatMap((threads) =>
    caches.map(({ name, flags }) => ({ what: `${plural(threads)}, ${name}`, threads, flags })),
  );
  return rowsOf(orders, (order) => loadRow(bench, order));
}
