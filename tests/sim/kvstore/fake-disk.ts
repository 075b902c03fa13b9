// A disk that keeps only what was synced. A power cut loses names and data that were not, tears what
// was being written, keeps any part of the rest; syncs fail once and then report success without having
// written; space runs out; bits rot.

import { CoxswainError } from '../../../src/base/errors.ts';
import type { Prng } from '../../../src/base/prng.ts';
import type { Disk, DiskEntry, DiskFile } from '../../../src/kvstore/disk/disk.ts';

interface Inode {
  data: Uint8Array;
  size: number;
  synced: Uint8Array;
  /** A sync failed: what was not on the medium then never gets there. */
  lostFrom: number | null;
}

interface NameChange {
  readonly path: string;
  /** null: the name goes. */
  readonly inode: Inode | null;
  readonly from: string | null;
}

export interface DiskWatch {
  /** Before a name goes, by unlink or rename. */
  removing(disk: FakeDisk, path: string): void;
}

export class FakeDisk implements Disk {
  readonly name: string;
  capacity = 1 << 30;
  private readonly prng: Prng;
  private readonly watch: DiskWatch;
  private names = new Map<string, Inode>();
  private durable = new Map<string, Inode>();
  private readonly directories = new Set<string>(['']);
  private pending: NameChange[] = [];
  private power: 'on' | 'off' = 'on';
  private cutAfter = Infinity;
  private failSyncs = 0;
  private failNamesOf: string | null = null;
  private failReadsOf: string | null = null;

  constructor(name: string, prng: Prng, watch: DiskWatch) {
    this.name = name;
    this.prng = prng;
    this.watch = watch;
  }

  /** The power went; its host's processes are no more. */
  get dead(): boolean {
    return this.power === 'off';
  }

  /** The power goes at the n-th operation from now. */
  cutPowerAfter(operations: number): void {
    this.cutAfter = operations;
  }

  failNextSyncs(count: number): void {
    this.failSyncs = count;
  }

  /** The next sync of this directory fails: whether its last names are on the medium is not known. */
  failNextSyncOf(directory: string): void {
    this.failNamesOf = directory;
  }

  /** The next read of a file under this directory fails; the file is sound. */
  failNextReadUnder(directory: string): void {
    this.failReadsOf = `${directory}/`;
  }

  /** What is left when the power comes back. */
  restart(powerLost: boolean): void {
    if (powerLost) this.lose();
    this.power = 'on';
    this.cutAfter = Infinity;
    this.failSyncs = 0;
    this.failNamesOf = null;
  }

  /** Live and durable contents under a directory: both may be what a restart finds. */
  views(directory: string): (readonly [path: string, bytes: Uint8Array])[] {
    const found: (readonly [string, Uint8Array])[] = [];
    for (const [path, inode] of this.names) {
      if (path.startsWith(`${directory}/`)) found.push([path, inode.data.subarray(0, inode.size)]);
    }
    for (const [path, inode] of this.durable) {
      if (path.startsWith(`${directory}/`)) found.push([path, inode.synced]);
    }
    return found;
  }

  paths(): string[] {
    return [...this.names.keys()];
  }

  /** Damages a file in place. */
  rot(path: string, change: (bytes: Uint8Array) => Uint8Array): void {
    const inode = this.names.get(path);
    if (inode === undefined) return;
    const bytes = change(inode.data.slice(0, inode.size));
    inode.data = bytes;
    inode.size = bytes.length;
    inode.synced = bytes.slice();
  }

  async makeDirectory(path: string): Promise<void> {
    this.operation();
    const parts = path.split('/').slice(1);
    for (let depth = 1; depth <= parts.length; depth += 1) {
      this.directories.add(`/${parts.slice(0, depth).join('/')}`);
    }
  }

  async list(path: string): Promise<readonly DiskEntry[] | null> {
    this.operation();
    if (!this.directories.has(path)) return null;
    const entries = new Map<string, DiskEntry>();
    for (const [full, inode] of this.names) {
      if (!full.startsWith(`${path}/`)) continue;
      const name = full.slice(path.length + 1);
      if (!name.includes('/')) entries.set(name, { name, bytes: inode.size, directory: false });
    }
    for (const full of this.directories) {
      const name = full.slice(path.length + 1);
      if (full.startsWith(`${path}/`) && !name.includes('/')) {
        entries.set(name, { name, bytes: 0, directory: true });
      }
    }
    return [...entries.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  async size(path: string): Promise<number | null> {
    this.operation();
    return this.names.get(path)?.size ?? null;
  }

  async read(path: string, offset: number, bytes: number): Promise<Uint8Array | null> {
    this.operation();
    if (this.failReadsOf !== null && path.startsWith(this.failReadsOf)) {
      this.failReadsOf = null;
      throw new CoxswainError('FILE_UNREADABLE', `${path}: EIO`);
    }
    const inode = this.names.get(path);
    if (inode === undefined) return null;
    return inode.data.slice(Math.min(offset, inode.size), Math.min(offset + bytes, inode.size));
  }

  async createExclusive(path: string): Promise<DiskFile> {
    this.operation();
    if (this.names.has(path)) throw failed(path, 'EEXIST');
    const empty = new Uint8Array(0);
    const inode: Inode = { data: empty, size: 0, synced: empty, lostFrom: null };
    this.change({ path, inode, from: null });
    return {
      write: async (bytes) => {
        this.operation(() => this.put(inode, bytes.subarray(0, this.prng.below(bytes.length + 1))));
        if (this.used() + bytes.length > this.capacity) {
          this.put(inode, bytes.subarray(0, Math.max(0, this.capacity - this.used())));
          throw failed(path, 'ENOSPC');
        }
        this.put(inode, bytes);
      },
      sync: async () => {
        this.operation();
        this.syncData(path, inode);
      },
      close: async () => undefined,
    };
  }

  async append(path: string, bytes: Uint8Array): Promise<void> {
    this.operation();
    let inode = this.names.get(path);
    if (inode === undefined) {
      const empty = new Uint8Array(0);
      inode = { data: empty, size: 0, synced: empty, lostFrom: null };
      this.change({ path, inode, from: null });
    }
    this.put(inode, bytes);
  }

  async rename(from: string, to: string): Promise<void> {
    this.operation();
    const inode = this.names.get(from);
    if (inode === undefined) throw failed(from, 'ENOENT');
    this.watch.removing(this, from);
    this.change({ path: to, inode, from });
  }

  async unlink(path: string): Promise<boolean> {
    this.operation();
    if (!this.names.has(path)) return false;
    this.watch.removing(this, path);
    this.change({ path, inode: null, from: null });
    return true;
  }

  async syncDirectory(path: string): Promise<void> {
    this.operation();
    if (this.failNamesOf === path) {
      this.failNamesOf = null;
      throw failed(path, 'EIO');
    }
    if (this.failSyncs > 0) {
      this.failSyncs -= 1;
      throw failed(path, 'EIO');
    }
    // File systems write their journal in order: everything before it becomes durable too.
    for (const change of this.pending) apply(this.durable, change);
    this.pending = [];
  }

  async freeBytes(): Promise<number> {
    this.operation();
    return Math.max(0, this.capacity - this.used());
  }

  private operation(torn: () => void = () => undefined): void {
    if (this.dead) throw failed(this.name, 'power is off');
    this.cutAfter -= 1;
    if (this.cutAfter > 0) return;
    torn();
    this.power = 'off';
    throw failed(this.name, 'the power went');
  }

  private syncData(path: string, inode: Inode): void {
    if (this.failSyncs > 0) {
      this.failSyncs -= 1;
      inode.lostFrom = inode.synced.length;
      throw failed(path, 'EIO');
    }
    inode.synced = inode.data.slice(0, inode.lostFrom ?? inode.size);
  }

  private used(): number {
    let sum = 0;
    for (const { size } of this.names.values()) sum += size;
    return sum;
  }

  private put(inode: Inode, bytes: Uint8Array): void {
    const size = inode.size + bytes.length;
    if (size > inode.data.length) {
      const grown = new Uint8Array(Math.max(size, inode.data.length * 2));
      grown.set(inode.data.subarray(0, inode.size));
      inode.data = grown;
    }
    inode.data.set(bytes, inode.size);
    inode.size = size;
  }

  private change(change: NameChange): void {
    apply(this.names, change);
    this.pending.push(change);
  }

  /** Any prefix of the unsynced names and, of unsynced data, any part, some of it never written. */
  private lose(): void {
    const kept = this.prng.below(this.pending.length + 1);
    for (const change of this.pending.slice(0, kept)) apply(this.durable, change);
    this.pending = [];
    for (const inode of new Set(this.durable.values())) {
      const { length } = inode.synced;
      const end = length + this.prng.below(Math.max(1, inode.size - length + 1));
      const data = inode.data.slice(0, end);
      data.set(inode.synced.subarray(0, end));
      if (end > length && this.prng.chance(0.5))
        data.fill(0, length + this.prng.below(end - length));
      inode.data = data;
      inode.size = data.length;
      inode.synced = data.slice();
      inode.lostFrom = null;
    }
    this.names = new Map(this.durable);
  }
}

function apply(names: Map<string, Inode>, { path, inode, from }: NameChange): void {
  if (from !== null) names.delete(from);
  if (inode === null) names.delete(path);
  else names.set(path, inode);
}

function failed(path: string, code: string): CoxswainError {
  return new CoxswainError('KV_WRITE_FAILED', `${path}: ${code}`);
}
