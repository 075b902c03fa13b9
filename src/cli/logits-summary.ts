// What a line of `cox logits` says about one row of logits: as the engine's own scores do.

export interface LogitsSummary {
  readonly argmax: number;
  /** Best minus second. */
  readonly gap: number;
  readonly logsumexp: number;
  readonly top: readonly (readonly [id: number, logit: number])[];
}

const TOP_COUNT = 40;

/** Order: logit descending, id ascending. */
export function summarizeLogits(logits: Float32Array): LogitsSummary {
  const top = topOf(logits, TOP_COUNT);
  const [best = [0, Number.NaN], second = best] = top;
  let sum = 0;
  for (const logit of logits) sum += Math.exp(logit - best[1]);
  return { argmax: best[0], gap: best[1] - second[1], logsumexp: best[1] + Math.log(sum), top };
}

function topOf(logits: Float32Array, count: number): [number, number][] {
  const ids = Array.from(logits.keys()).sort(
    (a, b) => (logits[b] ?? 0) - (logits[a] ?? 0) || a - b,
  );
  return ids.slice(0, count).map((id) => [id, logits[id] ?? 0]);
}
