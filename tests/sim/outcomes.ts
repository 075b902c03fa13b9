// What clients saw: collects the core's effects a request and checks, as they come, the promises that every
// request ends once, that nothing follows the end, and that accepted tokens are never taken back.
import { assert, present } from '../../src/base/assert.ts';
import type { AcceptedToken, CoreEffect, CoreRequest } from '../../src/coordinator/core/events.ts';

export interface ChoiceOutcome {
  readonly tokens: number[];
  readonly accepted: AcceptedToken[];
  reason: 'stop' | 'length' | null;
}

export interface Outcome {
  readonly request: CoreRequest;
  readonly choices: ChoiceOutcome[];
  readonly scores: Map<number, unknown>;
  cachedTokens: number | null;
  end: 'finished' | 'failed' | null;
  code: string | null;
  message: string | null;
  retryAfterSeconds: number | null;
}

export class Outcomes {
  readonly byId = new Map<string, Outcome>();
  open = 0;

  expect(request: CoreRequest): void {
    assert(!this.byId.has(request.id), 'ids of a test are unique');
    const choices = request.kind === 'generate' ? request.choices : 0;
    this.byId.set(request.id, {
      request,
      choices: Array.from({ length: choices }, () => ({ tokens: [], accepted: [], reason: null })),
      scores: new Map(),
      cachedTokens: null,
      end: null,
      code: null,
      message: null,
      retryAfterSeconds: null,
    });
    this.open += 1;
  }

  get(id: string): Outcome {
    return present(this.byId.get(id), `request ${id} is known`);
  }

  tokens(id: string, choice = 0): readonly number[] {
    return present(this.get(id).choices[choice], 'the choice exists').tokens;
  }

  take(effect: CoreEffect): void {
    if (!('id' in effect)) return;
    const outcome = this.get(effect.id);
    assert(outcome.end === null, `nothing follows the end of ${effect.id}`);
    switch (effect.type) {
      case 'request-started':
        assert(outcome.cachedTokens === null, `${effect.id} starts once`);
        outcome.cachedTokens = effect.cachedTokens;
        break;
      case 'tokens': {
        const choice = present(outcome.choices[effect.choice], 'the choice exists');
        assert(choice.reason === null, `no token follows the end of ${effect.id}/${effect.choice}`);
        assert(outcome.cachedTokens !== null, `${effect.id} starts before its tokens`);
        choice.accepted.push(...effect.tokens);
        choice.tokens.push(...effect.tokens.map(({ id }) => id));
        break;
      }
      case 'choice-finished': {
        const choice = present(outcome.choices[effect.choice], 'the choice exists');
        assert(choice.reason === null, `${effect.id}/${effect.choice} ends once`);
        choice.reason = effect.reason;
        break;
      }
      case 'scores':
        for (const { pos, result } of effect.scores) {
          assert(!outcome.scores.has(pos), `position ${pos} of ${effect.id} is scored once`);
          outcome.scores.set(pos, result);
        }
        break;
      case 'request-finished':
        for (const choice of outcome.choices) {
          assert(choice.reason !== null, `${effect.id} ends after its choices`);
        }
        this.close(outcome, 'finished');
        break;
      case 'request-failed':
        outcome.code = effect.code;
        outcome.message = effect.message;
        outcome.retryAfterSeconds = effect.retryAfterSeconds;
        this.close(outcome, 'failed');
        break;
    }
  }

  private close(outcome: Outcome, end: 'finished' | 'failed'): void {
    outcome.end = end;
    this.open -= 1;
  }
}
