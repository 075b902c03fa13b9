// The mutual proof that both ends of a connection hold the same key, without showing it.
//
//   dialler  -> Challenge {nonce a}          listener -> Challenge {nonce b}
//   dialler  -> Proof mac("dialler", ...)    listener -> Proof mac("listener", ...)
//
// Each MAC covers the role, the purpose, the protocol, the cluster id, both nonces, both identities and
// the context (for a link: epoch, incarnation, ranks). The dialler proves first, so a stranger gets
// nothing but a random nonce. A nonce of one's own or one seen before is refused: no reflection, no
// replay. This file is a pure state machine; messages are carried by control-*.ts and frames-link.ts.
import { randomBytes, timingSafeEqual } from 'node:crypto';
import { assert, present } from '../base/assert.ts';
import { CoxswainError } from '../base/errors.ts';
import { deriveKey, macOfFields } from './keys.ts';

export const PROTOCOL_VERSION = 1;
const NONCE_BYTES = 32;
/** Limits on a connection that has proved nothing yet. */
export const UNPROVED_BYTES_MAX = 4096;
export const UNPROVED_MS_MAX = 5000;
export const UNPROVED_CONNECTIONS_MAX = 64;
const IDENTITY_CHARACTERS_MAX = 256;
const NONCES_REMEMBERED = 4096;

export interface ChallengeFields {
  readonly nonce: Uint8Array;
  readonly protocol: number;
  readonly clusterId: string;
  readonly identity: string;
}

/** Nonces that went by lately, one memory a process. Bounded: the oldest are forgotten first. */
export class NonceMemory {
  private readonly seen = new Set<string>();

  /** False when the nonce was seen before. */
  remember(nonce: Uint8Array): boolean {
    const key = Buffer.from(nonce).toString('base64');
    if (this.seen.has(key)) return false;
    this.seen.add(key);
    if (this.seen.size > NONCES_REMEMBERED) {
      this.seen.delete(
        present(this.seen.values().next().value, 'a full memory has an oldest nonce'),
      );
    }
    return true;
  }
}

export interface ProofOptions {
  readonly key: Uint8Array;
  readonly role: 'dialler' | 'listener';
  /** "control" or "link": a proof for one is worthless for the other. */
  readonly purpose: string;
  readonly identity: string;
  /** Given by the listener; the dialler learns it from the challenge. */
  readonly clusterId: string;
  readonly context: readonly string[];
  readonly nonces: NonceMemory;
}

/** What both ends know once both proofs are given. */
export interface ProvedSession {
  readonly peerIdentity: string;
  readonly clusterId: string;
  /** MAC keys of the two directions and of the heartbeats of this connection. */
  readonly diallerKey: Uint8Array;
  readonly listenerKey: Uint8Array;
  readonly heartbeatKey: Uint8Array;
}

export class MutualProof {
  readonly challenge: ChallengeFields;
  private readonly options: ProofOptions;
  private peer: ChallengeFields | null = null;

  constructor(options: ProofOptions) {
    this.options = options;
    const nonce = new Uint8Array(randomBytes(NONCE_BYTES));
    options.nonces.remember(nonce);
    this.challenge = {
      nonce,
      protocol: PROTOCOL_VERSION,
      clusterId: options.role === 'listener' ? options.clusterId : '',
      identity: options.identity.slice(0, IDENTITY_CHARACTERS_MAX),
    };
  }

  /** @throws CoxswainError AUTH_FAILED or HANDSHAKE_REFUSED (another protocol version). */
  takeChallenge(peer: ChallengeFields): void {
    assert(this.peer === null, 'one challenge a connection');
    if (peer.protocol !== PROTOCOL_VERSION) {
      throw new CoxswainError(
        'HANDSHAKE_REFUSED',
        `The other side speaks protocol ${peer.protocol}, this one ${PROTOCOL_VERSION}: ` +
          'run the same Coxswain version everywhere.',
      );
    }
    if (peer.nonce.length !== NONCE_BYTES || peer.identity.length > IDENTITY_CHARACTERS_MAX) {
      throw new CoxswainError('AUTH_FAILED', 'The challenge of the other side is malformed.');
    }
    // Own nonces are in the memory too, so this also refuses a reflected challenge.
    if (!this.options.nonces.remember(peer.nonce)) {
      throw new CoxswainError('AUTH_FAILED', 'The other side used a nonce that was used before.');
    }
    this.peer = peer;
  }

  /** The MAC that proves this side. */
  proof(): Buffer {
    return this.macOf(this.options.role);
  }

  /** @throws CoxswainError AUTH_FAILED when the other side does not hold the key. */
  takeProof(mac: Uint8Array): ProvedSession {
    const peer = present(this.peer, 'the challenge comes before the proof');
    const expected = this.macOf(this.options.role === 'dialler' ? 'listener' : 'dialler');
    if (mac.length !== expected.length || !timingSafeEqual(mac, expected)) {
      throw new CoxswainError(
        'AUTH_FAILED',
        'The other side does not hold the same cluster token: give every process the same ' +
          'COX_CLUSTER_TOKEN or --token-file.',
      );
    }
    const { dialler, listener } = this.sides();
    const salt = Buffer.concat([dialler.nonce, listener.nonce]);
    return {
      peerIdentity: peer.identity,
      clusterId: listener.clusterId,
      diallerKey: deriveKey(this.options.key, 'frames of the dialler', salt),
      listenerKey: deriveKey(this.options.key, 'frames of the listener', salt),
      heartbeatKey: deriveKey(this.options.key, 'heartbeats', salt),
    };
  }

  private sides(): { dialler: ChallengeFields; listener: ChallengeFields } {
    const peer = present(this.peer, 'the challenge of the other side is known');
    return this.options.role === 'dialler'
      ? { dialler: this.challenge, listener: peer }
      : { dialler: peer, listener: this.challenge };
  }

  private macOf(role: 'dialler' | 'listener'): Buffer {
    const { dialler, listener } = this.sides();
    return macOfFields(this.options.key, [
      `coxswain proof of the ${role}`,
      this.options.purpose,
      String(PROTOCOL_VERSION),
      listener.clusterId,
      dialler.nonce,
      listener.nonce,
      dialler.identity,
      listener.identity,
      ...this.options.context,
    ]);
  }
}
