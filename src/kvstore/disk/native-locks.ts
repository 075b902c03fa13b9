// The locks of real directories: flock through the addon. A thread or process that ends lets go of all.
import { nativeExport } from '../../base/addon.ts';
import { toCoxswainError } from '../../base/errors.ts';
import type { DirectoryLocks } from './disk.ts';

type LockDirectory = (path: string) => () => void;

/** @throws (its lock) CoxswainError KV_LOCKED, KV_WRITE_FAILED, CONFIG_INVALID (network file systems). */
export const nativeLocks: DirectoryLocks = {
  lock(path) {
    try {
      const release = nativeExport<LockDirectory>('lockDirectory')(path);
      return Promise.resolve({ release: () => Promise.resolve(release()) });
    } catch (thrown) {
      return Promise.reject(toCoxswainError(thrown));
    }
  },
};
