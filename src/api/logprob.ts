// JSON has no minus infinity; OpenAI writes this number for a token that cannot occur.
const IMPOSSIBLE_LOGPROB = -9999;

/** Natural logarithm of a probability, as a number that JSON can carry. */
export function finiteLogprob(logprob: number): number {
  return Math.max(logprob, IMPOSSIBLE_LOGPROB);
}
