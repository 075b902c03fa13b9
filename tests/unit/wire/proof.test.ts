// Proofs: who is let in, who is not, and why.
import { describe, expect, it } from 'vitest';
import { CoxswainError } from '../../../src/base/errors.ts';
import { deriveClusterKeys, deriveLinkKey, generateClusterToken } from '../../../src/wire/keys.ts';
import { MutualProof, NonceMemory, type ProofOptions } from '../../../src/wire/proof.ts';

const keys = deriveClusterKeys('a token of enough characters');

function options(role: 'dialler' | 'listener', more: Partial<ProofOptions> = {}): ProofOptions {
  return {
    key: keys.control,
    role,
    purpose: 'control',
    identity: role === 'dialler' ? 'rank 1' : 'coordinator',
    clusterId: role === 'listener' ? 'cluster-7' : '',
    context: [],
    nonces: new NonceMemory(),
    ...more,
  };
}

function pair(dialler: ProofOptions, listener: ProofOptions): [MutualProof, MutualProof] {
  const a = new MutualProof(dialler);
  const b = new MutualProof(listener);
  a.takeChallenge(b.challenge);
  b.takeChallenge(a.challenge);
  return [a, b];
}

function refusal(action: () => unknown): string {
  try {
    action();
  } catch (thrown) {
    if (thrown instanceof CoxswainError) return `${thrown.code}: ${thrown.message}`;
    throw thrown;
  }
  return 'accepted';
}

describe('a mutual proof', () => {
  it('gives both ends the same three keys, different from each other', () => {
    const [a, b] = pair(options('dialler'), options('listener'));
    const atListener = b.takeProof(a.proof());
    const atDialler = a.takeProof(b.proof());
    expect(atDialler.diallerKey).toEqual(atListener.diallerKey);
    expect(atDialler.listenerKey).toEqual(atListener.listenerKey);
    expect(atDialler.heartbeatKey).toEqual(atListener.heartbeatKey);
    expect(atDialler.diallerKey).not.toEqual(atDialler.listenerKey);
    expect(atListener.peerIdentity).toBe('rank 1');
    expect(atDialler.clusterId).toBe('cluster-7');
  });

  it('gives every connection other keys', () => {
    const [a, b] = pair(options('dialler'), options('listener'));
    const [c, d] = pair(options('dialler'), options('listener'));
    expect(b.takeProof(a.proof()).diallerKey).not.toEqual(d.takeProof(c.proof()).diallerKey);
  });

  it('refuses another token, saying what to do', () => {
    const stranger = deriveClusterKeys('another token of enough characters').control;
    const [a, b] = pair(options('dialler', { key: stranger }), options('listener'));
    expect(refusal(() => b.takeProof(a.proof()))).toMatch(/^AUTH_FAILED: .*same cluster token/);
    expect(refusal(() => a.takeProof(b.proof()))).toMatch(/^AUTH_FAILED/);
  });

  it.each([
    ['purpose', { purpose: 'link' }],
    ['context', { context: ['epoch 4'] }],
  ])('covers the %s', (_name, changed) => {
    const [a, b] = pair(options('dialler'), options('listener', changed));
    expect(refusal(() => b.takeProof(a.proof()))).toMatch(/^AUTH_FAILED/);
  });

  it.each(['identity', 'clusterId'] as const)('covers the %s of the challenge', (field) => {
    const a = new MutualProof(options('dialler'));
    const b = new MutualProof(options('listener'));
    a.takeChallenge({ ...b.challenge, [field]: 'altered on the way' });
    b.takeChallenge(a.challenge);
    expect(refusal(() => b.takeProof(a.proof()))).toMatch(/^AUTH_FAILED/);
  });

  it('refuses its own proof turned around', () => {
    const [a, b] = pair(options('dialler'), options('listener'));
    expect(refusal(() => b.takeProof(b.proof()))).toMatch(/^AUTH_FAILED/);
    expect(refusal(() => a.takeProof(a.proof()))).toMatch(/^AUTH_FAILED/);
  });

  it('refuses its own nonce sent back', () => {
    const listener = new MutualProof(options('listener'));
    expect(refusal(() => listener.takeChallenge({ ...listener.challenge }))).toMatch(/used before/);
  });

  it('refuses a nonce that an earlier connection used', () => {
    const nonces = new NonceMemory();
    const recorded = new MutualProof(options('dialler')).challenge;
    new MutualProof(options('listener', { nonces })).takeChallenge(recorded);
    const second = new MutualProof(options('listener', { nonces }));
    expect(refusal(() => second.takeChallenge(recorded))).toMatch(/used before/);
  });

  it('refuses a short nonce and a long identity', () => {
    const { challenge } = new MutualProof(options('dialler'));
    const listener = () => new MutualProof(options('listener'));
    const short = { ...challenge, nonce: challenge.nonce.slice(1) };
    const long = { ...challenge, identity: 'x'.repeat(257) };
    expect(refusal(() => listener().takeChallenge(short))).toMatch(/^AUTH_FAILED/);
    expect(refusal(() => listener().takeChallenge(long))).toMatch(/^AUTH_FAILED/);
  });

  it('refuses another protocol version, naming both', () => {
    const listener = new MutualProof(options('listener'));
    const peer = { ...new MutualProof(options('dialler')).challenge, protocol: 9 };
    expect(refusal(() => listener.takeChallenge(peer))).toMatch(/protocol 9, this one 1/);
  });

  it('forgets the oldest nonces beyond its bound, not the newest', () => {
    const memory = new NonceMemory();
    const nonce = (index: number) => new Uint8Array(new Uint32Array([index]).buffer);
    for (let index = 0; index < 5000; index += 1) memory.remember(nonce(index));
    expect(memory.remember(nonce(4999))).toBe(false);
    expect(memory.remember(nonce(0))).toBe(true);
  });
});

describe('cluster keys', () => {
  it('differ by purpose and by token', () => {
    const other = deriveClusterKeys(generateClusterToken());
    const all = [keys.control, keys.data, keys.bulk, other.control, other.data, other.bulk];
    expect(new Set(all.map((key) => Buffer.from(key).toString('hex'))).size).toBe(6);
  });

  it('refuse a token that is too short to be a secret', () => {
    expect(refusal(() => deriveClusterKeys('short'))).toMatch(/^CONFIG_INVALID: .*5 characters/);
  });

  it('give each link of each epoch its own key', () => {
    const base = { epoch: 3, incarnation: 'aa', lowerRank: 0, higherRank: 1 };
    const keyOf = (change: object) =>
      Buffer.from(deriveLinkKey(keys.data, { ...base, ...change })).toString('hex');
    const all = [{}, { epoch: 4 }, { incarnation: 'ab' }, { higherRank: 2 }].map(keyOf);
    expect(new Set(all).size).toBe(4);
    expect(keyOf({})).toBe(keyOf({}));
  });
});
