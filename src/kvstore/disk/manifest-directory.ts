// The coordinator's manifests: `manifests/<name>.man`, one a unit. A unit exists exactly while its
// manifest is here; renaming it into place is the commit. Owner: the holder of the root's lock.
import { CoxswainError } from '../../base/errors.ts';
import type { Unit } from '../core/model.ts';
import { decodeManifest, encodeManifest, MANIFEST_BYTES_MAX } from '../format/manifest.ts';
import type { Disk } from './disk.ts';
import { PlacingFailed, placeFile, readWhole, TEMPORARY_SUFFIX } from './files.ts';
import type { RandomBytes } from './identity-files.ts';

const MANIFEST = /^([0-9a-f]{40})\.man$/;

export interface LoadedManifests {
  readonly units: readonly Unit[];
  /** Names of manifests that do not decode, or are of another store. */
  readonly damaged: readonly string[];
  /** Manifests that could not be read, though they may be sound. */
  readonly unread: readonly string[];
  /** False: what the store holds is not known. None is readable, one is damaged, or syncing failed. */
  readonly trusted: boolean;
}

export class ManifestDirectory {
  private readonly disk: Disk;
  private readonly path: string;
  private readonly store: string;
  private readonly random: RandomBytes;

  constructor(
    disk: Disk,
    root: string,
    identity: { readonly store: string; readonly random: RandomBytes },
  ) {
    this.disk = disk;
    this.path = `${root}/manifests`;
    this.store = identity.store;
    this.random = identity.random;
  }

  /** All manifests. What was not renamed into place is no manifest, and is swept. */
  async load(): Promise<LoadedManifests> {
    await this.disk.makeDirectory(this.path);
    // A process that was killed may have removed names that a power cut would bring back.
    const settled = await this.disk.syncDirectory(this.path).then(
      () => true,
      () => false,
    );
    const units: Unit[] = [];
    const damaged: string[] = [];
    const unread: string[] = [];
    for (const { name } of (await this.disk.list(this.path)) ?? []) {
      if (name.endsWith(TEMPORARY_SUFFIX)) await this.disk.unlink(`${this.path}/${name}`);
      const unitName = MANIFEST.exec(name)?.[1];
      if (unitName === undefined) continue;
      const unit = await this.read(unitName).catch(() => undefined);
      if (unit === undefined) unread.push(unitName);
      else if (unit === null) damaged.push(unitName);
      else units.push(unit);
    }
    const known = damaged.length + unread.length === 0;
    return { units, damaged, unread, trusted: settled && units.length > 0 && known };
  }

  /** uncertain: renamed, but not known to last. The unit is then not used, and its files stay. */
  async commit(
    unit: Unit,
  ): Promise<{ readonly outcome: 'committed' | 'failed' | 'uncertain'; readonly cause: string }> {
    try {
      await this.place(unit);
      return { outcome: 'committed', cause: '' };
    } catch (error) {
      if (!(error instanceof PlacingFailed)) throw error;
      return { outcome: error.maybePlaced ? 'uncertain' : 'failed', cause: error.message };
    }
  }

  /** Ends units: only when this returns may their segments go. Throws KV_WRITE_FAILED: they stay. */
  async remove(names: readonly string[]): Promise<void> {
    for (const name of names) await this.disk.unlink(`${this.path}/${name}.man`);
    await this.disk.syncDirectory(this.path);
  }

  private async place(unit: Unit): Promise<void> {
    const nonce = Buffer.from(this.random(8)).toString('hex');
    const bytes = encodeManifest({ store: this.store, unit });
    await placeFile(this.disk, { directory: this.path, name: `${unit.name}.man`, nonce }, bytes);
  }

  /** null: no manifest of this name and store. Throws FILE_UNREADABLE. */
  private async read(name: string): Promise<Unit | null> {
    const path = `${this.path}/${name}.man`;
    const bytes = await readWhole(this.disk, path, MANIFEST_BYTES_MAX);
    if (bytes === null) return null;
    try {
      const { store, unit } = decodeManifest(path, bytes);
      return store === this.store && unit.name === name ? unit : null;
    } catch (error) {
      if (error instanceof CoxswainError) return null;
      throw error;
    }
  }
}
