// Events of one request -> one chat.completion object.
import type { TokenLogprob } from '../backend.ts';
import type { BodyMaker, CallUsage } from '../call.ts';
import type { CallEvent } from '../inference.ts';
import { type ChatShape, chatLogprobs, chatUsage } from './chunks.ts';

interface Choice {
  readonly text: string[];
  readonly logprobs: TokenLogprob[];
  finish: string | null;
}

export class ChatAnswer implements BodyMaker {
  private readonly shape: ChatShape;
  private readonly choices: readonly Choice[];

  constructor(shape: ChatShape) {
    this.shape = shape;
    this.choices = Array.from({ length: shape.choices }, () => ({
      text: [],
      logprobs: [],
      finish: null,
    }));
  }

  add({ event }: CallEvent): void {
    if (event.type !== 'text-delta' && event.type !== 'choice-end') return;
    const choice = this.choices[event.choice];
    if (choice === undefined) return;
    if (event.type === 'choice-end') {
      choice.finish = event.reason;
      return;
    }
    choice.text.push(event.text);
    choice.logprobs.push(...event.logprobs);
  }

  body(usage: CallUsage): object {
    return {
      id: this.shape.id,
      object: 'chat.completion',
      created: this.shape.created,
      model: this.shape.model,
      choices: this.choices.map((choice, index) => ({
        index,
        message: { role: 'assistant', content: choice.text.join(''), refusal: null },
        logprobs: this.shape.logprobs ? chatLogprobs(choice.logprobs) : null,
        finish_reason: choice.finish,
      })),
      usage: chatUsage(usage),
    };
  }
}
