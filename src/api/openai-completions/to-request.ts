// POST /v1/completions -> one InferenceRequest a prompt. Choice numbers on the wire run through all
// prompts: prompt p's choice c is p * n + c.
import { CoxswainError } from '../../base/errors.ts';
import type { Prompt } from '../backend.ts';
import type { ApiCall, CallContext } from '../call.ts';
import { asObject, countIgnored, parseFields, refuseUnsupported, samplingOf } from '../fields.ts';
import { CompletionAnswer } from './answer.ts';
import { CompletionFrames } from './chunks.ts';
import {
  type CompletionBody,
  completionBody,
  DEFAULT_MAX_TOKENS,
  UNSUPPORTED_IN_COMPLETIONS,
} from './wire.ts';

export function parseCompletionCall(body: unknown, context: CallContext): ApiCall {
  const raw = asObject(body);
  refuseUnsupported(raw, UNSUPPORTED_IN_COMPLETIONS);
  const fields = parseFields(completionBody, raw);
  const prompts = toPrompts(fields.prompt);
  refuseCombinations(fields, prompts);
  const sampling = samplingOf(fields, context);
  const id = `cmpl-${context.callId}`;
  const topLogprobs = fields.logprobs ?? null;
  const shape = {
    id,
    created: context.nowSeconds,
    model: fields.model || sampling.model,
    choicesPerPrompt: sampling.choices,
    echoes: prompts.map((prompt) => (fields.echo && prompt.kind === 'text' ? prompt.text : '')),
    topLogprobs,
    includeUsage: fields.stream_options?.include_usage ?? false,
  };
  return {
    model: shape.model,
    streamed: fields.stream ?? false,
    requests: prompts.map((prompt, index) => ({
      ...sampling,
      id: prompts.length === 1 ? id : `${id}-${index}`,
      prompt,
      maxTokens: fields.max_tokens ?? DEFAULT_MAX_TOKENS,
      logprobs: topLogprobs !== null,
      topLogprobs: topLogprobs ?? 0,
    })),
    ignoredFields: countIgnored(raw, Object.keys(completionBody.shape), UNSUPPORTED_IN_COMPLETIONS),
    stream: () => new CompletionFrames(shape),
    whole: () => new CompletionAnswer(shape),
  };
}

function toPrompts(prompt: CompletionBody['prompt']): readonly Prompt[] {
  if (typeof prompt === 'string') return [{ kind: 'text', text: prompt }];
  if (isTokenIds(prompt)) return [{ kind: 'tokens', tokens: prompt }];
  return prompt.map((one) =>
    typeof one === 'string' ? { kind: 'text', text: one } : { kind: 'tokens', tokens: one },
  );
}

function isTokenIds(prompt: string[] | number[] | number[][]): prompt is number[] {
  return typeof prompt[0] === 'number';
}

function refuseCombinations(fields: CompletionBody, prompts: readonly Prompt[]): void {
  const choices = fields.n ?? 1;
  if ((fields.best_of ?? choices) !== choices) {
    throw new CoxswainError(
      'FIELD_UNSUPPORTED',
      'best_of is not supported by this server unless it equals n; leave it out.',
      { field: 'best_of' },
    );
  }
  if (!fields.echo) return;
  // Echoed tokens would need the logprobs of the prompt, which no step computes.
  if ((fields.logprobs ?? null) !== null) throw unsupportedEcho('together with logprobs');
  if (prompts.some((prompt) => prompt.kind !== 'text')) {
    throw unsupportedEcho('for prompts of token ids');
  }
}

function unsupportedEcho(when: string): CoxswainError {
  const sentence = `echo is not supported by this server ${when}; leave it out.`;
  return new CoxswainError('FIELD_UNSUPPORTED', sentence, { field: 'echo' });
}
