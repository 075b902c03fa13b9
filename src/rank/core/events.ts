// What goes into a rank's core and what comes out: `step(event) -> effects`. The shell (control
// stream, engine, disk, heartbeat) turns the world into events and runs ALL effects of ALL calls
// through one queue, strictly in order: `persist-epoch` and `fence-engine` are awaited before the next
// effect, `load-engine` and `open-engine` are started and answered by an event. So an epoch is durable
// before its links are opened, and a rank says Fenced only when its executor is idle.
import type { ErrorCode } from '../../base/error-codes.ts';
import type {
  EngineEvent,
  EngineFacts,
  EpochSpec,
  LinkReport,
  LinkSpec,
  Topology,
} from '../../engine/engine.ts';

/** The share that the coordinator gave this rank (message Assign). */
export interface RankAssignment {
  readonly rank: number;
  readonly topology: Topology;
  readonly planHash: string;
  readonly kvBlocks: number;
  readonly slotsMax: number;
  readonly stepRowsMax: number;
  readonly threads: number;
  readonly shareCores: boolean;
}

/** Message Open. */
export interface EpochOpening {
  readonly epoch: number;
  /** 32 hex digits, drawn at the coordinator's start. */
  readonly incarnation: string;
  readonly links: readonly LinkSpec[];
  readonly firstStep: number;
  readonly openTimeoutMs: number;
}

export type RankEvent =
  /** Both proofs passed on a new control stream. Any earlier stream is gone. */
  | { readonly type: 'attached' }
  /** The control stream ended or broke. The engine leaves its epoch. */
  | { readonly type: 'detached'; readonly reason: string }
  | { readonly type: 'assign'; readonly assignment: RankAssignment }
  | { readonly type: 'engine-loaded'; readonly facts: EngineFacts }
  | { readonly type: 'engine-load-failed'; readonly code: ErrorCode; readonly message: string }
  | { readonly type: 'open'; readonly opening: EpochOpening }
  /** openEpoch() of this epoch resolved or rejected. Answers of superseded epochs are ignored. */
  | {
      readonly type: 'engine-opened';
      readonly epoch: number;
      readonly links: readonly LinkReport[];
    }
  | {
      readonly type: 'engine-open-failed';
      readonly epoch: number;
      readonly code: ErrorCode;
      readonly message: string;
    }
  | {
      readonly type: 'step';
      readonly epoch: number;
      readonly step: number;
      readonly record: Uint8Array;
    }
  /** As the engine reported it, in the engine's order. */
  | { readonly type: 'engine-event'; readonly event: EngineEvent }
  | { readonly type: 'fence'; readonly epoch: number; readonly reason: string }
  /** Nothing heard from the coordinator for the lease: this rank fences itself. */
  | { readonly type: 'lease-expired' }
  | { readonly type: 'shutdown'; readonly reason: string };

export type RankEffect =
  /** Hello; the shell adds what it knows of host, file and build. */
  | { readonly type: 'send-hello'; readonly epochMax: number }
  /** Close an engine loaded before, load this share, answer engine-loaded or engine-load-failed. */
  | { readonly type: 'load-engine'; readonly assignment: RankAssignment }
  | { readonly type: 'send-loaded'; readonly facts: EngineFacts; readonly planHash: string }
  /** AWAITED and durable before the next effect. */
  | { readonly type: 'persist-epoch'; readonly epoch: number; readonly incarnation: string }
  /** AWAITED: leaves every wait, drops queued steps, aborts an open in progress. */
  | { readonly type: 'fence-engine'; readonly reason: string }
  /** The shell adds the data key. Answered by engine-opened or engine-open-failed. */
  | { readonly type: 'open-engine'; readonly spec: Omit<EpochSpec, 'dataKey'> }
  | { readonly type: 'send-ready'; readonly epoch: number; readonly links: readonly LinkReport[] }
  | { readonly type: 'submit-step'; readonly record: Uint8Array }
  | {
      readonly type: 'send-result';
      readonly epoch: number;
      readonly step: number;
      readonly bytes: Uint8Array;
    }
  | {
      readonly type: 'send-failed';
      readonly epoch: number;
      readonly step: number;
      readonly code: ErrorCode;
      readonly message: string;
    }
  | { readonly type: 'send-fenced'; readonly epoch: number }
  /** Close the engine, say Goodbye, end the process. */
  | { readonly type: 'stop'; readonly reason: string }
  | {
      readonly type: 'log';
      readonly level: 'info' | 'warn' | 'error';
      readonly message: string;
      readonly fields: Readonly<Record<string, unknown>>;
    };
