// Pairwise covering arrays: few cells in which every pair of values of two factors meets at least once.
// Pure and deterministic, so that a failing cell has the same name on every machine.
import { createPrng, type Prng } from '../../src/base/prng.ts';

export type Factors = Readonly<Record<string, readonly string[]>>;
export type Cell = Readonly<Record<string, string>>;
/** Whether two values of different factors can never stand in one cell. */
export type Excludes = (
  a: readonly [factor: string, value: string],
  b: readonly [factor: string, value: string],
) => boolean;

type Choice = readonly [factor: string, value: string];

const keyOf = (a: Choice, b: Choice): string =>
  (a[0] < b[0] ? [...a, ...b] : [...b, ...a]).join('\u0000');

const clash = (excludes: Excludes, a: Choice, b: Choice) => excludes(a, b) || excludes(b, a);

/** Every pair of values that some cell may hold. */
export function allowedPairs(factors: Factors, excludes: Excludes): (readonly [Choice, Choice])[] {
  const choices = Object.entries(factors).map(([factor, values]) =>
    values.map((value): Choice => [factor, value]),
  );
  return choices
    .flatMap((first, index) =>
      choices
        .slice(index + 1)
        .flatMap((second) => first.flatMap((a) => second.map((b) => [a, b] as const))),
    )
    .filter(([a, b]) => !clash(excludes, a, b));
}

/** All cells, the last factor turning fastest. */
export function everyCell(factors: Factors, excludes: Excludes): Cell[] {
  let partial: Choice[][] = [[]];
  for (const [factor, values] of Object.entries(factors)) {
    partial = partial.flatMap((chosen) =>
      values
        .map((value): Choice => [factor, value])
        .filter((choice) => chosen.every((other) => !clash(excludes, other, choice)))
        .map((choice) => [...chosen, choice]),
    );
  }
  return partial.map((chosen) => Object.fromEntries(chosen));
}

/**
 * Greedy: seed a cell with the first pair still missing, then add the value that covers most. Ties are drawn by a
 * fixed seed, so that no two factors go in step.
 */
export function pairwiseCells(factors: Factors, excludes: Excludes): Cell[] {
  const missing = new Map(
    allowedPairs(factors, excludes).map((pair) => [keyOf(pair[0], pair[1]), pair]),
  );
  const cells: Cell[] = [];
  const prng = createPrng(1);
  for (const [a, b] of missing.values()) {
    if (!missing.has(keyOf(a, b))) continue;
    const chosen: Choice[] = [a, b];
    for (const [factor, values] of Object.entries(factors)) {
      if (factor === a[0] || factor === b[0]) continue;
      chosen.push(bestChoice({ factor, values, chosen, missing, excludes }, prng));
    }
    for (const [index, first] of chosen.entries()) {
      for (const second of chosen.slice(index + 1)) missing.delete(keyOf(first, second));
    }
    cells.push(Object.fromEntries(chosen));
  }
  return cells;
}

interface Candidates {
  readonly factor: string;
  readonly values: readonly string[];
  readonly chosen: readonly Choice[];
  readonly missing: ReadonlyMap<string, unknown>;
  readonly excludes: Excludes;
}

/** @throws where every value clashes */
function bestChoice(candidates: Candidates, prng: Prng): Choice {
  const { factor, values, chosen, missing, excludes } = candidates;
  let best: { readonly choice: Choice; readonly gain: number } | undefined;
  const start = prng.below(values.length);
  for (let offset = 0; offset < values.length; offset += 1) {
    const choice: Choice = [factor, values[(start + offset) % values.length] ?? ''];
    if (chosen.some((other) => clash(excludes, other, choice))) continue;
    const gain = chosen.filter((other) => missing.has(keyOf(other, choice))).length;
    if (best === undefined || gain > best.gain) best = { choice, gain };
  }
  if (best === undefined) {
    throw new Error(`no value of ${factor} goes with ${JSON.stringify(chosen)}`);
  }
  return best.choice;
}
