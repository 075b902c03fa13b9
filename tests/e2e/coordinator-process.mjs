// A coordinator of two ranks that does nothing but live, for the test that kills it. Prints the ranks' pids.
import { openCluster } from '../../dist/coordinator/main.js';
import { CLUSTER_DEFAULTS } from '../../dist/coordinator/shell/options.js';

const silent = { debug() {}, info() {}, warn() {}, error() {} };
const cluster = await openCluster(
  {
    ...CLUSTER_DEFAULTS,
    modelPath: process.argv[2],
    modelName: 'tiny',
    topology: { ...CLUSTER_DEFAULTS.topology, split: [1, 1] },
    threads: 1,
  },
  silent,
  new AbortController().signal,
);
process.stdout.write(`${JSON.stringify(cluster.ranks().map(({ pid }) => pid))}\n`);
