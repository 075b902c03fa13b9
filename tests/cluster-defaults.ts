// Everything that a cluster of a test is told, but the model.
import { STEP_ROWS_MAX } from '../src/base/step-record.ts';
import type { ClusterOptions } from '../src/coordinator/shell/options.ts';

export const CLUSTER_DEFAULTS = {
  topology: { split: [1], pp: 1, layers: [], kvType: 'f16', exact: false, context: 0 },
  transport: 'auto',
  listenHost: '127.0.0.1',
  listenPort: 0,
  token: null,
  ranks: 'local',
  threads: 0,
  kvBytes: null,
  slots: 32,
  queueMax: 256,
  stepRowsMax: STEP_ROWS_MAX,
  joinTimeoutMs: 120_000,
  liveReuse: true,
} as const satisfies Omit<ClusterOptions, 'modelPath' | 'modelName'>;
