// Numbers of repeated measurements: alternation, medians, and claims with their bound. Pure but for what the
// measures themselves do.

export const median = (values) => {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[sorted.length >> 1];
};

/**
 * Runs every measure once a round, `runs` rounds, so that a slow minute hits all of them. Returns the samples by
 * name, in order of rounds. A measure that returns null (its tool is missing) is left out from then on.
 */
export async function alternate(runs, measures) {
  const left = new Map(Object.entries(measures));
  const samples = {};
  for (let run = 0; run < runs; run++) {
    for (const [name, measure] of left) {
      const value = await measure();
      if (value === null) left.delete(name);
      else {
        samples[name] ??= [];
        samples[name].push(value);
      }
    }
  }
  return samples;
}

/** Median of the quotients of each round: what both suffered in that round cancels out. */
export function ratioOf(above, below) {
  if (!above?.length || !below?.length) return null;
  return median(above.map((value, round) => value / below[Math.min(round, below.length - 1)]));
}

/** A figure held to a bound. `value` null: not measured here, neither met nor missed. */
export const atLeast = (value, least) => ({
  value,
  least,
  met: value === null ? null : value >= least,
});
export const atMost = (value, most) => ({
  value,
  most,
  met: value === null ? null : value <= most,
});

/** A figure for information, in a column of its own. */
export const figure = (value) => ({ value: value ?? null });
