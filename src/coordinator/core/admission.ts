// Says whether a request can be served at all: pure rules over limits and counts. A refusal here happens
// before anything was promised to the client.
import type { ErrorCode } from '../../base/error-codes.ts';
import type { CoreLimits, CoreRequest } from './events.ts';
import { lengthWanted } from './request.ts';

export interface Refusal {
  readonly code: ErrorCode;
  readonly message: string;
  readonly retryAfterSeconds: number | null;
}

/** Tokens, prompt and answer together, that one sequence can reach: of an answer's last token no row is kept. */
export function tokensMax(limits: CoreLimits, blockTokens: number): number {
  return Math.min(limits.context, limits.kvBlocks * blockTokens + 1);
}

/** What is wrong with the request itself, whatever the cluster is. */
export function refuseMalformed(request: CoreRequest): Refusal | null {
  const { length } = request.tokens;
  if (length === 0) return invalid('the prompt holds no token');
  if (request.kind === 'score') {
    if (request.chunk !== null && request.chunk < 1) return invalid('chunk must be at least 1');
    return null;
  }
  if (request.choices < 1) return invalid('n must be at least 1');
  if (request.sampler.promptLength !== length) {
    return invalid(`the sampler's prompt length is ${request.sampler.promptLength}, not ${length}`);
  }
  if (lengthWanted(request) <= length) return invalid('max_tokens must be at least 1');
  return null;
}

/** Whether the cluster can ever hold it. */
export function refuseTooLong(
  request: CoreRequest,
  limits: CoreLimits,
  blockTokens: number,
): Refusal | null {
  const { length } = request.tokens;
  const most = tokensMax(limits, blockTokens);
  const rows = Math.min(limits.context, limits.kvBlocks * blockTokens);
  if (length <= (request.kind === 'generate' ? most - 1 : rows)) return null;
  const bound =
    most === limits.context
      ? `the context of ${limits.context}`
      : `the ${limits.kvBlocks * blockTokens} tokens that the KV cache holds (--kv-mem)`;
  const extra = request.kind === 'generate' ? ' and leaves no room for an answer' : '';
  return {
    code: 'CONTEXT_EXCEEDED',
    message: `the prompt has ${length} tokens; that exceeds ${bound}${extra}`,
    retryAfterSeconds: null,
  };
}

/** Seconds until a place in the queue is likely: the queue at the pace of the last requests. */
export function retryAfterSeconds(
  waiting: number,
  slots: number,
  requestMs: number | null,
): number {
  const seconds = (waiting / Math.max(1, slots)) * ((requestMs ?? 2_000) / 1_000);
  return Math.min(60, Math.max(1, Math.ceil(seconds)));
}

function invalid(message: string): Refusal {
  return { code: 'REQUEST_INVALID', message, retryAfterSeconds: null };
}
