// Events of one request -> chat.completion.chunk objects, in the order every client accepts: a role
// chunk a choice, content chunks, one finish chunk a choice, then (if asked) one usage chunk with no
// choices. finish_reason appears exactly once a choice.
import type { InferenceEvent, TokenLogprob } from '../backend.ts';
import type { CallUsage, FrameMaker } from '../call.ts';
import type { CallEvent } from '../inference.ts';
import { finiteLogprob } from '../logprob.ts';

export interface ChatShape {
  readonly id: string;
  /** Unix time in seconds. */
  readonly created: number;
  readonly model: string;
  readonly choices: number;
  readonly logprobs: boolean;
  readonly includeUsage: boolean;
}

export class ChatFrames implements FrameMaker {
  private readonly shape: ChatShape;

  constructor(shape: ChatShape) {
    this.shape = shape;
  }

  frames({ event }: CallEvent): readonly object[] {
    switch (event.type) {
      case 'request-start':
        return Array.from({ length: this.shape.choices }, (_, index) =>
          this.chunk(index, { role: 'assistant', content: '' }, null),
        );
      case 'text-delta':
        return this.delta(event);
      case 'choice-end':
        return [this.chunk(event.choice, {}, event.reason)];
      case 'recovering':
      case 'response-end':
        return [];
    }
  }

  last(usage: CallUsage): readonly object[] {
    if (!this.shape.includeUsage) return [];
    return [{ ...this.head(), choices: [], usage: chatUsage(usage) }];
  }

  private delta(event: Extract<InferenceEvent, { type: 'text-delta' }>): readonly object[] {
    if (event.text === '' && event.logprobs.length === 0) return [];
    const chunk = this.chunk(event.choice, { content: event.text }, null);
    if (!this.shape.logprobs) return [chunk];
    const [choice] = chunk.choices;
    return [{ ...chunk, choices: [{ ...choice, logprobs: chatLogprobs(event.logprobs) }] }];
  }

  private chunk(index: number, delta: object, finish: string | null) {
    return {
      ...this.head(),
      choices: [{ index, delta, logprobs: null, finish_reason: finish }],
      // OpenAI sends the key in every chunk once usage was asked for.
      ...(this.shape.includeUsage ? { usage: null } : {}),
    };
  }

  private head() {
    return {
      id: this.shape.id,
      object: 'chat.completion.chunk',
      created: this.shape.created,
      model: this.shape.model,
    };
  }
}

export function chatLogprobs(tokens: readonly TokenLogprob[]) {
  return {
    content: tokens.map((token) => ({
      token: token.text,
      logprob: finiteLogprob(token.logprob),
      bytes: token.bytes,
      top_logprobs: token.top.map((other) => ({
        token: other.text,
        logprob: finiteLogprob(other.logprob),
        bytes: other.bytes,
      })),
    })),
    refusal: null,
  };
}

export function chatUsage(usage: CallUsage) {
  return {
    prompt_tokens: usage.promptTokens,
    completion_tokens: usage.completionTokens,
    total_tokens: usage.promptTokens + usage.completionTokens,
    prompt_tokens_details: { cached_tokens: usage.cachedTokens },
  };
}
