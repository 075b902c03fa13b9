// POST /v1/chat/completions -> one InferenceRequest. Parts of a message become one text, joined by
// line feeds as other servers do it; nothing else about the messages is changed here: templates and
// normalisation belong to src/prompt.
import { CoxswainError } from '../../base/errors.ts';
import type { ChatMessage } from '../backend.ts';
import type { ApiCall, CallContext } from '../call.ts';
import {
  asksNothing,
  asObject,
  countIgnored,
  parseFields,
  refuseUnsupported,
  samplingOf,
  unsupported,
} from '../fields.ts';
import { ChatAnswer } from './answer.ts';
import { ChatFrames } from './chunks.ts';
import {
  type ChatBody,
  chatBody,
  UNSUPPORTED_IN_CHAT,
  UNSUPPORTED_IN_MESSAGE,
  type WireMessage,
} from './wire.ts';

export function parseChatCall(body: unknown, context: CallContext): ApiCall {
  const raw = asObject(body);
  refuseUnsupported(raw, UNSUPPORTED_IN_CHAT);
  if (Array.isArray(raw['messages'])) refuseUnsupportedInMessages(raw['messages']);
  const fields = parseFields(chatBody, raw);
  const sampling = samplingOf(fields, context);
  const request = {
    ...sampling,
    id: `chatcmpl-${context.callId}`,
    prompt: { kind: 'chat' as const, messages: fields.messages.map(toMessage) },
    maxTokens: fields.max_completion_tokens ?? fields.max_tokens ?? null,
    ...logprobsOf(fields),
  };
  const shape = {
    id: request.id,
    created: context.nowSeconds,
    model: fields.model || sampling.model,
    choices: request.choices,
    logprobs: request.logprobs,
    includeUsage: fields.stream_options?.include_usage ?? false,
  };
  return {
    model: shape.model,
    streamed: fields.stream ?? false,
    requests: [request],
    ignoredFields: countIgnored(raw, Object.keys(chatBody.shape), UNSUPPORTED_IN_CHAT),
    stream: () => new ChatFrames(shape),
    whole: () => new ChatAnswer(shape),
  };
}

function logprobsOf(fields: ChatBody) {
  const logprobs = fields.logprobs ?? false;
  const topLogprobs = fields.top_logprobs ?? 0;
  if (topLogprobs > 0 && !logprobs) {
    throw new CoxswainError('REQUEST_INVALID', 'top_logprobs: needs logprobs to be true.', {
      field: 'top_logprobs',
    });
  }
  return { logprobs, topLogprobs };
}

function toMessage(message: WireMessage): ChatMessage {
  const content = message.content ?? '';
  return {
    role: message.role,
    content: typeof content === 'string' ? content : content.map((part) => part.text).join('\n'),
    ...(message.name ? { name: message.name } : {}),
  };
}

function refuseUnsupportedInMessages(messages: readonly unknown[]): void {
  messages.forEach((message, index) => {
    if (typeof message !== 'object' || message === null) return;
    const fields = message as Readonly<Record<string, unknown>>;
    const refused = Object.keys(UNSUPPORTED_IN_MESSAGE).filter(
      (field) => Object.hasOwn(fields, field) && !asksNothing(fields[field]),
    );
    const paths = refused.map((field) => `messages[${index}].${field}`);
    if (Array.isArray(fields['content'])) {
      paths.push(...foreignParts(fields['content']).map((path) => `messages[${index}].${path}`));
    }
    if (paths.length > 0) throw unsupported(paths);
  });
}

/** Parts of a known or future kind other than text, named by their kind: content[1].image_url. */
function foreignParts(parts: readonly unknown[]): string[] {
  return parts.flatMap((part, index) => {
    if (typeof part !== 'object' || part === null || !('type' in part)) return [];
    const kind = part.type;
    if (typeof kind !== 'string' || kind === 'text') return [];
    return [`content[${index}].${/^\w{1,32}$/.test(kind) ? kind : 'type'}`];
  });
}
