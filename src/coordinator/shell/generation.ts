// The generation front: the Backend that the HTTP layer sees. Each request is prepared (rendered,
// tokenised, checked), handed to the core, and its accepted tokens come back as text. Owns nothing that
// outlives a request.
import { randomUUID } from 'node:crypto';
import type { InferenceEvent, InferenceRequest, TokenLogprob } from '../../api/backend.ts';
import { CoxswainError } from '../../base/errors.ts';
import type { PromptCodec } from '../../prompt/prompt-codec.ts';
import type { AcceptedToken, FinishReason, GenerateRequest } from '../core/events.ts';
import { ChoiceText, type TextPiece } from './choice-text.ts';
import type { CoreDriver, RequestSink } from './core-driver.ts';
import { EventQueue } from './event-queue.ts';
import { prepareRequest } from './prompt-input.ts';

export interface GenerationOptions {
  readonly codec: PromptCodec;
  readonly driver: CoreDriver;
  readonly contextTokens: () => number;
  /** Throws CLUSTER_NOT_READY or SHUTTING_DOWN when no request can be taken now. */
  readonly checkReady: () => void;
}

/** Admission: rejects before the first event. Later failures reject a later next(). Abort cancels. */
export async function* generate(
  request: InferenceRequest,
  options: GenerationOptions,
  signal: AbortSignal,
): AsyncGenerator<InferenceEvent, void, undefined> {
  signal.throwIfAborted();
  options.checkReady();
  const { codec, driver } = options;
  const limits = { context: options.contextTokens() };
  const prepared = await prepareRequest(request, codec, limits, signal);
  signal.throwIfAborted();
  options.checkReady();
  // Ids of clients may repeat; the core's may not.
  const id = `${request.id}/${randomUUID()}`;
  const events = new EventQueue<InferenceEvent>();
  driver.request({ ...prepared, id }, new Generation(id, { request, prepared, events }, options));
  try {
    yield* events.read(signal);
  } finally {
    driver.cancel(id);
  }
}

interface GenerationParts {
  readonly request: InferenceRequest;
  readonly prepared: GenerateRequest;
  readonly events: EventQueue<InferenceEvent>;
}

class Generation implements RequestSink {
  private readonly id: string;
  private readonly events: EventQueue<InferenceEvent>;
  private readonly driver: CoreDriver;
  private readonly promptTokens: number;
  private readonly choices: ChoiceText[];
  private cachedTokens = 0;
  private started: boolean = false;

  constructor(id: string, parts: GenerationParts, { codec, driver }: GenerationOptions) {
    this.id = id;
    this.events = parts.events;
    this.driver = driver;
    this.promptTokens = parts.prepared.tokens.length;
    const { request } = parts;
    this.choices = Array.from(
      { length: request.choices },
      () =>
        new ChoiceText({
          decoder: codec.decoder({ continuation: true }),
          stops: request.stop.filter((stop) => stop !== ''),
          describe: request.logprobs ? (token) => describeToken(token, codec) : null,
        }),
    );
  }

  take(effect: Parameters<RequestSink['take']>[0]): void {
    switch (effect.type) {
      case 'request-started':
        this.start(effect.cachedTokens);
        return;
      case 'tokens':
        this.onTokens(effect.choice, effect.tokens);
        return;
      case 'choice-finished':
        this.onFinished(effect.choice, effect.reason);
        return;
      case 'request-finished':
        this.finish();
        return;
      case 'request-failed': {
        const { code, message, retryAfterSeconds } = effect;
        const options = retryAfterSeconds === null ? {} : { retryAfterSeconds };
        this.events.fail(new CoxswainError(code, message, options));
        return;
      }
      case 'scores':
        return; // asked for by score requests only
    }
  }

  recovering(): void {
    if (this.started) this.events.push({ type: 'recovering' });
  }

  private start(cachedTokens: number): void {
    // A preempted or recovered request starts again; its client was told already.
    if (this.started) return;
    this.started = true;
    this.cachedTokens = cachedTokens;
    const { promptTokens } = this;
    this.events.push({ type: 'request-start', promptTokens, cachedTokens });
  }

  private onTokens(choice: number, tokens: readonly AcceptedToken[]): void {
    const text = this.choices[choice];
    if (text === undefined || text.stopped) return;
    for (const token of tokens) {
      this.emit(choice, text.push(token));
      if (!text.stopped) continue;
      this.driver.dispatch({ type: 'choice-stopped', id: this.id, choice });
      return;
    }
  }

  private onFinished(choice: number, reason: FinishReason): void {
    const text = this.choices[choice];
    this.emit(choice, text?.end() ?? null);
    // The last bytes may have completed a stop string after all.
    this.events.push({ type: 'choice-end', choice, reason: text?.stopped ? 'stop' : reason });
  }

  private emit(choice: number, piece: TextPiece | null): void {
    if (piece === null) return;
    const { text, logprobs } = piece;
    this.events.push({ type: 'text-delta', choice, text, logprobs });
  }

  private finish(): void {
    const { promptTokens, cachedTokens } = this;
    const completionTokens = this.choices.reduce((sum, { tokenCount }) => sum + tokenCount, 0);
    this.events.push({ type: 'response-end', promptTokens, cachedTokens, completionTokens });
    this.events.end();
  }
}

function describeToken(token: AcceptedToken, codec: PromptCodec): TokenLogprob {
  const one = (id: number, logprob: number) => ({
    text: codec.tokenText(id),
    bytes: [...codec.tokenBytes(id)],
    logprob,
  });
  return {
    ...one(token.id, token.logprob),
    top: token.top.map(([id, logprob]) => one(id, logprob)),
  };
}
