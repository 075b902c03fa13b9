// The real disk, through node:fs. fsync is F_FULLFSYNC on Darwin (libuv asks for it).
import {
  constants,
  type FileHandle,
  mkdir,
  open,
  readdir,
  rename,
  statfs,
  unlink,
} from 'node:fs/promises';
import { dirname } from 'node:path';
import { CoxswainError } from '../../base/errors.ts';
import type { Disk, DiskEntry, DiskFile } from './disk.ts';

const DIRECTORY_MODE = 0o700;
const FILE_MODE = 0o600;
/** A list of more names than this is no directory of ours. */
const ENTRIES_MAX = 1_000_000;

export const nodeDisk: Disk = {
  async makeDirectory(path) {
    await writing(path, async () => {
      const first = await mkdir(path, { recursive: true, mode: DIRECTORY_MODE });
      if (first === undefined) return;
      // Every name made on the way must last, the topmost one in a directory that was there before.
      for (let made = path; made.length >= first.length; made = dirname(made)) {
        await syncPath(dirname(made));
      }
    });
  },

  list: (path) =>
    reading(path, async () => {
      const entries = await readdir(path, { withFileTypes: true });
      if (entries.length > ENTRIES_MAX) throw new Error(`${entries.length} names`);
      const found: DiskEntry[] = [];
      for (const entry of entries) {
        const directory = entry.isDirectory();
        const bytes = directory ? 0 : ((await nodeDisk.size(`${path}/${entry.name}`)) ?? 0);
        found.push({ name: entry.name, bytes, directory });
      }
      return found.sort((a, b) => (a.name < b.name ? -1 : 1));
    }),

  size: (path) => reading(path, () => withFile(path, async (file) => (await file.stat()).size)),

  read: (path, offset, bytes) =>
    reading(path, () =>
      withFile(path, async (file) => {
        const { size } = await file.stat();
        const buffer = new Uint8Array(Math.max(0, Math.min(bytes, size - offset)));
        let done = 0;
        while (done < buffer.length) {
          const { bytesRead } = await file.read(buffer, done, buffer.length - done, offset + done);
          if (bytesRead === 0) break;
          done += bytesRead;
        }
        return buffer.subarray(0, done);
      }),
    ),

  createExclusive: (path) =>
    writing(path, async () => {
      const flags =
        constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
      return new NodeFile(path, await open(path, flags, FILE_MODE));
    }),

  append: (path, bytes) =>
    writing(path, async () => {
      const file = await open(path, 'a', FILE_MODE);
      try {
        await writeAll(file, bytes);
      } finally {
        await file.close();
      }
    }),

  rename: (from, to) => writing(from, () => rename(from, to)),

  unlink: (path) =>
    writing(path, async () => {
      try {
        await unlink(path);
        return true;
      } catch (error) {
        if (codeOf(error) === 'ENOENT') return false;
        throw error;
      }
    }),

  syncDirectory: (path) => writing(path, () => syncPath(path)),

  async freeBytes(path) {
    // The directory may not exist yet: its nearest ancestor lies on the same disk.
    for (let at = path; ; at = dirname(at)) {
      try {
        const { bavail, bsize } = await statfs(at);
        return bavail * bsize;
      } catch (cause) {
        if (codeOf(cause) === 'ENOENT' && dirname(at) !== at) continue;
        throw new CoxswainError('FILE_UNREADABLE', `cannot ask for the free space at ${at}`, {
          cause,
        });
      }
    }
  },
};

class NodeFile implements DiskFile {
  private readonly path: string;
  private readonly file: FileHandle;

  constructor(path: string, file: FileHandle) {
    this.path = path;
    this.file = file;
  }

  write(bytes: Uint8Array): Promise<void> {
    return writing(this.path, () => writeAll(this.file, bytes));
  }

  sync(): Promise<void> {
    return writing(this.path, () => this.file.sync());
  }

  close(): Promise<void> {
    return writing(this.path, () => this.file.close());
  }
}

async function writeAll(file: FileHandle, bytes: Uint8Array): Promise<void> {
  let done = 0;
  while (done < bytes.length) {
    const { bytesWritten } = await file.write(bytes, done, bytes.length - done);
    done += bytesWritten;
  }
}

async function syncPath(path: string): Promise<void> {
  const directory = await open(path, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}

async function withFile<T>(path: string, work: (file: FileHandle) => Promise<T>): Promise<T> {
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW);
  try {
    return await work(file);
  } finally {
    await file.close();
  }
}

async function reading<T>(path: string, work: () => Promise<T>): Promise<T | null> {
  try {
    return await work();
  } catch (cause) {
    const code = codeOf(cause);
    if (code === 'ENOENT' || code === 'ENOTDIR') return null;
    throw new CoxswainError('FILE_UNREADABLE', `cannot read ${path} (${code})`, { cause });
  }
}

async function writing<T>(path: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (cause) {
    if (cause instanceof CoxswainError) throw cause;
    throw new CoxswainError('KV_WRITE_FAILED', `cannot write ${path} (${codeOf(cause)})`, {
      cause,
    });
  }
}

function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : String(error);
}
