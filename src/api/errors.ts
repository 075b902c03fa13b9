// Anything thrown -> what an OpenAI client sees: status, headers and the body {error: {...}}.
// Clients decide about retries by status, `type` and Retry-After, so `type` always fits the status
// class, and every 429 and 503 carries Retry-After. Messages of internal failures stay in the log; those
// of failures that clients are told of lose the paths of this host's files.
import type { ErrorCode, ErrorTraits } from '../base/error-codes.ts';
import { type CoxswainError, toCoxswainError } from '../base/errors.ts';

export interface OpenAiErrorBody {
  readonly error: {
    readonly message: string;
    readonly type: string;
    readonly param: string | null;
    readonly code: string | null;
  };
}

export interface HttpError {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: OpenAiErrorBody;
}

/** Without a hint from the backend: long enough to shed load, short enough for a person to wait. */
const RETRY_AFTER_SECONDS = 1;

/** Codes whose public spelling is fixed by what clients look for. Others follow their status. */
const PUBLIC_CODES: Partial<Record<ErrorCode, string>> = {
  FIELD_UNSUPPORTED: 'unsupported_parameter',
  CONTEXT_EXCEEDED: 'context_length_exceeded',
  TEMPLATE_FAILED: 'invalid_prompt',
  REQUEST_TOO_LARGE: 'request_too_large',
  UNAUTHENTICATED: 'invalid_api_key',
  MODEL_NOT_FOUND: 'model_not_found',
  ROUTE_NOT_FOUND: 'unknown_url',
  METHOD_NOT_ALLOWED: 'method_not_allowed',
};

/** 500s whose sentence is written for the client. All others say only that something broke. */
const SPOKEN_FAULTS: ReadonlySet<ErrorCode> = new Set(['REQUEST_POISONOUS', 'RANK_DIVERGED']);

export function toHttpError(thrown: unknown, requestId: string): HttpError {
  const error = toCoxswainError(thrown);
  const traits = error.traits;
  return {
    status: traits.httpStatus,
    headers: retryHeaders(error, traits),
    body: {
      error: {
        message: publicMessage(error, requestId),
        type: publicType(traits.httpStatus),
        param: error.field || null,
        code: publicCode(error),
      },
    },
  };
}

function retryHeaders(error: CoxswainError, traits: ErrorTraits): Record<string, string> {
  if (traits.httpStatus === 429 || traits.httpStatus === 503) {
    const seconds = Math.max(1, Math.ceil(error.retryAfterSeconds ?? RETRY_AFTER_SECONDS));
    return { 'retry-after': String(seconds) };
  }
  // The SDKs repeat every 5xx unless told that it cannot help.
  if (traits.httpStatus >= 500 && !traits.retryable) return { 'x-should-retry': 'false' };
  return {};
}

function publicMessage(error: CoxswainError, requestId: string): string {
  const { httpStatus } = error.traits;
  if (httpStatus < 500) return error.message;
  if (httpStatus !== 500 || SPOKEN_FAULTS.has(error.code)) return withoutPaths(error.message);
  return `The server failed while working on this request; its log has the cause under ${requestId}.`;
}

/** File names of this host: /srv/x, ~/x, ../x, file:///x, C:\\x, models/x.gguf. */
const PATH =
  /(?<![\w/.~-])(?:(?:file:\/\/|~|\.{1,2})?\/|[A-Za-z]:\\)[^\s'"`()[\]{}<>,;:]+|[^\s'"`()[\]{}<>,;:]*[/\\][^\s'"`()[\]{}<>,;:]*\.gguf/g;

function withoutPaths(sentence: string): string {
  return sentence.replace(PATH, '[path]');
}

function publicType(status: number): string {
  if (status === 401) return 'authentication_error';
  if (status === 429) return 'rate_limit_error';
  return status >= 500 ? 'server_error' : 'invalid_request_error';
}

function publicCode(error: CoxswainError): string | null {
  const named = PUBLIC_CODES[error.code];
  if (named !== undefined) return named;
  const status = error.traits.httpStatus;
  if (status === 429) return 'rate_limit_exceeded';
  if (status === 503) return 'server_overloaded';
  return status >= 500 ? 'internal_error' : null;
}
