// One shard directory: segment files under their final names, copies of manifests, a trash.
//
//   directory      identity        <id>.seg             segments
//   manifests/     <name>.man      copies               trash/  <ms>-<id>.seg
//
// Segments are created exclusively and never changed. A failed write or sync deletes the file; it is
// never retried. Owner: the process that holds the directory's lock.
import { createHash } from 'node:crypto';
import { toCoxswainError } from '../../base/errors.ts';
import type { Inventory, WrittenSegment } from '../core/messages.ts';
import { damaged } from '../format/bytes.ts';
import { MANIFEST_BYTES_MAX } from '../format/manifest.ts';
import {
  blockCount,
  blocksAround,
  checkBlocks,
  decodeSegmentHeader,
  decodeTrailer,
  encodeSegmentHeader,
  HEADER_ALIGN,
  PayloadChecksums,
  peekHeaderBytes,
  type SegmentHeader,
} from '../format/segment-file.ts';
import type { Disk } from './disk.ts';
import { placeFile, readWhole } from './files.ts';
import { openDirectoryIdentity, type RandomBytes } from './identity-files.ts';

const SEGMENT = /^([0-9a-f]{32})\.seg$/;
const TRASHED = /^(\d{1,16})-[0-9a-f]{32}\.seg$/;
export const TRASH_MS = 24 * 3_600_000;
const PROBE_NAME = 'probe';

/** A segment whose header and checksums were read and fit. */
export interface OpenSegment {
  readonly header: SegmentHeader;
  readonly payloadOffset: number;
  readonly sums: Uint32Array;
}

export class ShardDirectory {
  readonly id: string;
  readonly store: string;
  readonly path: string;
  private readonly disk: Disk;
  private readonly random: RandomBytes;

  private constructor(
    disk: Disk,
    path: string,
    identity: { readonly id: string; readonly store: string; readonly random: RandomBytes },
  ) {
    this.disk = disk;
    this.path = path;
    this.id = identity.id;
    this.store = identity.store;
    this.random = identity.random;
  }

  /** Made where there is none. KV_FOREIGN, KV_DAMAGED, KV_WRITE_FAILED. */
  static async open(
    disk: Disk,
    path: string,
    store: string,
    random: RandomBytes,
  ): Promise<ShardDirectory> {
    const id = await openDirectoryIdentity(disk, path, store, random);
    await disk.makeDirectory(`${path}/manifests`);
    await disk.makeDirectory(`${path}/trash`);
    return new ShardDirectory(disk, path, { id, store, random });
  }

  /** Creates, fills and syncs the file, then the directory. The payload must have the header's size. */
  async write(
    header: SegmentHeader,
    payload: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  ): Promise<WrittenSegment> {
    const path = this.pathOf(header.id);
    const digest = createHash('sha256');
    const sums = new PayloadChecksums();
    const file = await this.disk.createExclusive(path);
    let fileBytes = 0;
    try {
      const put = async (bytes: Uint8Array) => {
        await file.write(bytes);
        digest.update(bytes);
        fileBytes += bytes.length;
      };
      try {
        await put(encodeSegmentHeader(header));
        for await (const piece of payload) {
          sums.push(piece);
          await put(piece);
        }
        if (sums.bytes !== header.payloadBytes) {
          throw damaged(path, `${sums.bytes} bytes came, ${header.payloadBytes} were announced`);
        }
        await put(sums.trailer());
        await file.sync();
      } finally {
        await file.close();
      }
      await this.disk.syncDirectory(this.path);
    } catch (cause) {
      await this.disk.unlink(path).catch(() => false);
      throw cause;
    }
    return { id: header.id, digest: digest.digest('hex'), fileBytes };
  }

  /** null: there is no such file. KV_DAMAGED where it is not what its name says. */
  async openSegment(id: string): Promise<OpenSegment | null> {
    const path = this.pathOf(id);
    const fileBytes = await this.disk.size(path);
    if (fileBytes === null) return null;
    const first = await this.readAll(path, 0, Math.min(fileBytes, HEADER_ALIGN));
    const headerSize = headerSizeOf(path, first);
    const start = headerSize === first.length ? first : await this.readAll(path, 0, headerSize);
    const header = decodeSegmentHeader(path, start, fileBytes);
    if (header.id !== id || header.directory !== this.id || header.store !== this.store) {
      throw damaged(path, 'it is another segment, or of another directory or store');
    }
    const end = headerSize + header.payloadBytes;
    const trailer = await this.readAll(path, end, 4 * blockCount(header.payloadBytes) + 8);
    return {
      header,
      payloadOffset: headerSize,
      sums: decodeTrailer(path, trailer, header.payloadBytes),
    };
  }

  /** Checked bytes of the payload. KV_DAMAGED. */
  async readRange(
    segment: OpenSegment,
    range: { readonly offset: number; readonly bytes: number },
  ): Promise<Uint8Array> {
    const path = this.pathOf(segment.header.id);
    const { header, payloadOffset, sums } = segment;
    if (range.offset + range.bytes > header.payloadBytes) {
      throw damaged(path, `bytes ${range.offset}+${range.bytes} are behind its end`);
    }
    const around = blocksAround(header.payloadBytes, range);
    const blocks = await this.readAll(path, payloadOffset + around.offset, around.bytes);
    checkBlocks(path, sums, around.first, blocks);
    return blocks.subarray(
      range.offset - around.offset,
      range.offset - around.offset + range.bytes,
    );
  }

  async inventory(): Promise<Inventory> {
    const segments: { id: string; fileBytes: number }[] = [];
    for (const { name, bytes } of (await this.disk.list(this.path)) ?? []) {
      const id = SEGMENT.exec(name)?.[1];
      if (id !== undefined) segments.push({ id, fileBytes: bytes });
    }
    return { store: this.store, directory: this.id, segments };
  }

  async remove(ids: readonly string[]): Promise<void> {
    for (const id of ids) await this.disk.unlink(this.pathOf(id));
  }

  /** Out of sight, but recoverable by hand for a day. */
  async trash(ids: readonly string[], nowMs: number): Promise<void> {
    for (const id of ids) {
      if ((await this.disk.size(this.pathOf(id))) === null) continue;
      await this.disk.rename(this.pathOf(id), `${this.path}/trash/${nowMs}-${id}.seg`);
    }
  }

  /** Returns how many files went. */
  async emptyTrash(nowMs: number): Promise<number> {
    let count = 0;
    for (const { name } of (await this.disk.list(`${this.path}/trash`)) ?? []) {
      const since = TRASHED.exec(name)?.[1];
      if (since === undefined || nowMs - Number(since) < TRASH_MS) continue;
      if (await this.disk.unlink(`${this.path}/trash/${name}`)) count += 1;
    }
    return count;
  }

  async keepManifest(name: string, manifest: Uint8Array): Promise<void> {
    const nonce = Buffer.from(this.random(8)).toString('hex');
    const directory = `${this.path}/manifests`;
    await placeFile(this.disk, { directory, name: `${name}.man`, nonce }, manifest);
  }

  /** Copies for a coordinator that lost its manifests. */
  async manifestCopies(): Promise<Uint8Array[]> {
    const copies: Uint8Array[] = [];
    for (const { name } of (await this.disk.list(`${this.path}/manifests`)) ?? []) {
      if (!name.endsWith('.man')) continue;
      const bytes = await readWhole(
        this.disk,
        `${this.path}/manifests/${name}`,
        MANIFEST_BYTES_MAX,
      );
      if (bytes !== null) copies.push(bytes);
    }
    return copies;
  }

  async dropManifests(names: readonly string[]): Promise<void> {
    for (const name of names) await this.disk.unlink(`${this.path}/manifests/${name}.man`);
  }

  freeBytes(): Promise<number> {
    return this.disk.freeBytes(this.path);
  }

  /** Writes, syncs and deletes a small file: whether the disk takes data again. */
  async probe(): Promise<boolean> {
    const nonce = Buffer.from(this.random(8)).toString('hex');
    const path = `${this.path}/${PROBE_NAME}.${nonce}`;
    try {
      const file = await this.disk.createExclusive(path);
      try {
        await file.write(new Uint8Array(4096));
        await file.sync();
      } finally {
        await file.close();
      }
      await this.disk.unlink(path);
      return true;
    } catch {
      await this.disk.unlink(path).catch(() => false);
      return false;
    }
  }

  private pathOf(id: string): string {
    return `${this.path}/${id}.seg`;
  }

  private async readAll(path: string, offset: number, bytes: number): Promise<Uint8Array> {
    const got = await this.disk.read(path, offset, bytes);
    if (got === null || got.length !== bytes) throw damaged(path, `ends before ${offset + bytes}`);
    return got;
  }
}

/** A manifest of this version names no segment of a later one: another version here is damage. */
function headerSizeOf(path: string, start: Uint8Array): number {
  try {
    return peekHeaderBytes(path, start);
  } catch (error) {
    throw damaged(path, toCoxswainError(error).message);
  }
}
