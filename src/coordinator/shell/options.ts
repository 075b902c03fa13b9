// What a cluster is told when it is opened, and what it gives back. The CLI fills ClusterOptions from the
// configuration; main.ts supplies ClusterDependencies (the addon, the tokenizer, processes), tests supply
// others (FakeEngine, ranks in the same process).
import type { PromptCodec } from '../../prompt/prompt-codec.ts';

export type ClusterTransport = 'auto' | 'shm' | 'tcp' | 'grpc' | 'fake';

/** As in DESIGN section 9; mirrors the engine's Topology. */
export interface ClusterTopology {
  /** Weight of each TP rank; its length is the TP degree. */
  readonly split: readonly number[];
  readonly pp: number;
  /** Inclusive layer ranges, one a stage, or empty for automatic. */
  readonly layers: readonly (readonly [first: number, last: number])[];
  readonly kvType: 'f32' | 'f16';
  readonly exact: boolean;
  /** 0: the model's own. */
  readonly context: number;
}

export interface ClusterOptions {
  readonly modelPath: string;
  /** The name under which the APIs offer the model. */
  readonly modelName: string;
  readonly topology: ClusterTopology;
  readonly transport: ClusterTransport;
  /** Control port; ranks dial it. Heartbeat datagrams use the same number over UDP where it is free. */
  readonly listenHost: string;
  /** 0: any free port. */
  readonly listenPort: number;
  /** null: a random one, allowed only when every rank is local and listenHost is loopback. */
  readonly token: string | null;
  /** 'local': start and supervise a process for every rank. 'remote': wait for `cox rank` to join. */
  readonly ranks: 'local' | 'remote';
  /** Engine threads of each rank; 0: the host's cores divided by the ranks on it. */
  readonly threads: number;
  /** Bytes of KV cache in each rank; null: a full context for every slot, as far as memory allows. */
  readonly kvBytes: number | null;
  readonly slots: number;
  /** Requests that may wait for a slot; more are told 429. */
  readonly queueMax: number;
  readonly stepRowsMax: number;
  /** How long all ranks may take to join and load before openCluster gives up. */
  readonly joinTimeoutMs: number;
  /** Keep KV blocks of finished requests for prefix reuse. Off for logits, perplexity, bench. */
  readonly liveReuse: boolean;
}

/** Defaults of everything but the model, for the CLI and for tests. */
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
  stepRowsMax: 2048,
  joinTimeoutMs: 120_000,
  liveReuse: true,
} as const satisfies Omit<ClusterOptions, 'modelPath' | 'modelName'>;

/** One rank's share, as the planner gives it. Ranges are half open. */
export interface PlannedRank {
  readonly rank: number;
  readonly stage: number;
  readonly tpIndex: number;
  readonly weightBytes: number;
  readonly kvBytesPerToken: number;
}

export interface ClusterPlan {
  readonly hash: string;
  readonly tp: number;
  readonly pp: number;
  readonly ranks: readonly PlannedRank[];
  /** Inclusive layers of each stage. */
  readonly layers: readonly (readonly [first: number, last: number])[];
  /** One sentence when the topology is impossible. */
  readonly refused: string | null;
}

/** What the coordinator must know of the model file before any rank loads it. */
export interface ModelFacts {
  readonly fingerprint: string;
  readonly numericsContract: string;
  readonly buildId: string;
  /** Tokens: the topology's context, or the model's own. */
  readonly context: number;
  readonly vocab: number;
  readonly fileSeconds: number;
}

export interface ClusterLog {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** How a rank process ended. */
export interface RankExit {
  readonly code: number | null;
  readonly signal: string | null;
  /** Its last words on stderr, for the error sentence. */
  readonly lastWords: string;
}

export interface RankProcess {
  readonly pid: number;
  readonly exited: Promise<RankExit>;
  kill(signal: 'SIGTERM' | 'SIGKILL'): void;
}

export interface RankLaunch {
  readonly rank: number;
  /** HOST:PORT of the control port. */
  readonly join: string;
  readonly modelPath: string;
  /** Handed over in the environment, never in argv. */
  readonly token: string;
  readonly threads: number;
  readonly log: ClusterLog;
}

export interface ClusterDependencies {
  readonly model: ModelFacts;
  readonly plan: ClusterPlan;
  readonly codec: PromptCodec;
  readonly launch: (launch: RankLaunch) => RankProcess;
  readonly log: ClusterLog;
  /** Heartbeats are watched on a worker thread, or on this one (tests in one process). */
  readonly heartbeats: 'worker' | 'inline';
}
