// Loading of the default model from a warm page cache: the rank's own time, and from the start of `cox up` to its
// ready line; and what the rank then holds in memory beside its weights.
import { alternate, atMost, figure, median } from '../bench/measure.mjs';
import { memoryOf, Server } from '../bench/server.mjs';
import { plural, rowsOf } from './speed-rows.mjs';

export const title = 'Loading';

const LOAD_MS_MOST = 500;
const MEGABYTE = 1e6;

async function loadNow(bench, threads) {
  const server = await Server.start(bench.model, ['--threads', threads]);
  try {
    const load = await server.load();
    const [rank] = server.pids.ranks;
    const linux = process.platform === 'linux';
    return {
      readyMs: server.readyMs,
      loadMs: load.load_ms,
      weights: load.weight_bytes,
      resident: linux ? memoryOf(rank, 'Rss') : null,
      own: linux ? memoryOf(rank, 'Private_Dirty') : null,
    };
  } finally {
    await server.stop();
  }
}

async function loadRow(bench, { what, threads }) {
  await loadNow(bench, threads); // the page cache is warm from here on
  const { found } = await alternate(bench.runs, { found: () => loadNow(bench, threads) });
  const of = (key) => median(found.map((sample) => sample[key]));
  const megabytes = (key) => figure(found[0][key] === null ? null : of(key) / MEGABYTE);
  return {
    what,
    cells: {
      'rank loads in ms': atMost(of('loadMs'), LOAD_MS_MOST),
      'cox up ready in ms': figure(of('readyMs')),
      'weights MB': megabytes('weights'),
      'resident MB': megabytes('resident'),
      'private MB': megabytes('own'),
    },
    samples: found,
  };
}

export function run(bench) {
  const orders = bench.threads.map((threads) => ({
    what: `default model, ${plural(threads)}`,
    threads,
  }));
  return rowsOf(orders, (order) => loadRow(bench, order));
}
