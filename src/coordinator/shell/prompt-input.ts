// From an InferenceRequest to what the core admits: rendered, tokenised, checked against the model. The
// seed is drawn here, once, so that a retry after a lost rank samples the same tokens.
import { randomBytes } from 'node:crypto';
import type { InferenceRequest } from '../../api/backend.ts';
import { CoxswainError } from '../../base/errors.ts';
import type { PromptCodec } from '../../prompt/prompt-codec.ts';
import type { GenerateRequest } from '../core/events.ts';

const TOP_LOGPROBS_MAX = 20;
/**
 * The engine reads f32 and refuses 0. Below one in the size of any vocabulary the nucleus is the likeliest
 * token alone, which is what clients mean by a top_p of 0.
 */
const TOP_P_MIN = 2 ** -24;
/** Below: no number that f32 keeps apart from 0 and its reciprocal from infinity. */
const REPETITION_MIN = 2 ** -24;

export interface PromptLimits {
  readonly context: number;
}

/** @throws CoxswainError REQUEST_INVALID, CONTEXT_EXCEEDED, TEMPLATE_FAILED. */
export async function prepareRequest(
  request: InferenceRequest,
  codec: PromptCodec,
  limits: PromptLimits,
  signal: AbortSignal,
): Promise<GenerateRequest> {
  checkSampling(request, codec);
  const tokens = await promptTokens(request, codec, limits, signal);
  checkTokens(tokens, codec, limits);
  const { maxTokens } = request;
  const room = limits.context - tokens.length;
  return {
    kind: 'generate',
    id: request.id,
    tokens,
    choices: request.choices,
    scope: request.scope,
    sampler: {
      temperature: request.temperature,
      topK: request.topK,
      topP: Math.max(TOP_P_MIN, request.topP),
      minP: request.minP,
      repetitionPenalty: Math.max(REPETITION_MIN, request.repetitionPenalty),
      presencePenalty: request.presencePenalty,
      frequencyPenalty: request.frequencyPenalty,
      seed: request.seed === null ? randomSeed() : BigInt.asUintN(64, BigInt(request.seed)),
      choice: 0,
      promptLength: tokens.length,
      lengthMax: tokens.length + (maxTokens === null ? room : Math.min(maxTokens, room)),
      topLogprobs: request.logprobs ? request.topLogprobs : 0,
      wantLogprob: request.logprobs,
      stopIds: request.ignoreEos ? [] : [...codec.endOfGeneration],
      bias: request.logitBias,
    },
  };
}

async function promptTokens(
  { prompt }: InferenceRequest,
  codec: PromptCodec,
  limits: PromptLimits,
  signal: AbortSignal,
): Promise<readonly number[]> {
  switch (prompt.kind) {
    case 'chat': {
      const segments = await codec.renderChat(prompt.messages, { signal });
      const characters = segments.reduce((sum, { text }) => sum + text.length, 0);
      refuseLongText(characters, codec, limits);
      return codec.encode(segments, { addSpecial: true });
    }
    case 'text':
      refuseLongText(prompt.text.length, codec, limits);
      return codec.encode(prompt.text, { addSpecial: true });
    case 'tokens':
      return prompt.tokens;
  }
}

/** What cannot fit however it is tokenised is refused before that costs a second. */
function refuseLongText(characters: number, codec: PromptCodec, limits: PromptLimits): void {
  const atLeast = codec.tokensAtLeast(characters);
  if (atLeast >= limits.context) throw contextExceeded(`at least ${atLeast}`, limits);
}

function contextExceeded(tokens: string, { context }: PromptLimits): CoxswainError {
  return new CoxswainError(
    'CONTEXT_EXCEEDED',
    `The prompt has ${tokens} tokens, and the context of this cluster holds ${context} for prompt ` +
      'and answer together: send less.',
  );
}

function checkTokens(tokens: readonly number[], codec: PromptCodec, limits: PromptLimits): void {
  if (tokens.length === 0) {
    throw new CoxswainError('REQUEST_INVALID', 'The prompt is empty.', { field: 'prompt' });
  }
  const stranger = tokens.find((id) => !Number.isInteger(id) || id < 0 || id >= codec.vocabSize);
  if (stranger !== undefined) {
    throw new CoxswainError(
      'REQUEST_INVALID',
      `${stranger} is no token of this model; ids go from 0 to ${codec.vocabSize - 1}.`,
      { field: 'prompt' },
    );
  }
  if (tokens.length >= limits.context) throw contextExceeded(String(tokens.length), limits);
}

/** Bounds outside of which the engine refuses the whole step, on every rank. */
const SAMPLER_BOUNDS = [
  { key: 'temperature', field: 'temperature', least: 0, most: 1e6 },
  { key: 'topP', field: 'top_p', least: 0, most: 1 },
  { key: 'topK', field: 'top_k', least: 0, most: 2 ** 31 - 1 },
  { key: 'minP', field: 'min_p', least: 0, most: 1 },
  { key: 'repetitionPenalty', field: 'repetition_penalty', least: 0, most: 1e6 },
  { key: 'presencePenalty', field: 'presence_penalty', least: -1e6, most: 1e6 },
  { key: 'frequencyPenalty', field: 'frequency_penalty', least: -1e6, most: 1e6 },
] as const;

function checkSamplerBounds(request: InferenceRequest): void {
  for (const { key, field, least, most } of SAMPLER_BOUNDS) {
    const value = request[key];
    if (value >= least && value <= most) continue; // NaN is in no range
    const sentence = `${field} must be between ${least} and ${most}, not ${value}.`;
    throw new CoxswainError('REQUEST_INVALID', sentence, { field });
  }
}

function checkSampling(request: InferenceRequest, codec: PromptCodec): void {
  checkSamplerBounds(request);
  const { topLogprobs, logitBias, maxTokens, choices, seed } = request;
  if (topLogprobs > TOP_LOGPROBS_MAX) {
    throw new CoxswainError(
      'REQUEST_INVALID',
      `At most ${TOP_LOGPROBS_MAX} log probabilities a token are given, not ${topLogprobs}.`,
      { field: 'top_logprobs' },
    );
  }
  if (maxTokens !== null && (!Number.isInteger(maxTokens) || maxTokens < 1)) {
    throw new CoxswainError('REQUEST_INVALID', 'max_tokens must be a whole number, at least 1.', {
      field: 'max_tokens',
    });
  }
  if (seed !== null && !Number.isInteger(seed)) {
    throw new CoxswainError('REQUEST_INVALID', 'seed must be a whole number.', { field: 'seed' });
  }
  if (!Number.isInteger(choices) || choices < 1) {
    throw new CoxswainError('REQUEST_INVALID', 'n must be at least 1.', { field: 'n' });
  }
  const stranger = logitBias.find(([id]) => id < 0 || id >= codec.vocabSize);
  if (stranger !== undefined) {
    throw new CoxswainError(
      'REQUEST_INVALID',
      `logit_bias names ${stranger[0]}, which is no token of this model.`,
      { field: 'logit_bias' },
    );
  }
}

function randomSeed(): bigint {
  return randomBytes(8).readBigUInt64LE();
}
