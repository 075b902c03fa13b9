// The index against a list of all sources that is searched from end to end.
import { expect, test } from 'vitest';
import { createPrng, type Prng } from '../../src/base/prng.ts';
import { commonBytes } from '../../src/kvstore/core/bytes.ts';
import { PAGE_BYTES, pageHashes, unitName } from '../../src/kvstore/core/page-chain.ts';
import { PrefixIndex, type SourceKind } from '../../src/kvstore/core/prefix-index.ts';
import { RECENT_PER_SCOPE, RecentRequests } from '../../src/kvstore/core/recent-requests.ts';
import { sha256 } from '../../src/kvstore/format/hashing.ts';
import { bytesOf, seedOf } from '../unit/kvstore/hashing.ts';

interface Entry {
  readonly kind: SourceKind;
  readonly id: string;
  readonly scope: string;
  readonly bytes: Uint8Array;
}

/** Few letters and lengths around pages, so that beginnings coincide often. */
function randomKey(prng: Prng, known: readonly Entry[]): Uint8Array {
  const base = known[prng.below(Math.max(1, known.length))]?.bytes ?? new Uint8Array(0);
  const kept = prng.chance(0.7)
    ? base.subarray(0, prng.below(base.length + 1))
    : base.subarray(0, 0);
  const edges = [0, 1, 3, PAGE_BYTES - 1, PAGE_BYTES, PAGE_BYTES + 1, 2 * PAGE_BYTES];
  const more = prng.chance(0.5) ? prng.below(5) : (edges[prng.below(edges.length)] ?? 0);
  const key = new Uint8Array(kept.length + more);
  key.set(kept);
  for (let at = kept.length; at < key.length; at += 1) key[at] = 97 + prng.below(2);
  return key;
}

test.each(Array.from({ length: 60 }, (_, seed) => seed))(
  'agrees with brute force (seed %i)',
  (seed) => {
    const prng = createPrng(seed);
    const index = new PrefixIndex(sha256);
    let all: Entry[] = [];
    for (let round = 0; round < 60; round += 1) {
      const scope = prng.chance(0.8) ? 'a' : 'b';
      if (prng.chance(0.3) && all.length > 0) {
        const gone = all[prng.below(all.length)];
        all = all.filter((entry) => entry !== gone);
        if (gone !== undefined) index.remove(gone.kind, gone.id);
      } else {
        const kind = (['unit', 'slot', 'recent'] as const)[prng.below(3)] ?? 'unit';
        const entry = { kind, id: `${prng.below(30)}`, scope, bytes: randomKey(prng, all) };
        all = [...all.filter((other) => other.kind !== kind || other.id !== entry.id), entry];
        index.add(kind, entry.id, seedOf(scope), entry.bytes);
      }
      const prompt = randomKey(prng, all);
      const mine = all.filter((entry) => entry.scope === scope);
      const lookup = index.lookup(seedOf(scope), prompt);
      const found = [...lookup.covering()].map((source) => source.length);
      const expected = mine
        .filter(({ bytes }) => commonBytes(bytes, prompt) === bytes.length)
        .map(({ bytes }) => bytes.length)
        .sort((a, b) => b - a);
      expect(found).toEqual(expected);
      const longest = Math.max(-1, ...mine.map(({ bytes }) => commonBytes(bytes, prompt)));
      const common = lookup.longestCommon();
      expect(common?.bytes ?? -1).toBe(longest);
      const witness = mine.find(
        ({ kind, id }) => kind === common?.source.kind && id === common.source.id,
      );
      expect(commonBytes(witness?.bytes ?? new Uint8Array(0), prompt)).toBe(Math.max(0, longest));
    }
    for (const entry of all) index.remove(entry.kind, entry.id);
    expect([index.size, index.pageCount]).toEqual([0, 0]);
  },
);

test('page hashes depend on seed, order and every byte', () => {
  const bytes = new Uint8Array(3 * PAGE_BYTES + 5);
  const other = bytes.slice();
  other[PAGE_BYTES] = 1;
  const hex = (seed: string, key: Uint8Array) =>
    pageHashes(sha256, seedOf(seed), key).map((hash) => Buffer.from(hash).toString('hex'));
  const [a, b, c] = [hex('s', bytes), hex('s', other), hex('t', bytes)];
  expect(a).toHaveLength(3);
  expect([a[0] === b[0], a[1] === b[1], a[2] === b[2]]).toEqual([true, false, false]);
  expect(c[0]).not.toBe(a[0]);
  expect(unitName(sha256, seedOf('s'), bytes)).toMatch(/^[0-9a-f]{40}$/);
  expect(unitName(sha256, seedOf('s'), bytes)).not.toBe(
    unitName(sha256, seedOf('s'), bytes.subarray(1)),
  );
});

test('only the last 64 requests of a scope are remembered', () => {
  const index = new PrefixIndex(sha256);
  const recent = new RecentRequests(index);
  for (let i = 0; i < 100; i += 1) recent.note(seedOf('a'), bytesOf(`prompt ${i}!`));
  for (let i = 0; i < 300; i += 1) recent.note(seedOf(`user ${i}`), bytesOf('hello'));
  expect(index.lookup(seedOf('a'), bytesOf('prompt 0!')).longestCommon()).toBeNull();
  expect(recent.size).toBeLessThanOrEqual(256 + RECENT_PER_SCOPE);
});
