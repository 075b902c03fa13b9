// A directory of the store has one holder, also across processes, and none after the holder's end.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { nativeLocks } from '../../src/kvstore/disk/native-locks.ts';

const LOCKS = join(import.meta.dirname, '../../dist/kvstore/disk/native-locks.js');

let directory: string;
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'cox-lock-'));
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

it('one holder at a time in a process', async () => {
  const held = await nativeLocks.lock(directory);
  await expect(nativeLocks.lock(directory)).rejects.toMatchObject({
    code: 'KV_LOCKED',
    message: expect.stringContaining(`is held by process ${process.pid}`),
  });
  await held.release();
  await held.release();
  await (await nativeLocks.lock(directory)).release();
});

it('another process is named, and its end, however it comes, frees the directory', async () => {
  const script = `const { nativeLocks } = await import(${JSON.stringify(LOCKS)});
    await nativeLocks.lock(${JSON.stringify(directory)});
    console.log('held');
    setInterval(() => {}, 1000);`;
  const other = spawn(process.execPath, ['--input-type=module', '-e', script]);
  await once(other.stdout, 'data');
  await expect(nativeLocks.lock(directory)).rejects.toMatchObject({
    message: expect.stringContaining(`process ${other.pid}`),
  });
  const ended = once(other, 'exit');
  other.kill('SIGKILL');
  await ended;
  await (await nativeLocks.lock(directory)).release();
});

it('a directory that is not there is named', async () => {
  const absent = join(directory, 'absent');
  await expect(nativeLocks.lock(absent)).rejects.toMatchObject({
    code: 'KV_WRITE_FAILED',
    message: expect.stringContaining(absent),
  });
});
