// A conversation that survives its connections. Messages are numbered from 1 in each direction and kept
// until the other side acknowledges them; after a reconnect both sides send again what the other has not
// received, and numbers that were seen before are dropped. One owner, who attaches each new channel.
// Bound: OUTBOX_MESSAGES_MAX and OUTBOX_BYTES_MAX unacknowledged; beyond, send() fails with CONTROL_LOST.
import { CoxswainError } from '../base/errors.ts';

const OUTBOX_MESSAGES_MAX = 4096;
const OUTBOX_BYTES_MAX = 256 * 1024 * 1024;
/** Received messages after which an acknowledgement goes out even without anything to say. */
const ACK_EVERY = 16;

/** One connection of the session: a SecureChannel. */
export interface BodyChannel {
  send(body: Uint8Array): void;
}

interface Numbers {
  number?: number;
  acked?: number;
}

export class ReliableSession<Body extends object> {
  private readonly encode: (body: Body & Numbers) => Buffer;
  private channel: BodyChannel | null = null;
  private readonly outbox: { readonly number: number; readonly bytes: Buffer }[] = [];
  private outboxBytes = 0;
  private sent = 0;
  private unackedReceived = 0;
  /** Number of the last message received in order. */
  received = 0;

  constructor(encode: (body: Body & Numbers) => Buffer) {
    this.encode = encode;
  }

  /** Goes on over `channel`: sends again everything after `peerReceived`. */
  attach(channel: BodyChannel, peerReceived: number): void {
    this.channel = channel;
    this.forget(peerReceived);
    for (const { bytes } of this.outbox) channel.send(bytes);
  }

  detach(): void {
    this.channel = null;
  }

  /** Sends now when a channel is attached, else with the next one. */
  send(body: Body): void {
    this.sent += 1;
    const bytes = this.encode({ ...body, number: this.sent, acked: this.received });
    this.unackedReceived = 0;
    this.outbox.push({ number: this.sent, bytes });
    this.outboxBytes += bytes.length;
    if (this.outbox.length > OUTBOX_MESSAGES_MAX || this.outboxBytes > OUTBOX_BYTES_MAX) {
      throw new CoxswainError(
        'CONTROL_LOST',
        `The other side has not acknowledged ${this.outbox.length} messages (${this.outboxBytes} bytes).`,
      );
    }
    this.channel?.send(bytes);
  }

  /**
   * Takes the numbers of an arrived body. True: the body is new and to be handled.
   * @throws CoxswainError CONTROL_LOST on a gap, which no honest peer makes.
   */
  take(number: number, acked: number): boolean {
    this.forget(acked);
    if (number === 0 || number <= this.received) return false;
    if (number !== this.received + 1) {
      throw new CoxswainError(
        'CONTROL_LOST',
        `Message ${number} arrived where ${this.received + 1} was due.`,
      );
    }
    this.received = number;
    this.unackedReceived += 1;
    if (this.unackedReceived >= ACK_EVERY) this.acknowledge();
    return true;
  }

  private acknowledge(): void {
    this.unackedReceived = 0;
    this.channel?.send(this.encode({ number: 0, acked: this.received } as Body & Numbers));
  }

  private forget(acked: number): void {
    let count = 0;
    for (const { number, bytes } of this.outbox) {
      if (number > acked) break;
      count += 1;
      this.outboxBytes -= bytes.length;
    }
    if (count > 0) this.outbox.splice(0, count);
  }
}
