// The one table of error codes: what each means to HTTP, to gRPC and to a retrying client.
// docs/errors.md explains every code; tests/unit/base/error-codes.test.ts keeps both equal.

export interface ErrorTraits {
  /** HTTP status when the error ends a request before its headers went out. */
  readonly httpStatus: number;
  /** gRPC status code number. */
  readonly grpcStatus: number;
  /** The same request may succeed later without change. */
  readonly retryable: boolean;
}

const traits = (httpStatus: number, grpcStatus: number, retryable: boolean): ErrorTraits => ({
  httpStatus,
  grpcStatus,
  retryable,
});

export const ERROR_CODES = {
  // Requests
  REQUEST_INVALID: traits(400, 3, false),
  REQUEST_TOO_LARGE: traits(413, 8, false),
  METHOD_NOT_ALLOWED: traits(405, 12, false),
  FIELD_UNSUPPORTED: traits(400, 3, false),
  CONTEXT_EXCEEDED: traits(400, 3, false),
  TEMPLATE_FAILED: traits(400, 3, false),
  UNAUTHENTICATED: traits(401, 16, false),
  MODEL_NOT_FOUND: traits(404, 5, false),
  ROUTE_NOT_FOUND: traits(404, 5, false),
  QUEUE_FULL: traits(429, 8, true),
  SHUTTING_DOWN: traits(503, 14, true),
  CLUSTER_NOT_READY: traits(503, 14, true),
  REQUEST_CANCELLED: traits(499, 1, false),
  REQUEST_POISONOUS: traits(500, 13, false),
  RECOVERY_FAILED: traits(503, 14, true),
  INTERNAL: traits(500, 13, false),
  // Usage, files, models
  USAGE_INVALID: traits(400, 3, false),
  CONFIG_INVALID: traits(400, 3, false),
  FILE_UNREADABLE: traits(500, 5, false),
  GGUF_INVALID: traits(500, 3, false),
  GGUF_UNSUPPORTED: traits(500, 12, false),
  MODEL_UNSUPPORTED: traits(500, 12, false),
  TOKENIZER_UNSUPPORTED: traits(500, 12, false),
  PLAN_IMPOSSIBLE: traits(500, 9, false),
  ISA_UNAVAILABLE: traits(500, 9, false),
  ADDON_MISSING: traits(500, 9, false),
  MEMORY_EXHAUSTED: traits(500, 8, false),
  PULL_FAILED: traits(500, 14, true),
  DISK_FULL: traits(500, 8, true),
  // Cluster
  AUTH_FAILED: traits(500, 16, false),
  HANDSHAKE_REFUSED: traits(500, 9, false),
  RANK_LOST: traits(503, 14, true),
  RANK_DIVERGED: traits(500, 15, false),
  RANK_STALLED: traits(503, 4, true),
  EPOCH_FENCED: traits(503, 10, true),
  STEP_INVALID: traits(500, 3, false),
  LINK_TIMEOUT: traits(503, 4, true),
  LINK_CLOSED: traits(503, 14, true),
  LINK_PROTOCOL: traits(503, 13, true),
  CONTROL_LOST: traits(503, 14, true),
  JOIN_TIMEOUT: traits(503, 4, true),
  // Stored prefixes
  KV_DAMAGED: traits(500, 15, false),
  KV_UNSUPPORTED: traits(500, 12, false),
  KV_LOCKED: traits(500, 9, false),
  KV_FOREIGN: traits(500, 9, false),
  KV_WRITE_FAILED: traits(503, 14, true),
} as const satisfies Record<string, ErrorTraits>;

export type ErrorCode = keyof typeof ERROR_CODES;

export function isErrorCode(value: string): value is ErrorCode {
  return Object.hasOwn(ERROR_CODES, value);
}
