// A coordinator of two ranks that does nothing but live, for the test that kills it. Prints the ranks' pids.
import { openCluster } from '../../dist/coordinator/main.js';

const silent = { debug() {}, info() {}, warn() {}, error() {} };
const cluster = await openCluster(
  {
    modelPath: process.argv[2],
    modelName: 'tiny',
    topology: { split: [1, 1], pp: 1, layers: [], kvType: 'f16', exact: false, context: 0 },
    transport: 'auto',
    listenHost: '127.0.0.1',
    listenPort: 0,
    token: null,
    ranks: 'local',
    threads: 1,
    kvBytes: null,
    slots: 32,
    queueMax: 256,
    stepRowsMax: 2048,
    joinTimeoutMs: 120_000,
    liveReuse: true,
  },
  silent,
  new AbortController().signal,
);
process.stdout.write(`${JSON.stringify(cluster.ranks().map(({ pid }) => pid))}\n`);
