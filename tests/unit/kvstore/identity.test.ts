// Who shares with whom, and what makes a model another model.
import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import {
  type CompatFacts,
  compatId,
  scopeId,
  stableUser,
} from '../../../src/kvstore/core/identity.ts';
import { hmacSha256 as hmac, sha256 } from '../../../src/kvstore/format/hashing.ts';

const secret = new Uint8Array(32).fill(3);
const scope = (apiKeyId: string, user: string | null) =>
  Buffer.from(scopeId(hmac, secret, { apiKeyId, user })).toString('hex');

test('u1, u2 and no user are three scopes, and so are two keys', () => {
  const scopes = [
    scope('k', 'u1'),
    scope('k', 'u2'),
    scope('k', null),
    scope('k', ''),
    scope('l', 'u1'),
  ];
  expect(new Set(scopes).size).toBe(5);
});

test('a session in the client’s user id makes no new scope', () => {
  const user = (session: string) =>
    JSON.stringify({ device_id: 'd', account_uuid: 'a', session_id: session });
  expect(scope('k', user('1'))).toBe(scope('k', user('2')));
  expect(stableUser('user_ab_account_cd_session_1')).toBe(
    stableUser('user_ab_account_cd_session_2'),
  );
  expect(scope('k', user('1'))).not.toBe(scope('k', user('1').replace('"d"', '"e"')));
});

test.each(['{', '{"session_id":1}', '[]', 'plain', '{"a":1}'])(
  'a user id of another form (%s) is taken as it is',
  (id) => expect(stableUser(id)).toBe(id),
);

test('a user id over 512 bytes is refused', () => {
  expect(() => stableUser('ü'.repeat(257))).toThrow(/512 bytes/);
  expect(stableUser('ü'.repeat(256))).toHaveLength(256);
});

test('every fact of the model is part of its compat id', () => {
  const facts: CompatFacts = {
    format: 1,
    modelFingerprint: 'm',
    tokenizerHash: 't',
    templateHash: 'c',
    kvType: 'f16',
    rope: '',
    adapters: [],
    numerics: 'a8-1',
  };
  const others: CompatFacts[] = [
    { ...facts, format: 2 },
    { ...facts, modelFingerprint: 'n' },
    { ...facts, tokenizerHash: 'n' },
    { ...facts, templateHash: 'n' },
    { ...facts, kvType: 'f32' },
    { ...facts, rope: 'yarn' },
    { ...facts, adapters: ['x'] },
    { ...facts, numerics: 'exact-1' },
  ];
  const ids = [facts, ...others].map((each) => Buffer.from(compatId(sha256, each)).toString('hex'));
  expect(new Set(ids).size).toBe(others.length + 1);
});

test('hashes are those of the standard, whatever the size', () => {
  const hex = (size: number, second: number) =>
    Buffer.from(sha256(new Uint8Array(size).fill(97), new Uint8Array(second).fill(97))).toString(
      'hex',
    );
  expect(hex(0, 0)).toBe('e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855');
  for (const [first, second] of [
    [1, 2],
    [32, 1024],
    [32, 1025],
    [5000, 1],
  ] as const) {
    const whole = createHash('sha256')
      .update(Buffer.alloc(first + second, 97))
      .digest('hex');
    expect(hex(first, second)).toBe(whole);
  }
});
