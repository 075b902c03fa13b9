// Events of one or several prompts -> one text_completion object.
import type { BodyMaker, CallUsage } from '../call.ts';
import type { CallEvent } from '../inference.ts';
import { chatUsage } from '../openai-chat/chunks.ts';
import {
  addLogprobs,
  type CompletionLogprobs,
  type CompletionShape,
  newLogprobs,
  wireIndex,
} from './chunks.ts';

interface Choice {
  readonly text: string[];
  chars: number;
  readonly logprobs: CompletionLogprobs | null;
  finish: string | null;
}

export class CompletionAnswer implements BodyMaker {
  private readonly shape: CompletionShape;
  private readonly choices: readonly Choice[];

  constructor(shape: CompletionShape) {
    this.shape = shape;
    this.choices = shape.echoes.flatMap((echo) =>
      Array.from({ length: shape.choicesPerPrompt }, () => ({
        text: [echo],
        chars: echo.length,
        logprobs: shape.topLogprobs === null ? null : newLogprobs(shape.topLogprobs),
        finish: null,
      })),
    );
  }

  add({ request, event }: CallEvent): void {
    if (event.type !== 'text-delta' && event.type !== 'choice-end') return;
    const choice = this.choices[wireIndex(this.shape, request, event.choice)];
    if (choice === undefined) return;
    if (event.type === 'choice-end') {
      choice.finish = event.reason;
      return;
    }
    if (choice.logprobs !== null) addLogprobs(choice.logprobs, event, choice.chars);
    choice.text.push(event.text);
    choice.chars += event.text.length;
  }

  body(usage: CallUsage): object {
    return {
      id: this.shape.id,
      object: 'text_completion',
      created: this.shape.created,
      model: this.shape.model,
      choices: this.choices.map((choice, index) => ({
        index,
        text: choice.text.join(''),
        logprobs: choice.logprobs,
        finish_reason: choice.finish,
      })),
      usage: chatUsage(usage),
    };
  }
}
