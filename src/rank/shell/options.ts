// What a rank process is told at its start, and what it needs from the outside. The CLI fills RankOptions
// from argv and environment; main.ts and tests supply RankDependencies.
import type { RankEngine } from '../../engine/engine.ts';

export interface RankOptions {
  /** HOST:PORT of the coordinator's control port. */
  readonly join: string;
  /** This host's copy of the model; matched with the coordinator's by fingerprint. */
  readonly modelPath: string;
  /** The cluster token (COX_CLUSTER_TOKEN or a file; never argv). */
  readonly token: string;
  /** Address that peers reach this rank's data plane at; null: the one that faces the coordinator. */
  readonly dataHost: string | null;
  /** Wish for a rank number; null: any. Supervised ranks are told theirs. */
  readonly rank: number | null;
  /** Engine threads; 0: as the coordinator divides the host's cores. */
  readonly threads: number;
  /** Where the highest accepted epoch is kept over restarts; null: in memory. */
  readonly stateDir: string | null;
  /** How long to keep dialling a coordinator that does not answer, at start and after a loss. */
  readonly joinTimeoutMs: number;
}

/** Facts of the model file and this build that the handshake compares. */
export interface RankIdentity {
  readonly fingerprint: string;
  readonly buildId: string;
  readonly numericsContract: string;
}

export interface RankLog {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

export interface RankDependencies {
  readonly identity: RankIdentity;
  /** A fresh engine for each share that this rank is assigned. */
  readonly createEngine: () => RankEngine;
  readonly log: RankLog;
  /** Heartbeats on a worker thread, or on this one (tests that run whole clusters in one process). */
  readonly heartbeats: 'worker' | 'inline';
  /** Called once the coordinator assigned a rank number. */
  readonly onJoined?: (rank: number) => void;
}
