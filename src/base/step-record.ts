// Step records and step results as values. The bytes are in src/wire/step-codec.ts; the meaning of
// every field stands in native/engine/step_record.h, which these types mirror. They live in base
// because coordinator, rank, wire and FakeEngine all speak them.

/** Rows of one step at most: longer ones would keep a newcomer waiting and cost memory on every rank. */
export const STEP_ROWS_MAX = 2048;

export interface SamplerParams {
  readonly temperature: number;
  readonly topK: number;
  readonly topP: number;
  readonly minP: number;
  readonly repetitionPenalty: number;
  readonly presencePenalty: number;
  readonly frequencyPenalty: number;
  readonly seed: bigint;
  readonly choice: number;
  readonly promptLength: number;
  /** promptLength + max tokens. */
  readonly lengthMax: number;
  readonly topLogprobs: number;
  readonly wantLogprob: boolean;
  readonly stopIds: readonly number[];
  readonly bias: readonly (readonly [id: number, bias: number])[];
}

export type SlotOp =
  | {
      readonly kind: 'create';
      readonly slot: number;
      readonly blocks: readonly number[];
      readonly tokens: readonly number[];
    }
  | { readonly kind: 'append'; readonly slot: number; readonly blocks: readonly number[] }
  | {
      readonly kind: 'truncate';
      readonly slot: number;
      readonly length: number;
      readonly blockCount: number;
    }
  | { readonly kind: 'drop'; readonly slot: number }
  | { readonly kind: 'copy'; readonly from: number; readonly to: number; readonly rows: number }
  | { readonly kind: 'sampler'; readonly slot: number; readonly params: SamplerParams };

export interface OutputRef {
  readonly step: number;
  readonly output: number;
}

export interface Run {
  readonly slot: number;
  readonly pos0: number;
  /** Ids, or the output of an earlier step (then exactly one row). */
  readonly tokens: readonly number[] | OutputRef;
}

export type Output =
  | { readonly row: number; readonly want: 'token' }
  | { readonly row: number; readonly want: 'score'; readonly target: number | null }
  | { readonly row: number; readonly want: 'logits' };

export interface StepRecord {
  readonly epoch: number;
  readonly step: number;
  readonly slotOps: readonly SlotOp[];
  readonly runs: readonly Run[];
  readonly outputs: readonly Output[];
}

export type Finish = 'no' | 'stop' | 'length';

export type OutputResult =
  | { readonly want: 'token' | 'score' | 'logits'; readonly skipped: true }
  | {
      readonly want: 'token';
      readonly skipped: false;
      readonly id: number;
      readonly finish: Finish;
      readonly logprob: number;
      readonly top: readonly (readonly [id: number, logprob: number])[];
    }
  | {
      readonly want: 'score';
      readonly skipped: false;
      readonly argmax: number;
      readonly gap: number;
      readonly logsumexp: number;
      readonly targetLogit: number;
      readonly top: readonly (readonly [id: number, logit: number])[];
    }
  | { readonly want: 'logits'; readonly skipped: false; readonly logits: Float32Array };

export interface StepResult {
  readonly epoch: number;
  readonly step: number;
  readonly outputs: readonly OutputResult[];
  readonly computeUs: number;
  readonly waitUs: number;
}

/** Tokens in one KV block. */
export const KV_BLOCK_TOKENS = 256;
