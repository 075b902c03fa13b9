import { describe, expect, test } from 'vitest';
import { createPrng } from '../../../src/base/prng.ts';
import { KvCache, type Lease } from '../../../src/coordinator/core/kv-cache.ts';
import { prompt } from '../../sim/requests.ts';

const BLOCK = 4;

/** Takes blocks for all ids and records their rows as known. */
function fill(cache: KvCache, lease: Lease, ids: Int32Array): void {
  while (lease.blocks.length * BLOCK < ids.length) expect(cache.extend(lease)).toBe(true);
  cache.advance(lease, ids, ids.length);
}

function compute(cache: KvCache, ids: readonly number[], scope = ''): Lease {
  const all = Int32Array.from(ids);
  const lease = cache.share(cache.match(scope, all.subarray(0, -1)));
  fill(cache, lease, all);
  return lease;
}

function matched(cache: KvCache, ids: readonly number[], scope = ''): number {
  const { nodes, partial } = cache.match(scope, Int32Array.from(ids));
  return nodes.length * BLOCK + (partial?.rows ?? 0);
}

describe('finding a prefix', () => {
  test('a live sequence is found as far as its rows are known', () => {
    const cache = new KvCache(16, BLOCK);
    const lease = cache.share(cache.match('', Int32Array.from([])));
    const ids = Int32Array.from([1, 2, 3, 4, 5, 6, 7]);
    while (lease.blocks.length < 2) cache.extend(lease);
    cache.advance(lease, ids, 6);
    expect(matched(cache, [1, 2, 3, 4, 5, 6, 7])).toBe(6);
    expect(matched(cache, [1, 2, 3, 9])).toBe(3);
    expect(matched(cache, [9, 2, 3, 4])).toBe(0);
  });

  test('a finished sequence stays until its blocks are needed', () => {
    const cache = new KvCache(3, BLOCK);
    cache.release(compute(cache, [1, 2, 3, 4, 5, 6, 7, 8, 9]), true);
    expect(matched(cache, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10])).toBe(9);
    const other = compute(cache, [20, 21, 22, 23, 24]);
    expect(matched(cache, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10])).toBe(4);
    cache.release(other, true);
    cache.check(true);
  });

  test('scopes never see each other', () => {
    const cache = new KvCache(8, BLOCK);
    cache.release(compute(cache, [1, 2, 3, 4, 5], 'a'), true);
    expect(matched(cache, [1, 2, 3, 4, 5], 'b')).toBe(0);
    expect(matched(cache, [1, 2, 3, 4, 5], 'a')).toBe(5);
  });

  test('of several continuations the longest wins', () => {
    const cache = new KvCache(16, BLOCK);
    for (const tail of [[5], [5, 6], [5, 6, 7], [6]]) {
      cache.release(compute(cache, [1, 2, 3, 4, ...tail]), true);
    }
    expect(matched(cache, [1, 2, 3, 4, 5, 6, 7, 8])).toBe(7);
    expect(matched(cache, [1, 2, 3, 4, 5, 6, 9, 8])).toBe(6);
  });
});

describe('accounts', () => {
  test('equal blocks computed at the same time become one when one of them is released', () => {
    const cache = new KvCache(16, BLOCK);
    const ids = Int32Array.from([1, 2, 3, 4, 5, 6, 7, 8]);
    const first = cache.share(cache.match('', ids));
    const second = cache.share(cache.match('', ids));
    fill(cache, first, ids);
    fill(cache, second, ids);
    expect(cache.freeCount).toBe(12);
    cache.release(first, true);
    expect(cache.freeCount).toBe(14);
    cache.release(second, true);
    expect([cache.freeCount, cache.cachedCount]).toEqual([14, 2]);
    cache.check(true);
  });

  test('blocks in use are never evicted', () => {
    const cache = new KvCache(3, BLOCK);
    const live = compute(cache, [1, 2, 3, 4, 5, 6, 7, 8]);
    const other = cache.private();
    expect(cache.extend(other)).toBe(true);
    expect(cache.extend(other)).toBe(false);
    cache.release(other, true);
    expect(matched(cache, [1, 2, 3, 4, 5, 6, 7, 8])).toBe(8);
    cache.release(live, true);
  });

  test('a prefix outlives what continued it', () => {
    const cache = new KvCache(4, BLOCK);
    cache.release(compute(cache, [1, 2, 3, 4, 5, 6, 7, 8]), true);
    cache.release(compute(cache, [1, 2, 3, 4, 9, 9, 9, 9]), true);
    const lease = cache.private();
    for (let count = 0; count < 3; count += 1) expect(cache.extend(lease)).toBe(true);
    expect(matched(cache, [1, 2, 3, 4, 5, 6])).toBe(4);
    cache.release(lease, false);
    cache.check(true);
  });

  test('private leases and released ones without keeping leave nothing behind', () => {
    const cache = new KvCache(8, BLOCK);
    const secret = cache.private();
    fill(cache, secret, Int32Array.from([1, 2, 3, 4, 5]));
    expect(matched(cache, [1, 2, 3, 4, 5])).toBe(0);
    cache.release(secret, true);
    cache.release(compute(cache, [1, 2, 3, 4, 5]), false);
    expect(cache.freeCount).toBe(8);
  });

  test('a leak is noticed', () => {
    const cache = new KvCache(4, BLOCK);
    compute(cache, [1, 2, 3]);
    expect(() => cache.check(true)).toThrow('no block is held when nothing runs');
  });
});

// The dumb twin keeps every block's ids in a plain list and compares all of them.
test('matches equal those of a plain search, over random histories', () => {
  for (let seed = 1; seed <= 60; seed += 1) {
    const prng = createPrng(seed);
    const cache = new KvCache(4 + prng.below(20), BLOCK);
    const live: { readonly lease: Lease; readonly ids: readonly number[] }[] = [];
    for (let turn = 0; turn < 60; turn += 1) {
      const ids = prompt(1 + prng.below(14), prng.below(3), 3);
      expect(matched(cache, ids)).toBeGreaterThanOrEqual(
        Math.max(0, ...live.map((other) => common(other.ids, ids))),
      );
      const blocks = Math.ceil(ids.length / BLOCK);
      if (live.length < 3 && cache.availableCount >= blocks)
        live.push({ lease: compute(cache, ids), ids });
      else {
        const [over] = live.splice(prng.below(live.length), 1);
        if (over !== undefined) cache.release(over.lease, prng.chance(0.7));
      }
      cache.check(live.length === 0);
    }
  }
});

function common(a: readonly number[], b: readonly number[]): number {
  const at = a.findIndex((id, index) => id !== b[index]);
  return at < 0 ? Math.min(a.length, b.length) : at;
}
