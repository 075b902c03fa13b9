// Token-level work without text: teacher-forced scores (logits, perplexity) and raw generation (bench).
import { randomUUID } from 'node:crypto';
import { CoxswainError } from '../../base/errors.ts';
import type { OutputResult } from '../../base/step-record.ts';
import type { CoreRequest, ScoreRequest } from '../core/events.ts';
import type { CoreDriver, RequestSink } from './core-driver.ts';
import { EventQueue } from './event-queue.ts';

/** Results travel through memory and the control plane: logits of one step stay below this. */
const LOGITS_STEP_BYTES_MAX = 32 * 1024 * 1024;

export interface ScoreOptions {
  readonly tokens: readonly number[];
  readonly wants: ScoreRequest['wants'];
  /** Rows a step, or null. Lowered where the logits of a step would be too large. */
  readonly chunk: number | null;
}

export interface ScoredPosition {
  readonly pos: number;
  readonly result: OutputResult;
}

export interface GenerateTokensOptions {
  readonly tokens: readonly number[];
  readonly maxTokens: number;
  /** 0: greedy. */
  readonly temperature: number;
  readonly seed: bigint;
  /** Ends early at one of these. */
  readonly stopIds: readonly number[];
}

/** Scores in order of position. */
export async function* score(
  options: ScoreOptions,
  vocab: number,
  driver: CoreDriver,
  signal: AbortSignal,
): AsyncGenerator<ScoredPosition, void, undefined> {
  const { tokens, wants } = options;
  const wantsLogits = [...wants.values()].some(({ want }) => want === 'logits');
  const rowsMax = Math.max(1, Math.floor(LOGITS_STEP_BYTES_MAX / (vocab * 4)));
  const chunk = wantsLogits ? Math.min(options.chunk ?? rowsMax, rowsMax) : options.chunk;
  const id = `score/${randomUUID()}`;
  yield* run<ScoredPosition>(
    { kind: 'score', id, tokens, wants, chunk },
    (effect, events) => {
      if (effect.type === 'scores') for (const scored of effect.scores) events.push(scored);
    },
    driver,
    signal,
  );
}

/** Generated ids as they are accepted. */
export async function* generateTokens(
  options: GenerateTokensOptions,
  driver: CoreDriver,
  signal: AbortSignal,
): AsyncGenerator<number, void, undefined> {
  const { tokens, maxTokens, temperature, seed, stopIds } = options;
  const id = `tokens/${randomUUID()}`;
  const request: CoreRequest = {
    kind: 'generate',
    id,
    tokens,
    choices: 1,
    scope: id,
    sampler: {
      temperature,
      topK: 0,
      topP: 1,
      minP: 0,
      repetitionPenalty: 1,
      presencePenalty: 0,
      frequencyPenalty: 0,
      seed,
      choice: 0,
      promptLength: tokens.length,
      lengthMax: tokens.length + maxTokens,
      topLogprobs: 0,
      wantLogprob: false,
      stopIds,
      bias: [],
    },
  };
  yield* run<number>(
    request,
    (effect, events) => {
      if (effect.type === 'tokens') for (const token of effect.tokens) events.push(token.id);
    },
    driver,
    signal,
  );
}

async function* run<T>(
  request: CoreRequest,
  take: (effect: Parameters<RequestSink['take']>[0], events: EventQueue<T>) => void,
  driver: CoreDriver,
  signal: AbortSignal,
): AsyncGenerator<T, void, undefined> {
  signal.throwIfAborted();
  const events = new EventQueue<T>();
  driver.request(request, {
    take: (effect) => {
      if (effect.type === 'request-finished') events.end();
      else if (effect.type === 'request-failed') {
        events.fail(new CoxswainError(effect.code, effect.message));
      } else take(effect, events);
    },
    recovering: () => undefined,
  });
  try {
    yield* events.read(signal);
  } finally {
    driver.cancel(request.id);
  }
}
