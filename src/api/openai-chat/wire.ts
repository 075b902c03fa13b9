// The body of POST /v1/chat/completions: the fields that are read, and the table of those that are
// refused because they would change the answer and are not built yet.
import { z } from 'zod';
import { asksNothing, sharedFields, UNSUPPORTED_ANYWHERE, type Unsupported } from '../fields.ts';

export const TOP_LOGPROBS_MAX = 20;

const textPart = z.object({ type: z.literal('text'), text: z.string() });

const message = z.object({
  role: z.enum(['system', 'developer', 'user', 'assistant', 'tool']),
  content: z.union([z.string(), z.array(textPart)]).nullish(),
  name: z.string().max(256).nullish(),
});

export const chatBody = z.object({
  ...sharedFields,
  messages: z.array(message).min(1),
  max_completion_tokens: z.int().min(1).nullish(),
  logprobs: z.boolean().nullish(),
  top_logprobs: z.int().min(0).max(TOP_LOGPROBS_MAX).nullish(),
});

export type ChatBody = z.infer<typeof chatBody>;
export type WireMessage = z.infer<typeof message>;

const typeOf = (value: unknown): unknown =>
  typeof value === 'object' && value !== null && 'type' in value ? value.type : undefined;

/** Without tools, "auto" and "none" mean the same; with tools, `tools` is what gets refused. */
const noToolForced = (value: unknown) => asksNothing(value) || value === 'none' || value === 'auto';

const textOnly = (value: unknown) =>
  asksNothing(value) || (Array.isArray(value) && value.every((kind) => kind === 'text'));

export const UNSUPPORTED_IN_CHAT: Unsupported = {
  tools: asksNothing,
  tool_choice: noToolForced,
  functions: asksNothing,
  function_call: noToolForced,
  response_format: (value) => asksNothing(value) || typeOf(value) === 'text',
  audio: asksNothing,
  modalities: textOnly,
  web_search_options: (value) => value === null || value === undefined,
  reasoning_effort: asksNothing,
  reasoning: asksNothing,
  thinking: asksNothing,
  think: (value) => value === null || value === undefined,
  enable_thinking: (value) => value === null || value === undefined,
  chat_template_kwargs: asksNothing,
  chat_template: asksNothing,
  continue_final_message: asksNothing,
  add_generation_prompt: (value) => value === null || value === undefined || value === true,
  ...UNSUPPORTED_ANYWHERE,
};

export const UNSUPPORTED_IN_MESSAGE: Unsupported = {
  tool_calls: asksNothing,
  function_call: asksNothing,
  reasoning_content: asksNothing,
  reasoning: asksNothing,
  refusal: asksNothing,
  audio: asksNothing,
};
