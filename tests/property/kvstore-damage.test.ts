// Damage of every kind to a store's files, and a power cut at every single operation of a commit: the
// answer is a hit with the right state, or a miss, never anything else.
import { expect, test } from 'vitest';
import { createPrng, type Prng } from '../../src/base/prng.ts';
import { FakeDisk } from '../sim/kvstore/fake-disk.ts';
import { SmallStore } from '../unit/kvstore/small-store.ts';
import { randomIds } from '../unit/kvstore/unit-fixture.ts';

const FLIPS = Number(process.env['COX_KV_FLIPS'] ?? 10_000);
const PLAN = { tp: 2, pp: 1 };
const options = (disk: FakeDisk) => ({ disk, root: '/kv', plan: PLAN });
const watch = { removing: () => undefined };

function damage(prng: Prng, bytes: Uint8Array, other: Uint8Array): Uint8Array {
  const kind = prng.below(10);
  if (kind === 0) return bytes.slice(0, prng.below(bytes.length));
  if (kind === 1) return other.slice();
  const bad = bytes.slice();
  for (let left = 1 + prng.below(3); left > 0; left -= 1) {
    const at = prng.below(bad.length);
    bad[at] = (bad[at] ?? 0) ^ (1 << prng.below(8));
  }
  return bad;
}

async function repair(disk: FakeDisk, pristine: ReadonlyMap<string, Uint8Array>): Promise<void> {
  for (const path of disk.paths()) {
    if (!pristine.has(path) && /\.(seg|man)$/.test(path)) await disk.unlink(path);
  }
  for (const [path, bytes] of pristine) {
    if (!disk.paths().includes(path)) await (await disk.createExclusive(path)).close();
    disk.rot(path, () => bytes.slice());
  }
}

test(`${FLIPS} times damaged, a store gives hits, misses or quarantine, never a wrong row`, async () => {
  const prng = createPrng(77);
  const disk = new FakeDisk('d', createPrng(1), watch);
  const store = await SmallStore.open(options(disk), 1);
  const short = randomIds(1, 280);
  const long = Int32Array.from([...short, ...randomIds(2, 50)]);
  await store.save(short, 'prompt-end');
  await store.save(long, 'prompt-end', { parent: (await store.serve(short)).unit });
  const files = disk.paths().filter((path) => /\.(seg|man|journal)$/.test(path));
  const pristine = new Map<string, Uint8Array>();
  for (const path of files) {
    disk.rot(path, (bytes) => {
      pristine.set(path, bytes.slice());
      return bytes;
    });
  }
  const hits: Record<number, number> = {};
  for (let round = 0; round < FLIPS; round += 1) {
    const path = files[prng.below(files.length)] ?? '';
    const other = files[prng.below(files.length)] ?? '';
    disk.rot(path, (bytes) => damage(prng, bytes, pristine.get(other) ?? bytes));
    const again = await SmallStore.open(options(disk), 1);
    const { hit } = await again.serve(long);
    hits[hit] = (hits[hit] ?? 0) + 1;
    await repair(disk, pristine);
  }
  expect(
    Object.keys(hits)
      .map(Number)
      .sort((a, b) => a - b),
  ).toEqual([0, 280, 330]);
}, 600_000);

test('a power cut at any operation of a commit leaves the old or the new state', async () => {
  const short = randomIds(1, 300);
  const long = Int32Array.from([...short, ...randomIds(2, 200)]);
  const seen = new Set<number>();
  let operations = 0;
  for (let cut = 1; operations === 0; cut += 1) {
    for (let seed = 0; seed < 8; seed += 1) {
      const disk = new FakeDisk('d', createPrng(seed), watch);
      const store = await SmallStore.open(options(disk), 1);
      await store.save(short, 'prompt-end');
      const parent = (await store.serve(short)).unit;
      disk.cutPowerAfter(cut);
      const outcome = await store.save(long, 'prompt-end', { parent }).catch(() => 'dead');
      if (!disk.dead) operations = cut;
      disk.restart(true);
      const { hit } = await (await SmallStore.open(options(disk), 2)).serve(long);
      expect(outcome === 'committed' ? [500] : [300, 500]).toContain(hit);
      seen.add(hit);
    }
  }
  expect([operations > 20, ...seen]).toEqual([true, 300, 500]);
}, 120_000);
