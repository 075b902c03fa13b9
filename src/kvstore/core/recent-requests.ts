// The last requests of each scope, as far as the index needs them: a beginning that two prompts share is
// found when the second arrives, also where the first left no unit. Only key bytes are known of them.
// Bounds: 64 requests a scope, 256 scopes; the longest unused scope goes first.
import { toHex } from './bytes.ts';
import type { PrefixIndex } from './prefix-index.ts';

export const RECENT_PER_SCOPE = 64;
export const RECENT_SCOPES_MAX = 256;

export class RecentRequests {
  private readonly index: PrefixIndex;
  /** Seed -> ids, oldest first. Map order is order of use. */
  private readonly scopes = new Map<string, string[]>();
  private count = 0;

  constructor(index: PrefixIndex) {
    this.index = index;
  }

  get size(): number {
    let sum = 0;
    for (const ids of this.scopes.values()) sum += ids.length;
    return sum;
  }

  note(seed: Uint8Array, key: Uint8Array): void {
    const scope = toHex(seed);
    const ids = this.scopes.get(scope) ?? [];
    this.scopes.delete(scope);
    this.scopes.set(scope, ids);
    this.count += 1;
    const id = String(this.count);
    this.index.add('recent', id, seed, key);
    ids.push(id);
    if (ids.length > RECENT_PER_SCOPE) this.drop(ids.splice(0, 1));
    if (this.scopes.size <= RECENT_SCOPES_MAX) return;
    for (const [oldest, gone] of this.scopes) {
      this.scopes.delete(oldest);
      this.drop(gone);
      return;
    }
  }

  private drop(ids: readonly string[]): void {
    for (const id of ids) this.index.remove('recent', id);
  }
}
