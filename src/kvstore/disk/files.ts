// Small whole files: written beside their place, synced, renamed, the directory synced.
import { CoxswainError } from '../../base/errors.ts';
import type { Disk } from './disk.ts';

export const TEMPORARY_SUFFIX = '.tmp';

/** How far writing a file got when it failed. */
export class PlacingFailed extends Error {
  /** The file may be under its name, now or after a power cut. */
  readonly maybePlaced: boolean;

  constructor(maybePlaced: boolean, cause: unknown) {
    super(cause instanceof Error ? cause.message : String(cause), { cause });
    this.name = 'PlacingFailed';
    this.maybePlaced = maybePlaced;
  }
}

/** `nonce` makes the temporary name unique. Throws PlacingFailed. */
export async function placeFile(
  disk: Disk,
  place: { readonly directory: string; readonly name: string; readonly nonce: string },
  bytes: Uint8Array,
): Promise<void> {
  const temporary = `${place.directory}/${place.name}.${place.nonce}${TEMPORARY_SUFFIX}`;
  try {
    const file = await disk.createExclusive(temporary);
    try {
      await file.write(bytes);
      await file.sync();
    } finally {
      await file.close();
    }
  } catch (cause) {
    await disk.unlink(temporary).catch(() => false);
    throw new PlacingFailed(false, cause);
  }
  try {
    await disk.rename(temporary, `${place.directory}/${place.name}`);
    await disk.syncDirectory(place.directory);
  } catch (cause) {
    throw new PlacingFailed(true, cause);
  }
}

/** The whole file, or null where there is none. FILE_UNREADABLE above `limit` bytes. */
export async function readWhole(
  disk: Disk,
  path: string,
  limit: number,
): Promise<Uint8Array | null> {
  const bytes = await disk.read(path, 0, limit + 1);
  if (bytes !== null && bytes.length > limit) {
    throw new CoxswainError('FILE_UNREADABLE', `${path} is larger than ${limit} bytes`);
  }
  return bytes;
}
