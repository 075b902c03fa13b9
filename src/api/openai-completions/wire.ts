// The body of POST /v1/completions: the fields that are read, and the table of those that are refused.
import { z } from 'zod';
import { asksNothing, sharedFields, UNSUPPORTED_ANYWHERE, type Unsupported } from '../fields.ts';

/** Prompts in one call. */
const PROMPTS_MAX = 64;
/** OpenAI's default for this API. */
export const DEFAULT_MAX_TOKENS = 16;
const TOP_LOGPROBS_MAX = 20;

const tokenId = z.int().min(0).max(0x7fffffff);
const tokenIds = z.array(tokenId).min(1);

export const completionBody = z.object({
  ...sharedFields,
  prompt: z.union([
    z.string(),
    z.array(z.string()).min(1).max(PROMPTS_MAX),
    tokenIds,
    z.array(tokenIds).min(1).max(PROMPTS_MAX),
  ]),
  echo: z.boolean().nullish(),
  best_of: z.int().min(1).nullish(),
  logprobs: z.int().min(0).max(TOP_LOGPROBS_MAX).nullish(),
});

export type CompletionBody = z.infer<typeof completionBody>;

export const UNSUPPORTED_IN_COMPLETIONS: Unsupported = {
  suffix: asksNothing,
  response_format: asksNothing,
  ...UNSUPPORTED_ANYWHERE,
};
