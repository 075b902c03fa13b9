// What a cluster is told when it is opened, and what it gives back. The CLI fills ClusterOptions from the
// configuration; main.ts supplies ClusterDependencies (the addon, the tokenizer, processes), tests supply
// others (FakeEngine, ranks in the same process).
import type { Plan, PlanTopology } from '../../base/addon.ts';
import type { Transport } from '../../base/transport.ts';
import type { PromptCodec } from '../../prompt/prompt-codec.ts';

export interface ClusterOptions {
  readonly modelPath: string;
  /** The name under which the APIs offer the model. */
  readonly modelName: string;
  readonly topology: PlanTopology;
  readonly transport: Transport;
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
  /** Bytes of KV cache in each rank; null: full contexts for 8 slots, within a quarter of the memory. */
  readonly kvBytes: number | null;
  readonly slots: number;
  /** Requests that may wait for a slot; more are told 429. */
  readonly queueMax: number;
  readonly stepRowsMax: number;
  /** How long all ranks may take to join and load before openCluster gives up. */
  readonly joinTimeoutMs: number;
  /** Keep KV blocks of finished requests for prefix reuse. Off for logits, perplexity, bench. */
  readonly liveReuse: boolean;
  /** Told once ranks can join: for commands that print where. */
  readonly onListening?: (address: { readonly host: string; readonly port: number }) => void;
}

/** What the coordinator must know of the model file before any rank loads it. */
export interface ModelFacts {
  readonly fingerprint: string;
  readonly numericsContract: string;
  readonly buildId: string;
  /** Tokens: the topology's context, or the model's own. */
  readonly context: number;
  readonly vocab: number;
  /** Modification time of the file, for /v1/models. */
  readonly createdSeconds: number;
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
  readonly plan: Plan;
  readonly codec: PromptCodec;
  readonly launch: (launch: RankLaunch) => RankProcess;
  readonly log: ClusterLog;
  /** Heartbeats are watched on a worker thread, or on this one (tests in one process). */
  readonly heartbeats: 'worker' | 'inline';
}
