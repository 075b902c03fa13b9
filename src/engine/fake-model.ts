// The arithmetic of FakeEngine: a "model" of hash functions whose answer depends on everything a real
// one's depends on: every earlier row of the slot in its order, the ids, the positions, and every
// (layer, head), each of which belongs to one rank. Wrong blocks, a wrong length, a missing share or a
// lost row change the answer; the split of shares over ranks and the cut of chunks do not.
import type { Output, OutputResult, SamplerParams } from '../base/step-record.ts';

export interface FakeShape {
  readonly layers: number;
  readonly heads: number;
  readonly vocab: number;
}

/** One (layer, head): it keeps one 32-bit row a token. */
export interface FakeUnit {
  readonly layer: number;
  readonly head: number;
}

/** The row of a token, given the fold of all rows before it. */
export function fakeRow(unit: FakeUnit, pos: number, id: number, fold: number): number {
  const place = Math.imul(unit.layer + 1, 0x9e3779b1) ^ Math.imul(unit.head + 1, 0x85ebca77);
  return mix(place ^ Math.imul(pos + 1, 0xc2b2ae3d) ^ Math.imul(id + 1, 0x27d4eb2f) ^ fold);
}

/** Folds the row at `pos` into the fold of the rows before it. Starts at 0. */
export function foldRow(fold: number, pos: number, row: number): number {
  return (fold + Math.imul(row ^ pos, 0x165667b1)) | 0;
}

/** What one unit adds to the hidden value of a row. Units are added up in any order. */
export function fakePartial(unit: FakeUnit, row: number): number {
  return mix(row ^ Math.imul(unit.layer * 131 + unit.head + 7, 0x9e3779b1));
}

/** Logits of a row from the sum of all partials: (vocab). */
export function fakeLogits(hidden: number, vocab: number): Float32Array {
  const logits = new Float32Array(vocab);
  for (let id = 0; id < vocab; id += 1) {
    logits[id] = ((mix(hidden ^ Math.imul(id + 1, 0x85ebca6b)) >>> 8) / 0x1000000) * 12 - 6;
  }
  return logits;
}

/** Samples by the rules of the native sampler: a pure function of (params, ids, logits). */
export function fakeSample(
  params: SamplerParams,
  ids: readonly number[],
  logits: Float32Array,
): Extract<OutputResult, { want: 'token'; skipped: false }> {
  const pos = ids.length;
  const adjusted = Float32Array.from(logits);
  for (const [id, bias] of params.bias) adjusted[id] = (adjusted[id] ?? 0) + bias;
  penalise(adjusted, params, ids);
  const candidates = order(adjusted);
  const id =
    params.temperature > 0 ? draw(params, candidates, adjusted, pos) : (candidates[0] ?? 0);
  const sum = params.wantLogprob || params.topLogprobs > 0 ? logSumExp(adjusted) : 0;
  const isLast = pos + 1 >= params.lengthMax;
  const finish = params.stopIds.includes(id) ? 'stop' : isLast ? 'length' : 'no';
  const top = candidates
    .slice(0, params.topLogprobs)
    .map((each) => [each, (adjusted[each] ?? 0) - sum] as const);
  const logprob = params.wantLogprob ? (adjusted[id] ?? 0) - sum : 0;
  return { want: 'token', skipped: false, id, finish, logprob, top };
}

export function fakeScore(logits: Float32Array, target: number | null): OutputResult {
  const candidates = order(logits);
  const best = candidates[0] ?? 0;
  const value = (id: number) => logits[id] ?? 0;
  return {
    want: 'score',
    skipped: false,
    argmax: best,
    gap: value(best) - value(candidates[1] ?? best),
    logsumexp: logSumExp(logits),
    targetLogit: target === null ? 0 : value(target),
    top: candidates.slice(0, 40).map((id) => [id, value(id)] as const),
  };
}

/** The answer to one output, given its logits, its slot's sampler and ids. */
export function fakeOutput(
  output: Output,
  logits: Float32Array,
  sampler: SamplerParams | null,
  ids: readonly number[],
): OutputResult {
  if (output.want === 'logits') return { want: 'logits', skipped: false, logits };
  if (output.want === 'score') return fakeScore(logits, output.target);
  if (sampler === null) return { want: 'token', skipped: true };
  return fakeSample(sampler, ids, logits);
}

function penalise(logits: Float32Array, params: SamplerParams, ids: readonly number[]): void {
  const { repetitionPenalty, presencePenalty, frequencyPenalty, promptLength } = params;
  if (repetitionPenalty === 1 && presencePenalty === 0 && frequencyPenalty === 0) return;
  const generated = new Map<number, number>();
  for (const id of ids.slice(promptLength)) generated.set(id, (generated.get(id) ?? 0) + 1);
  for (const id of new Set(ids)) {
    const logit = logits[id] ?? 0;
    logits[id] = logit > 0 ? logit / repetitionPenalty : logit * repetitionPenalty;
  }
  for (const [id, count] of generated) {
    logits[id] = (logits[id] ?? 0) - presencePenalty - frequencyPenalty * count;
  }
}

/** Ids by (logit descending, id ascending). */
function order(logits: Float32Array): number[] {
  return Array.from(logits.keys()).sort((a, b) => (logits[b] ?? 0) - (logits[a] ?? 0) || a - b);
}

/** Temperature, top-k, top-p, min-p; the random number is a function of (seed, choice, position). */
function draw(
  params: SamplerParams,
  candidates: readonly number[],
  logits: Float32Array,
  pos: number,
): number {
  const kept = params.topK > 0 ? candidates.slice(0, params.topK) : candidates;
  const best = logits[kept[0] ?? 0] ?? 0;
  const weights = kept.map((id) => Math.exp(((logits[id] ?? 0) - best) / params.temperature));
  const total = weights.reduce((a, b) => a + b, 0);
  let count = 0;
  let mass = 0;
  for (const weight of weights) {
    if (count > 0 && (mass >= params.topP * total || weight < params.minP)) break;
    mass += weight;
    count += 1;
  }
  const seed = Number(params.seed & 0xffffffffn) ^ Number((params.seed >> 32n) & 0xffffffffn);
  const noise = mix(seed ^ Math.imul(params.choice + 1, 0x9e3779b1) ^ Math.imul(pos, 0xc2b2ae3d));
  let left = ((noise >>> 0) / 0x100000000) * mass;
  for (let index = 0; index < count; index += 1) {
    left -= weights[index] ?? 0;
    if (left < 0) return kept[index] ?? 0;
  }
  return kept[count - 1] ?? 0;
}

function logSumExp(logits: Float32Array): number {
  let max = Number.NEGATIVE_INFINITY;
  for (const logit of logits) max = Math.max(max, logit);
  let sum = 0;
  for (const logit of logits) sum += Math.exp(logit - max);
  return max + Math.log(sum);
}

function mix(value: number): number {
  let hash = value | 0;
  hash = Math.imul(hash ^ (hash >>> 16), 0x7feb352d);
  hash = Math.imul(hash ^ (hash >>> 15), 0x846ca68b);
  return hash ^ (hash >>> 16);
}
