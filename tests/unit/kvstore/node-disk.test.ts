// The store on the real disk.
import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openDirectoryIdentity } from '../../../src/kvstore/disk/identity-files.ts';
import { nodeDisk } from '../../../src/kvstore/disk/node-disk.ts';
import { TRASH_MS } from '../../../src/kvstore/disk/shard-directory.ts';
import { SmallStore } from './small-store.ts';
import { randomIds } from './unit-fixture.ts';

let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'cox-kv-'));
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

const open = (epoch: number) =>
  SmallStore.open({ disk: nodeDisk, root: `${root}/kv`, plan: { tp: 2, pp: 1 } }, epoch);

test('a unit outlives the process, and every file is its owner’s alone', async () => {
  const ids = randomIds(1, 700);
  expect(await (await open(1)).save(ids, 'prompt-end')).toBe('committed');
  const again = await open(2);
  expect(again.driver.own.epoch).toBe(2);
  expect((await again.serve(ids)).hit).toBe(700);
  const tail = await again.driver.tailOf((await again.serve(ids)).unit ?? expect.fail('a hit'));
  expect(tail.logits).toEqual(Float32Array.of(1, 2));
  for (const entry of readdirSync(`${root}/kv`, { recursive: true, withFileTypes: true })) {
    const mode = statSync(join(entry.parentPath, entry.name)).mode & 0o777;
    expect([entry.name, mode]).toEqual([entry.name, entry.isDirectory() ? 0o700 : 0o600]);
  }
});

test('use is remembered over a restart', async () => {
  const ids = randomIds(1, 300);
  const first = await open(1);
  await first.save(ids, 'prompt-end');
  await first.serve(ids);
  await first.serve(ids);
  const [record] = (await open(2)).driver.store.catalog.records;
  expect(record?.hits).toBe(2);
});

test('a directory of another store is refused and left alone', async () => {
  const path = `${root}/shards`;
  const random = (count: number) => new Uint8Array(count).fill(7);
  const id = await openDirectoryIdentity(nodeDisk, path, '11'.repeat(16), random);
  expect(await openDirectoryIdentity(nodeDisk, path, '11'.repeat(16), random)).toBe(id);
  await expect(openDirectoryIdentity(nodeDisk, path, '22'.repeat(16), random)).rejects.toThrow(
    /belongs to store 1111/,
  );
});

test('a directory with files of something else is no store', async () => {
  await nodeDisk.append(`${root}/letter.txt`, Uint8Array.of(1));
  const opened = SmallStore.open({ disk: nodeDisk, root, plan: { tp: 1, pp: 1 } }, 1);
  await expect(opened).rejects.toMatchObject({ code: 'KV_FOREIGN' });
});

test('files are not overwritten, missing ones are values, free space is known before a directory is', async () => {
  const file = await nodeDisk.createExclusive(`${root}/x`);
  await file.write(Uint8Array.of(1, 2, 3));
  await file.sync();
  await file.close();
  await expect(nodeDisk.createExclusive(`${root}/x`)).rejects.toMatchObject({
    code: 'KV_WRITE_FAILED',
  });
  expect(await nodeDisk.read(`${root}/x`, 1, 10)).toEqual(Uint8Array.of(2, 3));
  expect(await nodeDisk.read(`${root}/y`, 0, 1)).toBeNull();
  expect(await nodeDisk.list(`${root}/none`)).toBeNull();
  expect(await nodeDisk.unlink(`${root}/y`)).toBe(false);
  expect(await nodeDisk.freeBytes(`${root}/a/b/c`)).toBeGreaterThan(0);
});

test('trash is emptied after a day', async () => {
  const store = await open(1);
  await store.save(randomIds(1, 300), 'prompt-end');
  const directory = store.holders[0]?.directory ?? expect.fail('a holder');
  const { segments } = await directory.inventory();
  await directory.trash(
    segments.map(({ id }) => id),
    1000,
  );
  expect((await directory.inventory()).segments).toEqual([]);
  expect(await directory.emptyTrash(TRASH_MS)).toBe(0);
  expect(await directory.emptyTrash(1000 + TRASH_MS)).toBe(segments.length);
});
