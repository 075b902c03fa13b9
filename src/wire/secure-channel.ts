// A control stream after both proofs: every message carries a sequence number without gaps and a MAC
// under this connection's key for its direction, so nothing can be altered, repeated, dropped or turned
// around unseen. Also runs the proof itself, with the limits that hold before it (4 KiB, 5 s).
// One channel a connection; it ends with the connection and is never reused.
import { createHmac, createSecretKey, type KeyObject, timingSafeEqual } from 'node:crypto';
import { BrokenInvariant } from '../base/assert.ts';
import { CoxswainError, toCoxswainError } from '../base/errors.ts';
import type { MessagePipe } from './grpc-pipe.ts';
import { coordinatorBodyCodec, frameCodec, MESSAGE_BYTES_MAX, rankBodyCodec } from './messages.ts';
import {
  type ChallengeFields,
  type MutualProof,
  type ProvedSession,
  UNPROVED_BYTES_MAX,
  UNPROVED_MS_MAX,
} from './proof.ts';

const NO_BYTES = new Uint8Array(0);

export class SecureChannel {
  readonly peer: string;
  readonly session: ProvedSession;
  private readonly pipe: MessagePipe;
  private readonly sendKey: KeyObject;
  private readonly receiveKey: KeyObject;
  private sent = 0;
  private received = 0;

  constructor(pipe: MessagePipe, session: ProvedSession, role: 'dialler' | 'listener') {
    this.pipe = pipe;
    this.peer = pipe.peer;
    this.session = session;
    const dialler = createSecretKey(session.diallerKey);
    const listener = createSecretKey(session.listenerKey);
    this.sendKey = role === 'dialler' ? dialler : listener;
    this.receiveKey = role === 'dialler' ? listener : dialler;
  }

  /** `body` is copied before this returns. */
  send(body: Uint8Array): void {
    if (body.length > MESSAGE_BYTES_MAX) {
      throw new CoxswainError(
        'INTERNAL',
        `A control message of ${body.length} bytes exceeds ${MESSAGE_BYTES_MAX}.`,
      );
    }
    this.sent += 1;
    const mac = macOf(this.sendKey, this.sent, body);
    this.pipe.send(frameCodec.encode({ sequence: this.sent, mac, body }));
  }

  /** `onBody` gets proved bodies in order; `onClosed` is called once, with the reason. */
  consume(onBody: (body: Buffer) => void, onClosed: (reason: string) => void): void {
    this.pipe.consume((message) => {
      try {
        onBody(this.open(message));
      } catch (thrown) {
        // A bug of ours is not the other side's fault: it must not hide behind a closed connection.
        if (thrown instanceof BrokenInvariant) throw thrown;
        this.pipe.close(toCoxswainError(thrown).message);
      }
    }, onClosed);
  }

  close(reason: string): void {
    this.pipe.close(reason);
  }

  private open(message: Buffer): Buffer {
    const frame = frameCodec.decode(message);
    const expected = this.received + 1;
    if (frame.sequence !== expected) {
      throw new CoxswainError(
        'AUTH_FAILED',
        `${this.peer} sent frame ${frame.sequence} where ${expected} was due.`,
      );
    }
    const mac = macOf(this.receiveKey, expected, frame.body);
    if (mac.length !== frame.mac.length || !timingSafeEqual(mac, frame.mac)) {
      throw new CoxswainError('AUTH_FAILED', `Frame ${expected} of ${this.peer} was altered.`);
    }
    this.received = expected;
    return frame.body;
  }
}

/** The listener's half. On failure the stranger is told one sentence and the error is thrown. */
export async function acceptChannel(pipe: MessagePipe, proof: MutualProof): Promise<SecureChannel> {
  const deadline = Date.now() + UNPROVED_MS_MAX;
  try {
    const { challenge } = rankBodyCodec.decode(await nextBody(pipe, deadline));
    if (!challenge) throw new CoxswainError('AUTH_FAILED', 'The first message is no challenge.');
    proof.takeChallenge(challenge);
    sendBare(pipe, coordinatorBodyCodec.encode({ challenge: wireChallenge(proof.challenge) }));
    const answer = rankBodyCodec.decode(await nextBody(pipe, deadline));
    if (!answer.proof) throw new CoxswainError('AUTH_FAILED', 'The second message is no proof.');
    const session = proof.takeProof(answer.proof.mac);
    sendBare(pipe, coordinatorBodyCodec.encode({ proof: { mac: proof.proof() } }));
    return new SecureChannel(pipe, session, 'listener');
  } catch (thrown) {
    const error = toCoxswainError(thrown);
    const refused = { code: error.code, sentence: error.message };
    sendBare(pipe, coordinatorBodyCodec.encode({ refused }));
    pipe.close(error.message);
    throw error;
  }
}

/** The dialler's half. @throws CoxswainError AUTH_FAILED, HANDSHAKE_REFUSED or CONTROL_LOST. */
export async function dialChannel(pipe: MessagePipe, proof: MutualProof): Promise<SecureChannel> {
  const deadline = Date.now() + UNPROVED_MS_MAX;
  try {
    sendBare(pipe, rankBodyCodec.encode({ challenge: wireChallenge(proof.challenge) }));
    const first = coordinatorBodyCodec.decode(await nextBody(pipe, deadline));
    throwIfRefused(first.refused);
    if (!first.challenge) throw new CoxswainError('AUTH_FAILED', 'The answer is no challenge.');
    proof.takeChallenge(first.challenge);
    sendBare(pipe, rankBodyCodec.encode({ proof: { mac: proof.proof() } }));
    const second = coordinatorBodyCodec.decode(await nextBody(pipe, deadline));
    throwIfRefused(second.refused);
    if (!second.proof) throw new CoxswainError('AUTH_FAILED', 'The second answer is no proof.');
    return new SecureChannel(pipe, proof.takeProof(second.proof.mac), 'dialler');
  } catch (thrown) {
    const error = toCoxswainError(thrown);
    pipe.close(error.message);
    throw error;
  }
}

function throwIfRefused(refused: { code: string; sentence: string } | null | undefined): void {
  if (!refused) return;
  // Its deadline passed: no verdict on this rank, which may try again.
  if (refused.code === 'CONTROL_LOST') throw new CoxswainError('CONTROL_LOST', refused.sentence);
  const code = refused.code === 'AUTH_FAILED' ? 'AUTH_FAILED' : 'HANDSHAKE_REFUSED';
  throw new CoxswainError(code, `The coordinator refused this rank: ${refused.sentence}`);
}

function sendBare(pipe: MessagePipe, body: Buffer): void {
  pipe.send(frameCodec.encode({ sequence: 0, mac: NO_BYTES, body }));
}

async function nextBody(pipe: MessagePipe, deadline: number): Promise<Uint8Array> {
  const message = await pipe.next(Math.max(1, deadline - Date.now()));
  if (message.length > UNPROVED_BYTES_MAX) {
    throw new CoxswainError('AUTH_FAILED', `${message.length} bytes came before any proof.`);
  }
  return frameCodec.decode(message).body;
}

function wireChallenge(challenge: ChallengeFields): ChallengeFields {
  return { ...challenge };
}

function macOf(key: KeyObject, sequence: number, body: Uint8Array): Buffer {
  const prefix = Buffer.alloc(8);
  prefix.writeUInt32LE(sequence % 4294967296, 0);
  prefix.writeUInt32LE(Math.floor(sequence / 4294967296), 4);
  return createHmac('sha256', key).update(prefix).update(body).digest();
}
