// Events -> text_completion chunks, and the integer form of logprobs that this API uses.
import type { InferenceEvent, TokenLogprob } from '../backend.ts';
import type { CallUsage, FrameMaker } from '../call.ts';
import type { CallEvent } from '../inference.ts';
import { finiteLogprob } from '../logprob.ts';
import { chatUsage } from '../openai-chat/chunks.ts';

export interface CompletionShape {
  readonly id: string;
  /** Unix time in seconds. */
  readonly created: number;
  readonly model: string;
  readonly choicesPerPrompt: number;
  /** Text in front of every choice of a prompt; one entry a prompt. */
  readonly echoes: readonly string[];
  /** null: no logprobs. */
  readonly topLogprobs: number | null;
  readonly includeUsage: boolean;
}

type TextDelta = Extract<InferenceEvent, { type: 'text-delta' }>;

export class CompletionFrames implements FrameMaker {
  private readonly shape: CompletionShape;
  /** Characters sent so far, by wire index. */
  private readonly sent = new Map<number, number>();

  constructor(shape: CompletionShape) {
    this.shape = shape;
  }

  frames({ request, event }: CallEvent): readonly object[] {
    switch (event.type) {
      case 'request-start':
        return this.echo(request);
      case 'text-delta':
        return this.delta(request, event);
      case 'choice-end':
        return [this.chunk(wireIndex(this.shape, request, event.choice), '', event.reason)];
      case 'recovering':
      case 'response-end':
        return [];
    }
  }

  last(usage: CallUsage): readonly object[] {
    if (!this.shape.includeUsage) return [];
    return [{ ...this.head(), choices: [], usage: chatUsage(usage) }];
  }

  private echo(request: number): readonly object[] {
    const text = this.shape.echoes[request] ?? '';
    if (text === '') return [];
    return Array.from({ length: this.shape.choicesPerPrompt }, (_, choice) =>
      this.chunk(wireIndex(this.shape, request, choice), text, null),
    );
  }

  private delta(request: number, event: TextDelta): readonly object[] {
    if (event.text === '' && event.logprobs.length === 0) return [];
    const index = wireIndex(this.shape, request, event.choice);
    const offset = this.sent.get(index) ?? (this.shape.echoes[request] ?? '').length;
    this.sent.set(index, offset + event.text.length);
    const chunk = this.chunk(index, event.text, null);
    if (this.shape.topLogprobs === null) return [chunk];
    const logprobs = newLogprobs(this.shape.topLogprobs);
    addLogprobs(logprobs, event, offset);
    const [choice] = chunk.choices;
    return [{ ...chunk, choices: [{ ...choice, logprobs }] }];
  }

  private chunk(index: number, text: string, finish: string | null) {
    return {
      ...this.head(),
      choices: [{ index, text, logprobs: null, finish_reason: finish }],
      ...(this.shape.includeUsage ? { usage: null } : {}),
    };
  }

  private head() {
    return {
      id: this.shape.id,
      object: 'text_completion',
      created: this.shape.created,
      model: this.shape.model,
    };
  }
}

export interface CompletionLogprobs {
  readonly tokens: string[];
  readonly token_logprobs: number[];
  /** null where no alternatives were asked for. */
  readonly top_logprobs: Record<string, number>[] | null;
  /** Of each token in the choice's text, in UTF-16 units, echo included. */
  readonly text_offset: number[];
}

export function newLogprobs(top: number): CompletionLogprobs {
  return {
    tokens: [],
    token_logprobs: [],
    top_logprobs: top > 0 ? [] : null,
    text_offset: [],
  };
}

/** Appends one delta whose text starts at `offset`. */
export function addLogprobs(into: CompletionLogprobs, delta: TextDelta, offset: number): void {
  const end = offset + delta.text.length;
  let at = offset;
  for (const token of delta.logprobs) {
    into.tokens.push(token.text);
    into.token_logprobs.push(finiteLogprob(token.logprob));
    into.top_logprobs?.push(alternatives(token));
    into.text_offset.push(at);
    // Text that is held back for a split character is longer here than in the delta.
    at = Math.min(end, at + token.text.length);
  }
}

export function wireIndex(shape: CompletionShape, request: number, choice: number): number {
  return request * shape.choicesPerPrompt + choice;
}

function alternatives(token: TokenLogprob): Record<string, number> {
  // fromEntries, so that a token spelled __proto__ is a key like any other. Two ids may share one
  // spelling (split characters): the likelier comes last and stays.
  const entries = [...token.top].reverse();
  return Object.fromEntries(entries.map((one) => [one.text, finiteLogprob(one.logprob)]));
}
