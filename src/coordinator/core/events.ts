// What goes into the coordinator's core and what comes out: `step(event, now) -> effects`.
// The shell (sockets, timers, ranks, tokenizer) turns the world into events and executes effects in
// list order. Times are milliseconds on the injected clock. Token ids only: the core never sees text.
import type { ErrorCode } from '../../base/error-codes.ts';
import type {
  OutputResult,
  SamplerParams,
  StepRecord,
  StepResult,
} from '../../base/step-record.ts';

/** One request as admitted by the shell: rendered, tokenised, validated. */
export interface GenerateRequest {
  readonly kind: 'generate';
  readonly id: string;
  readonly tokens: readonly number[];
  /** Sampler of choice 0; choices 1..n-1 differ in `choice` only and are forks of one prompt. */
  readonly sampler: SamplerParams;
  readonly choices: number;
  /** Prefixes are shared within one scope only (API key, user). */
  readonly scope: string;
}

/** Teacher-forced evaluation: logits, perplexity, bench. Never shares prefixes. */
export interface ScoreRequest {
  readonly kind: 'score';
  readonly id: string;
  readonly tokens: readonly number[];
  /** What is wanted at each position; positions absent want nothing. */
  readonly wants: ReadonlyMap<
    number,
    { readonly want: 'score'; readonly target: number | null } | { readonly want: 'logits' }
  >;
  /** Rows a step, or null for the core's own choice. */
  readonly chunk: number | null;
}

export type CoreRequest = GenerateRequest | ScoreRequest;

export interface CoreLimits {
  readonly slots: number;
  readonly kvBlocks: number;
  readonly context: number;
  readonly stages: number;
  readonly rankCount: number;
  readonly stepRowsMax: number;
  /** Requests waiting beyond this and the free slots are refused with QUEUE_FULL. */
  readonly queueMax: number;
  /** KV blocks kept for reuse after a request ends. */
  readonly liveReuse: boolean;
}

export type CoreEvent =
  | { readonly type: 'request-arrived'; readonly request: CoreRequest }
  /** The client is gone. What was computed is kept for reuse. Answered by request-failed REQUEST_CANCELLED
   *  unless the request is over already. */
  | { readonly type: 'request-cancelled'; readonly id: string }
  /** The shell found a stop string: finish this choice as 'stop'. */
  | {
      readonly type: 'choice-stopped';
      readonly id: string;
      readonly choice: number;
    }
  | { readonly type: 'step-result'; readonly rank: number; readonly result: StepResult }
  /** All ranks are joined, linked and idle in this epoch; all slots are empty. */
  | {
      readonly type: 'epoch-ready';
      readonly epoch: number;
      readonly firstStep: number;
      readonly limits: CoreLimits;
    }
  /** A rank died, stalled, diverged or reported a failure in this epoch. */
  | {
      readonly type: 'rank-failed';
      readonly epoch: number;
      readonly rank: number;
      readonly code: ErrorCode;
      readonly message: string;
    }
  /** Recovery is hopeless (rank cannot be restarted): everything fails with this. */
  | { readonly type: 'cluster-failed'; readonly code: ErrorCode; readonly message: string }
  | { readonly type: 'drain' }
  | { readonly type: 'timer' };

export interface AcceptedToken {
  readonly id: number;
  readonly logprob: number;
  readonly top: readonly (readonly [id: number, logprob: number])[];
}

export type FinishReason = 'stop' | 'length';

export type CoreEffect =
  /** To every rank, in this order, in this epoch. */
  | { readonly type: 'send-step'; readonly record: StepRecord }
  /** Computation starts (after any wait in the queue); cached tokens needed no prefill. */
  | { readonly type: 'request-started'; readonly id: string; readonly cachedTokens: number }
  /** Accepted tokens: they are final. The stop id that ends a choice is not among them. */
  | {
      readonly type: 'tokens';
      readonly id: string;
      readonly choice: number;
      readonly tokens: readonly AcceptedToken[];
    }
  | {
      readonly type: 'choice-finished';
      readonly id: string;
      readonly choice: number;
      readonly reason: FinishReason;
    }
  | {
      readonly type: 'scores';
      readonly id: string;
      readonly scores: readonly { readonly pos: number; readonly result: OutputResult }[];
    }
  /** The request is over, all choices finished (or scored); nothing follows. */
  | { readonly type: 'request-finished'; readonly id: string }
  | {
      readonly type: 'request-failed';
      readonly id: string;
      readonly code: ErrorCode;
      readonly message: string;
      readonly retryAfterSeconds: number | null;
    }
  /** Fence all ranks, restart what died, rejoin; answered by epoch-ready or cluster-failed. Failures while
   *  opening are the shell's to retry: the core ignores rank-failed until the next epoch-ready. */
  | { readonly type: 'open-epoch'; readonly reason: string }
  | { readonly type: 'arm-timer'; readonly at: number }
  | {
      readonly type: 'log';
      readonly level: 'info' | 'warn' | 'error';
      readonly message: string;
      readonly fields: Readonly<Record<string, unknown>>;
    };
