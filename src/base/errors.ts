// CoxswainError: every expected failure, with a code of error-codes.ts and a sentence that names the
// field, file or rank and what to do. Bugs are assertions (assert.ts), never this class.
import { ERROR_CODES, type ErrorCode, type ErrorTraits, isErrorCode } from './error-codes.ts';

export interface ErrorOptions {
  readonly cause?: unknown;
  /** The request field at fault, in the API's spelling ("messages[2].content"). */
  readonly field?: string;
  readonly retryAfterSeconds?: number;
}

export class CoxswainError extends Error {
  readonly code: ErrorCode;
  readonly field: string | undefined;
  readonly retryAfterSeconds: number | undefined;

  constructor(code: ErrorCode, message: string, options: ErrorOptions = {}) {
    super(message, options.cause === undefined ? {} : { cause: options.cause });
    this.name = 'CoxswainError';
    this.code = code;
    this.field = options.field;
    this.retryAfterSeconds = options.retryAfterSeconds;
  }

  get traits(): ErrorTraits {
    return ERROR_CODES[this.code];
  }
}

/** Anything thrown -> CoxswainError. Native errors carry their code as a property. */
export function toCoxswainError(thrown: unknown): CoxswainError {
  if (thrown instanceof CoxswainError) return thrown;
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  const code = thrown instanceof Error && 'code' in thrown ? String(thrown.code) : '';
  return new CoxswainError(isErrorCode(code) ? code : 'INTERNAL', message, { cause: thrown });
}
