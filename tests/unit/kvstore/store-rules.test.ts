// Rules of prefix caching as a client sees them (D: the documented rules of disk caching, B: failures
// seen elsewhere), on the store with live reuse off: every hit is a unit from disk.
import { describe, expect, test } from 'vitest';
import { createPrng } from '../../../src/base/prng.ts';
import { tokensWithin } from '../../../src/kvstore/core/cuts.ts';
import type { Unit } from '../../../src/kvstore/core/model.ts';
import {
  planInput,
  WRITE_OPTIONS,
  type WriteOptions,
} from '../../../src/kvstore/core/write-policy.ts';
import { FakeDisk } from '../../sim/kvstore/fake-disk.ts';
import { keyOf, textOf } from '../../sim/kvstore/histories.ts';
import { SmallStore } from './small-store.ts';
import { randomIds } from './unit-fixture.ts';

const WRITE: WriteOptions = {
  ...WRITE_OPTIONS,
  minTokens: 16,
  intervalTokens: 256,
  intervalOfContext: 1,
};
const NO_INTERVAL = { ...WRITE, intervalTokens: 0 };
const newDisk = () => new FakeDisk('d', createPrng(1), { removing: () => undefined });
const concat = (...parts: readonly Int32Array[]) =>
  Int32Array.from(parts.flatMap((part) => [...part]));
const [A, B, C, D] = [1, 2, 3, 4].map((seed) => randomIds(seed, 100)) as [
  Int32Array,
  Int32Array,
  Int32Array,
  Int32Array,
];

/** A client of one scope: what a server does for a request, without an engine. */
class Client {
  readonly store: SmallStore;
  private readonly user: string | null;
  private readonly write: WriteOptions;

  constructor(store: SmallStore, write: WriteOptions = NO_INTERVAL, user: string | null = null) {
    this.store = store;
    this.user = user;
    this.write = write;
  }

  /** Tokens of the prompt that came from disk. */
  async ask(prompt: Int32Array, answer: Int32Array = new Int32Array(0)): Promise<number> {
    const { store, user } = this;
    const { seed } = store.seed(user);
    const common = store.driver.store.known(seed, keyOf(prompt)).common;
    const { hit, unit } = await store.serve(prompt, user);
    const shared = common === null ? 0 : tokensWithin(textOf(prompt).ends, common.bytes);
    const plan = planInput(
      this.write,
      {
        promptTokens: prompt.length,
        restoredTokens: hit,
        inputEnd: null,
        common: shared === 0 ? null : { tokens: shared, endsMessage: false },
        anchor: null,
        fixedTokens: 0,
        context: 1e6,
        sideRequest: false,
      },
      () => false,
    );
    let parent = unit;
    for (const { tokens, reason } of plan.moments) {
      parent = await this.save(prompt.slice(0, tokens), reason, parent);
    }
    if (answer.length > 0) await this.save(concat(prompt, answer), 'output-end', parent);
    store.driver.store.noteRequest(seed, keyOf(prompt));
    return hit;
  }

  private async save(
    ids: Int32Array,
    reason: 'output-end' | string,
    parent: Unit | null,
  ): Promise<Unit | null> {
    const { store, user } = this;
    await store.save(ids, reason as 'prompt-end', { parent, user });
    const known = store.driver.store.known(store.seed(user).seed, keyOf(ids)).units[0];
    return known?.unit.tokens === ids.length ? known.unit : parent;
  }
}

const open = (
  disk = newDisk(),
  more: { readonly ttlMs?: number; readonly clock?: { now: number } } = {},
) => SmallStore.open({ disk, root: '/kv', plan: { tp: 2, pp: 1 }, ...more }, 1, more.clock);

describe('documented rules', () => {
  test('D1, D12: input and input with output are units; an exact repeat hits whole', async () => {
    const client = new Client(await open());
    expect(await client.ask(A, B)).toBe(0);
    expect(await client.ask(A)).toBe(A.length);
    expect(await client.ask(concat(A, B, C))).toBe(A.length + B.length);
  });

  test('D2: a conversation that goes on hits all of its past', async () => {
    const client = new Client(await open());
    expect([await client.ask(concat(A, B)), await client.ask(concat(A, B, C))]).toEqual([0, 200]);
  });

  test('D3, D6: a beginning that two share serves the third, and no unit dies of it', async () => {
    const client = new Client(await open());
    const hits = [];
    for (const end of [B, C, D]) hits.push(await client.ask(concat(A, end)));
    expect(hits).toEqual([0, 0, A.length]);
    expect(await client.ask(concat(A, B))).toBe(200);
  });

  test('D4, D5: a part of a unit never hits, the longest unit wins', async () => {
    const client = new Client(await open());
    await client.ask(concat(A, B));
    expect((await client.store.serve(A)).hit).toBe(0);
    await client.ask(concat(A, B, C));
    expect((await client.store.serve(concat(A, B, C, D))).hit).toBe(300);
  });

  test('D7: long inputs share whole intervals', async () => {
    const client = new Client(await open(), { ...WRITE, minTokens: 1e6 });
    const long = randomIds(9, 900);
    const client2 = new Client(client.store, { ...WRITE, minTokens: 256 });
    expect(await client2.ask(long)).toBe(0);
    const other = concat(long.slice(0, 563), randomIds(10, 300));
    expect((await client2.store.serve(other)).hit).toBe(512);
  });

  test('D9: a unit that is being written is a miss, not a wait', async () => {
    const store = await open();
    const ids = randomIds(5, 300);
    const saving = store.save(ids, 'prompt-end');
    expect((await store.serve(ids)).hit).toBe(0);
    expect(await saving).toBe('committed');
    expect((await store.serve(ids)).hit).toBe(300);
  });

  test('D13: two users and none are three scopes', async () => {
    const store = await open();
    const users = ['u1', 'u2', null];
    for (const user of users) expect(await new Client(store, NO_INTERVAL, user).ask(A)).toBe(0);
    for (const user of users) expect(await new Client(store, NO_INTERVAL, user).ask(A)).toBe(100);
  });

  test('D14: a unit that nobody used for the time to live expires; use refreshes', async () => {
    const clock = { now: 1e12 };
    const client = new Client(await open(newDisk(), { ttlMs: 1000, clock }));
    await client.ask(A);
    clock.now += 900;
    expect(await client.ask(A)).toBe(100);
    clock.now += 900;
    await client.store.driver.tick();
    expect(await client.ask(A)).toBe(100);
    clock.now += 1001;
    await client.store.driver.tick();
    expect(await client.ask(A)).toBe(0);
  });

  test('D15: the directory removed under a running server makes misses only', async () => {
    const disk = newDisk();
    const client = new Client(await open(disk));
    await client.ask(A);
    for (const path of disk.paths()) if (path.endsWith('.seg')) await disk.unlink(path);
    expect(await client.ask(A)).toBe(0);
  });
});

describe('failures seen elsewhere', () => {
  test('B14: a damaged unit is not offered again, a shorter one serves', async () => {
    const disk = newDisk();
    const client = new Client(await open(disk));
    await client.ask(A, B);
    const long = client.store.driver.store.known(client.store.seed(null).seed, keyOf(concat(A, B)))
      .units[0];
    const own = long?.unit.segments.find(
      ({ kind, tokenEnd }) => kind === 'pool' && tokenEnd === 200,
    );
    const path = disk.paths().find((each) => each.includes(own?.id ?? '?')) ?? '';
    disk.rot(path, (bytes) => bytes.fill(1, 5000, 5001));
    expect(await client.ask(concat(A, B))).toBe(100);
    expect(long?.state).toBe('quarantined');
    // What was asked again was computed again, and saved over the damaged one.
    expect(await client.ask(concat(A, B))).toBe(200);
  });

  test('what is damaged is set aside, and stays so over a restart', async () => {
    const disk = newDisk();
    const store = await open(disk);
    const ids = randomIds(5, 300);
    await store.save(ids, 'prompt-end');
    const { unit } = await store.serve(ids);
    store.driver.quarantine(unit?.segments[0]?.id ?? '');
    await store.driver.tick();
    await store.pump();
    expect(disk.paths().filter((path) => path.endsWith('.man'))).toEqual([]);
    expect(disk.paths().filter((path) => path.includes('/trash/')).length).toBe(
      unit?.segments.length,
    );
    expect((await (await open(disk)).serve(ids)).hit).toBe(0);
  });

  test('B18: one prefix is written once, and not evicted by its own writing', async () => {
    const store = await open();
    const ids = randomIds(5, 300);
    expect([await store.save(ids, 'prompt-end'), await store.save(ids, 'prompt-end')]).toEqual([
      'committed',
      'exists',
    ]);
    store.setBudgets(1000);
    expect(await store.save(randomIds(6, 300), 'prompt-end')).toBe('no-space');
    expect((await store.serve(ids)).hit).toBe(300);
  });

  test('B19: making room spares the unit that the request goes on from', async () => {
    const store = await open();
    const ids = randomIds(5, 300);
    await store.save(ids, 'prompt-end');
    const { unit } = await store.serve(ids);
    await store.save(randomIds(6, 300), 'prompt-end');
    store.setBudgets(
      store.driver.store.catalog.bytesIn(store.holders[0]?.directory.id ?? '') * 1.05,
    );
    expect(await store.save(concat(ids, C), 'prompt-end', { parent: unit })).toBe('committed');
    expect((await store.serve(concat(ids, C))).hit).toBe(400);
  });

  test('B17: a child of a unit that is gone or damaged meanwhile is not written', async () => {
    const store = await open();
    const ids = randomIds(5, 300);
    await store.save(ids, 'prompt-end');
    const { unit } = await store.serve(ids);
    const record = store.driver.store.catalog.get(unit?.name ?? '') ?? expect.fail('a unit');
    const child = concat(ids, C);
    await store.driver.evict([record], 'cleared');
    expect(await store.save(child, 'prompt-end', { parent: unit })).toBe('parent-gone');
    await store.save(ids, 'prompt-end');
    const again = (await store.serve(ids)).unit;
    store.driver.quarantine(again?.segments[0]?.id ?? '');
    expect(await store.save(child, 'prompt-end', { parent: again })).toBe('parent-gone');
  });

  test('B23: what lies on disk counts after a restart', async () => {
    const disk = newDisk();
    const store = await open(disk);
    await store.save(randomIds(5, 300), 'prompt-end');
    const before = store.driver.store.catalog.totalBytes;
    expect((await open(disk)).driver.store.catalog.totalBytes).toBe(before);
  });

  test('B24: a full disk stops writing, not reading, and writing starts again', async () => {
    const disk = newDisk();
    const clock = { now: 1e12 };
    const store = await open(disk, { clock });
    const ids = randomIds(5, 300);
    await store.save(ids, 'prompt-end');
    disk.failNextSyncs(1);
    expect(await store.save(randomIds(6, 300), 'prompt-end')).toBe('failed');
    expect((await store.serve(ids)).hit).toBe(300);
    expect(await store.save(randomIds(6, 300), 'prompt-end')).toMatch(/refused|no-write/);
    clock.now += 31_000;
    expect(await store.save(randomIds(6, 300), 'prompt-end')).toBe('committed');
  });

  test('B27: units of one topology serve every other', async () => {
    const ids = randomIds(5, 600);
    for (const tp of [1, 2, 3]) {
      for (const pp of [1, 2]) {
        const plan = { tp, pp };
        const store = await SmallStore.open({ disk: newDisk(), root: '/kv', plan }, 1);
        await store.save(ids, 'prompt-end');
        for (const to of [1, 2, 3])
          expect((await store.serve(ids, null, { tp: to, pp: 3 - pp })).hit).toBe(600);
      }
    }
  });

  test('manifests that were lost come back from the ranks’ copies', async () => {
    const disk = newDisk();
    const ids = randomIds(5, 300);
    await (await open(disk)).save(ids, 'prompt-end');
    for (const path of disk.paths()) if (path.startsWith('/kv/manifests/')) await disk.unlink(path);
    const again = await SmallStore.open({ disk, root: '/kv', plan: { tp: 2, pp: 1 } }, 2);
    expect((await again.serve(ids)).hit).toBe(300);
  });
});
