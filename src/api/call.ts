// What an API folder makes of one POST body: the requests to run and how their events become its wire
// shapes, streamed or whole. http-server and serve.ts know nothing else about an API.
import type { InferenceRequest, ModelCard } from './backend.ts';
import type { CallEvent } from './inference.ts';

/** Facts about the caller that a parser needs. */
export interface CallContext {
  /** Unique in this process, whatever request id the client chose. */
  readonly callId: string;
  readonly keyIdentity: string;
  readonly models: readonly ModelCard[];
  readonly nowSeconds: number;
}

/** Totals over all requests of a call. */
export interface CallUsage {
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
}

/** Builds the frames of a stream; holds what earlier frames decide about later ones. */
export interface FrameMaker {
  frames(event: CallEvent): readonly object[];
  /** Frames after the last event, before the API's terminal marker. */
  last(usage: CallUsage): readonly object[];
}

/** Gathers events into the one body of a call that is not streamed. */
export interface BodyMaker {
  add(event: CallEvent): void;
  body(usage: CallUsage): object;
}

export interface ApiCall {
  /** As the client spelled it. */
  readonly model: string;
  readonly streamed: boolean;
  readonly requests: readonly InferenceRequest[];
  /** Fields that nothing here reads. */
  readonly ignoredFields: number;
  stream(): FrameMaker;
  whole(): BodyMaker;
}

export type CallParser = (body: unknown, context: CallContext) => ApiCall;
