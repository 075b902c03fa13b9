// A JSON array of token ids, as logits and detokenize take it.
import { CoxswainError } from '../base/errors.ts';

/** USAGE_INVALID names the element that is no id below `vocabSize`. */
export function parseTokens(json: string, vocabSize: number, from: string): number[] {
  let parsed: unknown;
  try {
    parsed = JSON.parse(json);
  } catch (cause) {
    throw new CoxswainError(
      'USAGE_INVALID',
      `${from} is not JSON: it must be an array of token ids`,
      { cause },
    );
  }
  if (!Array.isArray(parsed))
    throw new CoxswainError('USAGE_INVALID', `${from} must be a JSON array of token ids`);
  return parsed.map((id: unknown, index) => {
    if (!Number.isInteger(id) || (id as number) < 0 || (id as number) >= vocabSize) {
      throw new CoxswainError(
        'USAGE_INVALID',
        `element ${index} of ${from} is no token id (0 to ${vocabSize - 1})`,
      );
    }
    return id as number;
  });
}
