// A request of the terminal to a cluster of this process.
import { randomUUID } from 'node:crypto';
import type { Cluster } from './cluster.ts';
import type { Flags } from './settings.ts';

type InferenceRequest = Parameters<Cluster['backend']['infer']>[0];
type InferenceEvent =
  ReturnType<Cluster['backend']['infer']> extends AsyncIterable<infer Event> ? Event : never;

export interface Usage {
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
}

export interface Answer {
  readonly text: string;
  readonly usage: Usage;
}

export function requestOf(prompt: InferenceRequest['prompt'], flags: Flags): InferenceRequest {
  const number = (name: string, fallback: number) =>
    typeof flags[name] === 'number' ? flags[name] : fallback;
  return {
    id: `terminal/${randomUUID()}`,
    model: '',
    prompt,
    maxTokens: typeof flags['max-tokens'] === 'number' ? flags['max-tokens'] : null,
    temperature: number('temperature', 0),
    topP: number('top-p', 1),
    topK: 0,
    minP: 0,
    repetitionPenalty: 1,
    presencePenalty: 0,
    frequencyPenalty: 0,
    logitBias: [],
    seed: typeof flags['seed'] === 'number' ? flags['seed'] : null,
    stop: [],
    choices: 1,
    logprobs: false,
    topLogprobs: 0,
    ignoreEos: false,
    scope: 'terminal',
  };
}

/** Streams the answer to `onText`; resolves with all of it. */
export async function answer(
  cluster: Cluster,
  request: InferenceRequest,
  signal: AbortSignal,
  onText: (text: string) => void,
): Promise<Answer> {
  let text = '';
  let usage: Usage = { promptTokens: 0, cachedTokens: 0, completionTokens: 0 };
  for await (const event of cluster.backend.infer(
    request,
    signal,
  ) as AsyncIterable<InferenceEvent>) {
    if (event.type === 'text-delta') {
      text += event.text;
      onText(event.text);
    } else if (event.type === 'response-end') {
      usage = event;
    }
  }
  return { text, usage };
}
