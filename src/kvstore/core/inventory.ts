// Which files of a joining directory are waste. A file goes to the trash only if it is certain that no
// manifest names it: own store, an older epoch (whatever wrote it is fenced), not being written, and the
// coordinator's manifests are there to be asked. No file goes for its age alone.
import { epochOfSegment, type Inventory } from './messages.ts';

export interface ManifestView {
  readonly store: string;
  readonly epoch: number;
  /** Readable, of this store, and not empty: an empty directory may be a wrong or a lost one. */
  readonly trusted: boolean;
  isNeeded(segmentId: string): boolean;
}

export function wasteOf(view: ManifestView, inventory: Inventory): string[] {
  if (!view.trusted || inventory.store !== view.store) return [];
  return inventory.segments
    .filter(({ id }) => epochOfSegment(id) < view.epoch && !view.isNeeded(id))
    .map(({ id }) => id);
}
