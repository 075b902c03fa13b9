// The request body from socket to JSON value: content encodings, one limit a request and one for all
// bodies in memory together, strict UTF-8. JSON is read whatever the Content-Type says, since real
// clients send text/plain.
import { PassThrough, type Readable, Transform, type TransformCallback } from 'node:stream';
import { createBrotliDecompress, createGunzip, createInflate } from 'node:zlib';
import { CoxswainError, toCoxswainError } from '../base/errors.ts';

/** Bytes of all bodies that requests in progress hold. */
export class BodyBudget {
  private used = 0;
  private readonly bytesMax: number;

  constructor(bytesMax: number) {
    this.bytesMax = bytesMax;
  }

  get bytesUsed(): number {
    return this.used;
  }

  tryTake(bytes: number): boolean {
    if (this.used + bytes > this.bytesMax) return false;
    this.used += bytes;
    return true;
  }

  give(bytes: number): void {
    this.used -= bytes;
  }
}

/** One request's share of the budget; `release` may be called more than once. */
export class BodyShare {
  private taken = 0;
  private open: boolean = true;
  private readonly budget: BodyBudget;

  constructor(budget: BodyBudget) {
    this.budget = budget;
  }

  take(bytes: number): void {
    if (!this.open || !this.budget.tryTake(bytes)) {
      throw new CoxswainError(
        'QUEUE_FULL',
        'The requests in progress already fill the memory for request bodies; try again later.',
      );
    }
    this.taken += bytes;
  }

  release(): void {
    this.budget.give(this.taken);
    this.taken = 0;
    this.open = false;
  }
}

export interface BodyLimits {
  readonly share: BodyShare;
  readonly bytesMax: number;
}

class CountedBody extends Transform {
  /** Fastify compares it with Content-Length. */
  receivedEncodedLength = 0;
  private decodedLength = 0;
  private readonly limits: BodyLimits;

  constructor(limits: BodyLimits) {
    super();
    this.limits = limits;
  }

  override _transform(chunk: Buffer, _encoding: string, done: TransformCallback): void {
    this.decodedLength += chunk.length;
    try {
      if (this.decodedLength > this.limits.bytesMax) throw tooLarge(this.limits.bytesMax);
      this.limits.share.take(chunk.length);
      done(null, chunk);
    } catch (error) {
      done(toCoxswainError(error));
    }
  }
}

/** The decoded body, counted against `share` and cut off with REQUEST_TOO_LARGE beyond `bytesMax`. */
export function decodeBody(payload: Readable, encoding: string, limits: BodyLimits): Readable {
  const decoder = decoderOf(encoding);
  const counted = new CountedBody(limits);
  payload.on('data', (chunk: Buffer) => {
    counted.receivedEncodedLength += chunk.length;
  });
  payload.on('error', (cause) => {
    const sentence = 'The client went away while it sent the body.';
    counted.destroy(new CoxswainError('REQUEST_CANCELLED', sentence, { cause }));
  });
  decoder.on('error', (cause) => {
    const sentence = `content-encoding: the body is not valid ${encoding}.`;
    const field = 'content-encoding';
    counted.destroy(new CoxswainError('REQUEST_INVALID', sentence, { cause, field }));
  });
  // A decoder is not told when its reader gives up.
  counted.on('close', () => decoder.destroy());
  payload.pipe(decoder).pipe(counted);
  return counted;
}

export function tooLarge(bytesMax: number): CoxswainError {
  return new CoxswainError(
    'REQUEST_TOO_LARGE',
    `The request body is larger than ${bytesMax} bytes, the limit of this server.`,
  );
}

export function parseJson(body: Buffer): unknown {
  if (body.length === 0) {
    throw new CoxswainError('REQUEST_INVALID', 'The request body is empty; send a JSON object.');
  }
  try {
    const parsed: unknown = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(body));
    return parsed;
  } catch (cause) {
    // The parser's own message quotes the body, which may be prompt text.
    const sentence = 'The request body is not valid JSON in UTF-8.';
    throw new CoxswainError('REQUEST_INVALID', sentence, { cause });
  }
}

function decoderOf(encoding: string): Transform {
  switch (encoding) {
    case '':
    case 'identity':
      return new PassThrough();
    case 'gzip':
    case 'x-gzip':
      return createGunzip();
    case 'deflate':
      return createInflate();
    case 'br':
      return createBrotliDecompress();
    default:
      throw new CoxswainError(
        'REQUEST_INVALID',
        'content-encoding: only identity, gzip, deflate and br are understood.',
        { field: 'content-encoding' },
      );
  }
}
