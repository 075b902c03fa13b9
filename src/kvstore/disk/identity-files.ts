// Who a directory is: the store's root holds a store id and the secret of its scopes, a shard directory
// its own id and its store's. Written once, never changed. See docs/KVSTORE.md for the bytes.
import { crc32 } from 'node:zlib';
import { CoxswainError } from '../../base/errors.ts';
import { ByteReader, ByteWriter } from '../format/bytes.ts';
import type { Disk } from './disk.ts';
import { placeFile, readWhole } from './files.ts';

const STORE_MAGIC = 'COXKVSTO';
const DIRECTORY_MAGIC = 'COXKVDIR';
const VERSION = 1;
const SECRET_BYTES = 32;
const FILE_BYTES_MAX = 4096;
export const STORE_FILE = 'store';
export const DIRECTORY_FILE = 'directory';

export interface StoreIdentity {
  readonly store: string;
  readonly secret: Uint8Array;
}

/** Random bytes: ids and secrets. */
export type RandomBytes = (count: number) => Uint8Array;

/** The identity at `root`, made where there is none. KV_DAMAGED, KV_FOREIGN, KV_WRITE_FAILED. */
export async function openStoreIdentity(
  disk: Disk,
  root: string,
  random: RandomBytes,
): Promise<StoreIdentity> {
  const path = `${root}/${STORE_FILE}`;
  const found = await readWhole(disk, path, FILE_BYTES_MAX);
  if (found !== null) return decodeStore(path, found);
  await disk.makeDirectory(root);
  const foreign = (await disk.list(root)) ?? [];
  if (foreign.some(({ name }) => name !== 'lock' && !name.startsWith(STORE_FILE))) {
    throw new CoxswainError(
      'KV_FOREIGN',
      `${root} holds files but no store: name an empty directory or that of a store`,
    );
  }
  const identity = { store: hex(random(16)), secret: random(SECRET_BYTES) };
  const out = start(STORE_MAGIC);
  out.hex(identity.store);
  out.bytes(identity.secret);
  await place(disk, { directory: root, name: STORE_FILE, nonce: hex(random(8)) }, out);
  return identity;
}

function decodeStore(path: string, bytes: Uint8Array): StoreIdentity {
  const input = checked(path, bytes, STORE_MAGIC);
  const identity = { store: input.hex(16), secret: input.bytes(SECRET_BYTES).slice() };
  input.end();
  return identity;
}

/** The id of the directory at `path`, made where there is none. KV_FOREIGN: of another store. */
export async function openDirectoryIdentity(
  disk: Disk,
  path: string,
  store: string,
  random: RandomBytes,
): Promise<string> {
  const file = `${path}/${DIRECTORY_FILE}`;
  const found = await readWhole(disk, file, FILE_BYTES_MAX);
  if (found !== null) {
    const input = checked(file, found, DIRECTORY_MAGIC);
    const identity = { store: input.hex(16), directory: input.hex(16) };
    input.end();
    if (identity.store === store) return identity.directory;
    throw new CoxswainError(
      'KV_FOREIGN',
      `${path} belongs to store ${identity.store}, not ${store}: name another --kv-dir`,
    );
  }
  await disk.makeDirectory(path);
  const directory = hex(random(16));
  const out = start(DIRECTORY_MAGIC);
  out.hex(store);
  out.hex(directory);
  await place(disk, { directory: path, name: DIRECTORY_FILE, nonce: hex(random(8)) }, out);
  return directory;
}

function start(magic: string): ByteWriter {
  const out = new ByteWriter();
  out.bytes(Buffer.from(magic, 'latin1'));
  out.u16(VERSION);
  out.u16(0);
  return out;
}

async function place(
  disk: Disk,
  where: { readonly directory: string; readonly name: string; readonly nonce: string },
  out: ByteWriter,
): Promise<void> {
  out.u32(crc32(out.finish()));
  try {
    await placeFile(disk, where, out.finish());
  } catch (cause) {
    throw new CoxswainError('KV_WRITE_FAILED', `cannot write ${where.directory}/${where.name}`, {
      cause,
    });
  }
}

/** A reader behind magic and version of bytes whose checksum fits. */
function checked(what: string, bytes: Uint8Array, magic: string): ByteReader {
  const input = new ByteReader(what, bytes.subarray(0, Math.max(0, bytes.length - 4)));
  input.magic(magic);
  input.version(VERSION);
  const sum = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  if (sum.getUint32(bytes.length - 4, true) !== crc32(bytes.subarray(0, bytes.length - 4))) {
    input.fail('the checksum does not fit');
  }
  return input;
}

function hex(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('hex');
}
