// The benchmark's arithmetic: what a median, a ratio and a claim are. Its figures stand in the README.
import { describe, expect, it } from 'vitest';

interface Claim {
  readonly value: number | null;
  readonly met: boolean | null;
}

interface Measure {
  median(values: readonly number[]): number;
  ratioOf(
    above: readonly number[] | undefined,
    below: readonly number[] | undefined,
  ): number | null;
  alternate(
    runs: number,
    measures: Record<string, () => number | null>,
  ): Promise<Record<string, number[]>>;
  atLeast(value: number | null, least: number): Claim;
  atMost(value: number | null, most: number): Claim;
}

const measure: Measure = await import(
  new URL('../../perf/bench/measure.mjs', import.meta.url).href
);

describe('repeated measurements', () => {
  it('take turns, round after round', async () => {
    const order: string[] = [];
    const note = (name: string, value: number) => () => {
      order.push(name);
      return value;
    };
    const samples = await measure.alternate(3, { a: note('a', 1), b: note('b', 2) });
    expect(order).toEqual(['a', 'b', 'a', 'b', 'a', 'b']);
    expect(samples).toEqual({ a: [1, 1, 1], b: [2, 2, 2] });
  });

  it('leave out for good what cannot be measured here', async () => {
    let asked = 0;
    const absent = () => {
      asked += 1;
      return null;
    };
    const samples = await measure.alternate(3, { ours: () => 5, absent });
    expect(samples).toEqual({ ours: [5, 5, 5] });
    expect(asked).toBe(1);
  });

  it('compare within each round, so that a slow round does not count', () => {
    expect(measure.ratioOf([20, 2, 20], [10, 1, 10])).toBe(2);
    expect(measure.ratioOf([20], undefined)).toBeNull();
  });

  it('count by the middle one', () => {
    expect(measure.median([9, 1, 5])).toBe(5);
  });
});

describe('claims', () => {
  it('are met, missed, or neither where nothing was measured', () => {
    expect(measure.atLeast(2, 1.5).met).toBe(true);
    expect(measure.atLeast(1, 1.5).met).toBe(false);
    expect(measure.atMost(1, 1.5).met).toBe(true);
    expect(measure.atLeast(null, 1.5).met).toBeNull();
  });
});
