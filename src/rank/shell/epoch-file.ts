// The highest epoch this rank ever accepted, over restarts: one small JSON file in the state directory.
// Written to a temporary name, synced, renamed, and the directory synced, so a crash leaves the old or
// the new value. A file that cannot be understood is an error: guessing could obey two coordinators.
import { mkdir, open, readFile, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { CoxswainError } from '../../base/errors.ts';

export interface StoredEpoch {
  readonly epoch: number;
  readonly incarnation: string;
}

export interface EpochStore {
  read(): Promise<StoredEpoch>;
  /** Durable when it resolves. */
  write(value: StoredEpoch): Promise<void>;
}

const NEVER: StoredEpoch = { epoch: 0, incarnation: '' };

/** In memory when `stateDir` is null. `name` keeps apart the ranks of one host. */
export function openEpochStore(stateDir: string | null, name: string): EpochStore {
  if (stateDir === null) {
    let value = NEVER;
    return {
      read: () => Promise.resolve(value),
      write: (next) => {
        value = next;
        return Promise.resolve();
      },
    };
  }
  const path = join(stateDir, `${name}.epoch.json`);
  return { read: () => readEpoch(path), write: (value) => writeEpoch(stateDir, path, value) };
}

async function readEpoch(path: string): Promise<StoredEpoch> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (cause) {
    if (cause instanceof Error && 'code' in cause && cause.code === 'ENOENT') return NEVER;
    throw new CoxswainError('FILE_UNREADABLE', `Cannot read ${path}.`, { cause });
  }
  const value = parseEpoch(text);
  if (value === null) {
    throw new CoxswainError(
      'FILE_UNREADABLE',
      `${path} does not hold an epoch; delete it once no coordinator of an earlier time is running.`,
    );
  }
  return value;
}

function parseEpoch(text: string): StoredEpoch | null {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  if (typeof value !== 'object' || value === null) return null;
  if (!('epoch' in value && 'incarnation' in value)) return null;
  const { epoch, incarnation } = value;
  if (!Number.isSafeInteger(epoch) || typeof incarnation !== 'string') return null;
  return { epoch: Number(epoch), incarnation };
}

async function writeEpoch(directory: string, path: string, value: StoredEpoch): Promise<void> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const temporary = `${path}.${process.pid}.tmp`;
  const file = await open(temporary, 'w', 0o600);
  try {
    await file.writeFile(`${JSON.stringify(value)}\n`);
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(temporary, path);
  const parent = await open(directory, 'r');
  try {
    await parent.sync();
  } finally {
    await parent.close();
  }
}
