// From settings to a running cluster: options, log, interruption. Commands that compute open one here.
import { basename } from 'node:path';
import { type Logger, pino } from 'pino';
import { CoxswainError } from '../base/errors.ts';
import { STEP_ROWS_MAX } from '../base/step-record.ts';
import { topologyOf } from '../config/derive.ts';
import type { ClusterConfig, LogLevel } from '../config/schema.ts';
import { readClusterToken } from '../config/secrets.ts';
import { openCluster } from '../coordinator/main.ts';
import { type Flags, modelOf } from './settings.ts';

export type Cluster = Awaited<ReturnType<typeof openCluster>>;
type ClusterOptions = Parameters<typeof openCluster>[0];

/** Ranks of this host load a model from its disk. */
const LOCAL_JOIN_MS = 120_000;
/** People start the other hosts by hand. */
const REMOTE_JOIN_MS = 24 * 3_600_000;

export interface ClusterStart {
  readonly flags: Flags;
  readonly config: ClusterConfig;
  /** 'remote': ranks are started by `cox rank` elsewhere. */
  readonly ranks: 'local' | 'remote';
  readonly logLevel: LogLevel;
  readonly liveReuse: boolean;
  readonly onListening?: (address: { host: string; port: number }) => void;
}

/** Opens the cluster, runs `use`, closes it, whatever happens. SIGINT and SIGTERM abort. */
export async function withCluster<T>(
  start: ClusterStart,
  use: (cluster: Cluster, signal: AbortSignal, log: Logger) => Promise<T>,
): Promise<T> {
  const stop = new AbortController();
  const onSignal = () => stop.abort(new CoxswainError('REQUEST_CANCELLED', 'interrupted'));
  // They stay on until the process ends: wrappers pass a signal on that the terminal has sent already, and
  // the second one must not cut the clean end short.
  process.on('SIGINT', onSignal).on('SIGTERM', onSignal);
  const log = createLog(start.logLevel);
  try {
    const cluster = await openCluster(await optionsOf(start), log, stop.signal);
    try {
      return await use(cluster, stop.signal, log);
    } finally {
      await cluster.close();
    }
  } catch (thrown) {
    // Whatever an interrupted start or request stumbled over, the interruption is what happened.
    throw stop.signal.aborted ? stop.signal.reason : thrown;
  }
}

export function createLog(level: LogLevel): Logger {
  return pino({ level, base: { proc: 'coordinator', pid: process.pid } }, pino.destination(2));
}

async function optionsOf(start: ClusterStart): Promise<ClusterOptions> {
  const { config, flags, ranks, liveReuse, onListening } = start;
  if (config.transport === 'rdma') {
    throw new CoxswainError(
      'CONFIG_INVALID',
      'transport rdma is not built yet; use auto, shm, tcp or grpc.',
      { field: 'transport' },
    );
  }
  const modelPath = await modelOf(flags, config);
  return {
    modelPath,
    modelName: config.name ?? basename(modelPath).replace(/\.gguf$/, ''),
    topology: topologyOf(config),
    transport: config.transport,
    listenHost: config.listen.host,
    listenPort: config.listen.port,
    token: readClusterToken(config, process.env),
    ranks,
    threads: config.threads ?? 0,
    kvBytes: config.kvMem,
    slots: config.slots,
    queueMax: config.queue,
    stepRowsMax: STEP_ROWS_MAX,
    joinTimeoutMs: ranks === 'local' ? LOCAL_JOIN_MS : REMOTE_JOIN_MS,
    liveReuse,
    ...(onListening === undefined ? {} : { onListening }),
  };
}
