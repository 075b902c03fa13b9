// Requests and answers of the fake cluster's tests.
import type { InferenceEvent, InferenceRequest } from '../../../../src/api/backend.ts';
import { type CoxswainError, toCoxswainError } from '../../../../src/base/errors.ts';
import type { Cluster } from '../../../../src/coordinator/shell/open-cluster.ts';

export function request(more: Partial<InferenceRequest> = {}): InferenceRequest {
  return {
    id: 'r1',
    model: 'fake',
    prompt: { kind: 'text', text: 'hello world' },
    maxTokens: 40,
    temperature: 0,
    topP: 1,
    topK: 0,
    minP: 0,
    repetitionPenalty: 1,
    presencePenalty: 0,
    frequencyPenalty: 0,
    logitBias: [],
    seed: 7,
    stop: [],
    choices: 1,
    logprobs: false,
    topLogprobs: 0,
    ignoreEos: true,
    scope: 'test',
    ...more,
  };
}

export interface Answer {
  readonly texts: string[];
  readonly events: InferenceEvent[];
}

const never = new AbortController().signal;

/** `onText` is told how many pieces of text have come. */
export async function answerOf(
  cluster: Cluster,
  wanted: InferenceRequest,
  onText?: (count: number) => void,
): Promise<Answer> {
  const texts = Array.from({ length: wanted.choices }, () => '');
  const events: InferenceEvent[] = [];
  let count = 0;
  for await (const event of cluster.backend.infer(wanted, never)) {
    events.push(event);
    if (event.type !== 'text-delta') continue;
    texts[event.choice] += event.text;
    count += 1;
    onText?.(count);
  }
  return { texts, events };
}

export async function failureOf(work: () => Promise<unknown>): Promise<CoxswainError> {
  try {
    await work();
  } catch (thrown) {
    return toCoxswainError(thrown);
  }
  throw new Error('it did not fail');
}
