// What the HTTP layer needs from a coordinator: the one internal request and event language.
// API folders map wire shapes to InferenceRequest and InferenceEvent to wire shapes; nothing else.

export interface ChatMessage {
  readonly role: 'system' | 'user' | 'assistant' | 'tool' | 'developer';
  readonly content: string;
  readonly name?: string;
}

export type Prompt =
  | { readonly kind: 'chat'; readonly messages: readonly ChatMessage[] }
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'tokens'; readonly tokens: readonly number[] };

export interface InferenceRequest {
  readonly id: string;
  readonly model: string;
  readonly prompt: Prompt;
  /** null: up to the context. */
  readonly maxTokens: number | null;
  readonly temperature: number;
  readonly topP: number;
  readonly topK: number;
  readonly minP: number;
  readonly repetitionPenalty: number;
  readonly presencePenalty: number;
  readonly frequencyPenalty: number;
  readonly logitBias: readonly (readonly [id: number, bias: number])[];
  readonly seed: number | null;
  readonly stop: readonly string[];
  readonly choices: number;
  readonly logprobs: boolean;
  readonly topLogprobs: number;
  readonly ignoreEos: boolean;
  /** Who may share prefixes with this request. */
  readonly scope: string;
}

export interface TokenLogprob {
  readonly text: string;
  readonly bytes: readonly number[];
  readonly logprob: number;
  readonly top: readonly {
    readonly text: string;
    readonly bytes: readonly number[];
    readonly logprob: number;
  }[];
}

export type InferenceEvent =
  | { readonly type: 'request-start'; readonly promptTokens: number; readonly cachedTokens: number }
  | {
      readonly type: 'text-delta';
      readonly choice: number;
      readonly text: string;
      readonly logprobs: readonly TokenLogprob[];
    }
  | { readonly type: 'choice-end'; readonly choice: number; readonly reason: 'stop' | 'length' }
  | { readonly type: 'recovering' }
  | {
      readonly type: 'response-end';
      readonly promptTokens: number;
      readonly cachedTokens: number;
      readonly completionTokens: number;
    };

export interface ModelCard {
  readonly id: string;
  readonly createdSeconds: number;
  readonly contextTokens: number;
}

export interface Backend {
  models(): readonly ModelCard[];
  /**
   * Admission happens before the first event: a refusal rejects the first next() with a CoxswainError
   * (400, 429, 503 by its traits). Later failures reject a later next(). Abort ends the work.
   */
  infer(request: InferenceRequest, signal: AbortSignal): AsyncIterable<InferenceEvent>;
  health(): { readonly ok: boolean; readonly state: string };
  /** The body of GET /v1/cluster (src/coordinator/shell/cluster-report.ts). */
  cluster(): Promise<Readonly<Record<string, unknown>>>;
  /** Prometheus text. */
  metrics(): Promise<string>;
}
