// What a rank must have in common with its coordinator: each difference is one sentence that names both.
import { describe, expect, it } from 'vitest';
import { refuseHello, refuseLoaded } from '../../../../src/coordinator/shell/handshake.ts';
import { PROTOCOL_VERSION } from '../../../../src/wire/proof.ts';
import { fakePlan } from './fake-cluster.ts';

const model = {
  fingerprint: 'f'.repeat(64),
  numericsContract: 'n-1',
  buildId: 'build-1',
  context: 2048,
  vocab: 512,
  createdSeconds: 0,
};
const plan = fakePlan([1, 1], 1);
const hello = {
  protocol: PROTOCOL_VERSION,
  buildId: 'build-1',
  numericsContract: 'n-1',
  fingerprint: model.fingerprint,
  host: 'h',
  hostId: 'i',
  dataHost: '127.0.0.1',
  pid: 1,
  wantedRank: -1,
  cores: 1,
  memoryBytes: 1,
  epochMax: 0,
  threads: 0,
  session: '',
  received: 0,
};
const loaded = {
  planHash: plan.hash,
  numericsId: 'a8',
  isa: 'avx2',
  weightBytes: 1,
  kvBytes: 1,
  residentBytes: 1,
  vocab: 512,
  context: 2048,
  loadMs: 1,
  dataPort: 1,
  threads: 1,
  framesPort: 0,
};

describe('Hello', () => {
  it('is welcome when everything agrees', () => {
    expect(refuseHello(hello, model)).toBeNull();
  });

  it.each([
    [{ protocol: 9 }, /^Its protocol version is 9, this cluster's is 1: run the same Coxswain/],
    [{ buildId: 'build-2' }, /^Its build is build-2, this cluster's is build-1/],
    [{ numericsContract: '' }, /^Its numerics is \(none\), this cluster's is n-1/],
    [
      { fingerprint: 'e'.repeat(64) },
      /^Its model fingerprint is e{16}, this cluster's is f{16}: .*same GGUF/,
    ],
  ])('is refused for %j with one sentence', (change, sentence) => {
    const refusal = refuseHello({ ...hello, ...change }, model) ?? '';
    expect(refusal).toMatch(sentence);
    expect(refusal.split('. ').length).toBe(1);
  });
});

describe('Loaded', () => {
  it('fits when plan, context, vocabulary and numerics agree', () => {
    expect(refuseLoaded(loaded, plan, model, null)).toBeNull();
    expect(refuseLoaded({ ...loaded, isa: 'neon' }, plan, model, loaded)).toBeNull();
  });

  it.each([
    [{ planHash: 'other' }, /plan is other, this cluster's is fake-1,1-1-2/],
    [{ context: 4096 }, /context is 4096, this cluster's is 2048/],
    [{ vocab: 513 }, /vocabulary is 513, this cluster's is 512/],
    [{ numericsId: 'exact' }, /numerics id is exact, this cluster's is a8/],
  ])('is refused for %j, naming both', (change, sentence) => {
    expect(refuseLoaded({ ...loaded, ...change }, plan, model, loaded)).toMatch(sentence);
  });
});
