// Random clients: prompts that share prefixes, choices, scores, samplers, clients that hang up or find their
// stop string; and what each of them must have seen when all is over.
import { assert, present } from '../../src/base/assert.ts';
import type { Prng } from '../../src/base/prng.ts';
import type {
  CoreRequest,
  GenerateRequest,
  ScoreRequest,
} from '../../src/coordinator/core/events.ts';
import type { FakeShape } from '../../src/engine/fake-model.ts';
import { naiveGenerate, naiveLogits } from './naive.ts';
import type { ChoiceOutcome, Outcome } from './outcomes.ts';
import { generate, prompt, score } from './requests.ts';

/** An id that kills the rank that computes it, where a simulation says so. Nobody else ever has it. */
export const POISON = 60;

export interface Visit {
  readonly at: number;
  readonly request: CoreRequest;
  /** The client finds its stop string after so many tokens of any choice. */
  readonly stopAfter: number | null;
  /** The client hangs up so long after it came. */
  readonly hangsUpAfter: number | null;
}

export interface WorkloadOptions {
  readonly visits: number;
  readonly withinMs: number;
  readonly promptMax: number;
  readonly answerMax: number;
}

export function randomWorkload(prng: Prng, shape: FakeShape, options: WorkloadOptions): Visit[] {
  const families = 1 + prng.below(3);
  const visits: Visit[] = [];
  for (let index = 0; index < options.visits; index += 1) {
    const earlier = visits[prng.below(visits.length + 1)];
    const tokens =
      earlier !== undefined && prng.chance(0.5)
        ? nextTurn(prng, shape, earlier.request)
        : familyTokens(prng, prng.below(families), 1 + prng.below(options.promptMax));
    const request = randomRequest(prng, `r${index}`, tokens.slice(0, options.promptMax), options);
    visits.push({
      at: prng.below(options.withinMs),
      request,
      stopAfter: prng.chance(0.2) ? 1 + prng.below(6) : null,
      hangsUpAfter: prng.chance(0.15) ? prng.below(options.withinMs) : null,
    });
  }
  return visits;
}

/** Tokens of one family are prefixes of each other up to a point, then differ. */
function familyTokens(prng: Prng, family: number, length: number): number[] {
  const common = prng.below(length + 1);
  return [...prompt(common, family), ...prompt(length - common, 100 + prng.below(4))];
}

/** The history of an earlier request, its answer (or a part of it), and something more. */
function nextTurn(prng: Prng, shape: FakeShape, earlier: CoreRequest): number[] {
  const { tokens } = earlier;
  if (earlier.kind === 'score') return [...tokens, prng.below(60)];
  const answer = naiveGenerate(shape, tokens, earlier.sampler).tokens;
  const kept = prng.chance(0.5) ? answer : answer.slice(0, prng.below(answer.length + 1));
  // Zeros are what unset ids look like: a row taken for known too early would match them.
  const more = prng.chance(0.3) ? [0, 0, 0, 0] : prompt(1 + prng.below(6), 200 + prng.below(9));
  return [...tokens, ...kept, ...more];
}

function randomRequest(
  prng: Prng,
  id: string,
  tokens: number[],
  { answerMax }: WorkloadOptions,
): CoreRequest {
  if (prng.chance(0.15)) return randomScore(prng, id, tokens);
  const stopIds = prng.chance(0.5) ? [prng.below(60), prng.below(60)] : [];
  const isGreedy = prng.chance(0.5);
  return generate(id, tokens, 1 + prng.below(answerMax), {
    choices: prng.chance(0.3) ? 2 + prng.below(2) : 1,
    scope: prng.chance(0.2) ? 'other' : '',
    sampler: {
      temperature: isGreedy ? 0 : 1.3,
      topK: prng.chance(0.3) ? 10 : 0,
      topP: prng.chance(0.3) ? 0.9 : 1,
      seed: BigInt(prng.u32()),
      repetitionPenalty: prng.chance(0.3) ? 1.2 : 1,
      presencePenalty: prng.chance(0.2) ? 0.5 : 0,
      topLogprobs: prng.chance(0.2) ? 3 : 0,
      stopIds,
      bias: [[POISON, -1_000]],
    },
  });
}

function randomScore(prng: Prng, id: string, tokens: number[]): ScoreRequest {
  const wants = new Map<number, { want: 'score'; target: number | null } | { want: 'logits' }>();
  for (const pos of tokens.keys()) {
    if (prng.chance(0.4)) wants.set(pos, { want: 'score', target: prng.below(61) });
    else if (prng.chance(0.1)) wants.set(pos, { want: 'logits' });
  }
  return score(id, tokens, wants, prng.chance(0.5) ? 1 + prng.below(12) : null);
}

/** Whether the client, who has seen these tokens, stops the choice now. */
export function stopsNow(visit: Visit, choice: ChoiceOutcome): boolean {
  if (visit.stopAfter === null || choice.reason !== null) return false;
  return choice.tokens.length >= visit.stopAfter;
}

/** Throws unless the client saw exactly what an undisturbed, lonely request would have given it. */
export function checkVisit(
  shape: FakeShape,
  visit: Visit,
  outcome: Outcome,
  mayFail: readonly string[],
): void {
  const { request } = visit;
  assert(outcome.end !== null, `${request.id} ended`);
  if (request.kind === 'score') checkScores(shape, request, outcome);
  else checkChoices(shape, request, visit, outcome);
  if (outcome.end === 'finished') return;
  const allowed = visit.hangsUpAfter === null ? mayFail : [...mayFail, 'REQUEST_CANCELLED'];
  const said = `${outcome.code}: ${outcome.message}`;
  assert(allowed.includes(outcome.code ?? ''), `${request.id} failed with ${said}`);
}

function checkChoices(
  shape: FakeShape,
  request: GenerateRequest,
  visit: Visit,
  outcome: Outcome,
): void {
  for (const [index, seen] of outcome.choices.entries()) {
    const name = `${request.id}/${index}`;
    const whole = naiveGenerate(shape, request.tokens, { ...request.sampler, choice: index });
    const same = seen.tokens.every((id, at) => id === whole.tokens[at]);
    assert(same, `${name} saw ${seen.tokens} instead of ${whole.tokens}`);
    if (seen.reason === null) continue;
    const stopped = seen.reason === 'stop' && visit.stopAfter !== null;
    if (stopped && seen.tokens.length >= present(visit.stopAfter, 'set')) continue;
    assert(seen.tokens.length === whole.tokens.length, `${name} saw all of its answer`);
    assert(seen.reason === whole.reason, `${name} ended with ${seen.reason}`);
  }
}

function checkScores(shape: FakeShape, request: ScoreRequest, outcome: Outcome): void {
  const logits = naiveLogits(shape, request.tokens);
  for (const [pos, seen] of outcome.scores) {
    const wanted = present(request.wants.get(pos), `position ${pos} was asked for`);
    const row = present(logits[pos], 'a row a position');
    assert(typeof seen === 'object' && seen !== null, 'a score is an object');
    if (wanted.want === 'logits') {
      assert('logits' in seen && sameFloats(seen.logits, row), `logits at ${pos} are right`);
      continue;
    }
    const best = row.indexOf(Math.max(...row));
    assert(
      'argmax' in seen && seen.argmax === best,
      `argmax of ${request.id} at ${pos} is ${best}`,
    );
  }
  if (outcome.end !== 'finished') return;
  assert(outcome.scores.size === request.wants.size, `${request.id} got all its scores`);
}

function sameFloats(seen: unknown, right: Float32Array): boolean {
  return seen instanceof Float32Array && right.every((value, index) => value === seen[index]);
}
