// Whole messages over one bidirectional gRPC stream, the same for the end that dialled and the end that
// listens. Bytes in, bytes out: codecs live above. Owns the stream's events.
// Bounds: messages nobody has taken yet (INBOX_MAX), bytes the other end has not taken (OUTBOX_BYTES_MAX);
// beyond either the stream is closed, because its peer does not follow the protocol or does not live.
import { CoxswainError } from '../base/errors.ts';

const INBOX_MAX = 16;
const OUTBOX_BYTES_MAX = 256 * 1024 * 1024;

export interface MessagePipe {
  /** "ADDRESS:PORT" of the other end. */
  readonly peer: string;
  send(message: Buffer): void;
  /** The next message, or a rejection: closed, or nothing within `deadlineMs`. Before consume() only. */
  next(deadlineMs: number): Promise<Buffer>;
  /** From now on every message goes to `onMessage`, in order; `onClosed` is called once. */
  consume(onMessage: (message: Buffer) => void, onClosed: (reason: string) => void): void;
  /** Flushes what was sent, then ends the stream. */
  close(reason: string): void;
}

/** The part of a grpc-js call that both ends have. */
interface GrpcCall {
  getPeer(): string;
  on(event: 'data', listener: (message: Buffer) => void): unknown;
  on(event: 'error', listener: (error: Error & { details?: string }) => void): unknown;
  on(event: 'end' | 'close' | 'cancelled', listener: () => void): unknown;
  write(message: Buffer, taken: () => void): unknown;
  end(): unknown;
}

interface Waiter {
  resolve(message: Buffer): void;
  reject(error: CoxswainError): void;
}

export class GrpcPipe implements MessagePipe {
  readonly peer: string;
  private readonly call: GrpcCall;
  private readonly isServer: boolean;
  private readonly inbox: Buffer[] = [];
  private waiter: Waiter | null = null;
  private onMessage: ((message: Buffer) => void) | null = null;
  private onClosed: ((reason: string) => void) | null = null;
  private closedBecause: string | null = null;
  private ended: boolean = false;
  private outboxBytes = 0;

  constructor(call: GrpcCall, isServer: boolean) {
    this.call = call;
    this.isServer = isServer;
    this.peer = call.getPeer();
    call.on('data', (message) => this.take(message));
    call.on('end', () => this.finish('the other side ended the stream'));
    call.on('close', () => this.finish('the stream closed'));
    call.on('cancelled', () => this.finish('the connection broke'));
    call.on('error', (error) => this.finish(error.details || error.message));
  }

  send(message: Buffer): void {
    if (this.ended || this.closedBecause !== null) return;
    this.outboxBytes += message.length;
    if (this.outboxBytes > OUTBOX_BYTES_MAX) {
      this.close(`the other side left ${this.outboxBytes} bytes untaken`);
      return;
    }
    this.call.write(message, () => {
      this.outboxBytes -= message.length;
    });
  }

  next(deadlineMs: number): Promise<Buffer> {
    const waiting = this.inbox.shift();
    if (waiting !== undefined) return Promise.resolve(waiting);
    if (this.closedBecause !== null)
      return Promise.reject(closedError(this.peer, this.closedBecause));
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.waiter = null;
        reject(
          new CoxswainError('CONTROL_LOST', `${this.peer} said nothing for ${deadlineMs} ms.`),
        );
      }, deadlineMs);
      this.waiter = {
        resolve: (message) => {
          clearTimeout(timer);
          resolve(message);
        },
        reject: (error) => {
          clearTimeout(timer);
          reject(error);
        },
      };
    });
  }

  consume(onMessage: (message: Buffer) => void, onClosed: (reason: string) => void): void {
    this.onMessage = onMessage;
    this.onClosed = onClosed;
    for (const message of this.inbox.splice(0)) onMessage(message);
    if (this.closedBecause !== null) onClosed(this.closedBecause);
  }

  close(reason: string): void {
    if (!this.ended) {
      this.ended = true;
      this.call.end();
    }
    this.finish(reason);
  }

  private take(message: Buffer): void {
    if (this.closedBecause !== null) return;
    if (this.onMessage !== null) {
      this.onMessage(message);
    } else if (this.waiter !== null) {
      const { waiter } = this;
      this.waiter = null;
      waiter.resolve(message);
    } else if (this.inbox.length < INBOX_MAX) {
      this.inbox.push(message);
    } else {
      this.close('the other side sent more than was asked for');
    }
  }

  private finish(reason: string): void {
    if (this.closedBecause !== null) return;
    this.closedBecause = reason;
    // A server call whose peer went away must still be ended, or its session lingers.
    if (this.isServer && !this.ended) {
      this.ended = true;
      this.call.end();
    }
    this.waiter?.reject(closedError(this.peer, reason));
    this.waiter = null;
    this.onClosed?.(reason);
  }
}

function closedError(peer: string, reason: string): CoxswainError {
  return new CoxswainError('CONTROL_LOST', `The connection to ${peer} is gone: ${reason}.`);
}
