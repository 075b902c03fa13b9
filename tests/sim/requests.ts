// Short ways to say the requests of tests.
import type { SamplerParams } from '../../src/base/step-record.ts';
import type { GenerateRequest, ScoreRequest } from '../../src/coordinator/core/events.ts';

/** Real numbers as the wire carries them, so that the twin draws with the same ones. */
export function sampler(
  promptLength: number,
  maxTokens: number,
  more: Partial<SamplerParams> = {},
): SamplerParams {
  const { temperature = 0, topP = 1, minP = 0, repetitionPenalty = 1 } = more;
  const { presencePenalty = 0, frequencyPenalty = 0, bias = [] } = more;
  return {
    topK: 0,
    seed: 1n,
    choice: 0,
    promptLength,
    lengthMax: promptLength + maxTokens,
    topLogprobs: 0,
    wantLogprob: false,
    stopIds: [],
    ...more,
    temperature: Math.fround(temperature),
    topP: Math.fround(topP),
    minP: Math.fround(minP),
    repetitionPenalty: Math.fround(repetitionPenalty),
    presencePenalty: Math.fround(presencePenalty),
    frequencyPenalty: Math.fround(frequencyPenalty),
    bias: bias.map(([id, value]) => [id, Math.fround(value)] as const),
  };
}

export function generate(
  id: string,
  tokens: readonly number[],
  maxTokens: number,
  more: Partial<Omit<GenerateRequest, 'sampler'>> & { sampler?: Partial<SamplerParams> } = {},
): GenerateRequest {
  const { sampler: params, ...rest } = more;
  return {
    kind: 'generate',
    id,
    tokens,
    choices: 1,
    scope: '',
    ...rest,
    sampler: sampler(tokens.length, maxTokens, params),
  };
}

export function score(
  id: string,
  tokens: readonly number[],
  wants: ScoreRequest['wants'],
  chunk: number | null = null,
): ScoreRequest {
  return { kind: 'score', id, tokens, wants, chunk };
}

/** `count` ids that look random and depend on `salt`. */
export function prompt(count: number, salt: number, vocab = 60): number[] {
  return Array.from({ length: count }, (_, index) => {
    const mixed = Math.imul(index + 1, 0x9e3779b1) ^ Math.imul(salt + 1, 0x85ebca6b);
    return (Math.imul(mixed ^ (mixed >>> 15), 0x2c1b3c6d) >>> 8) % vocab;
  });
}
