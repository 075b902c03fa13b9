// The holder's side of a commit: what a directory has promised, what it is writing, whom it obeys. Pure;
// the shell asks before it touches a file and reports when it has.
// Invariants: promises never exceed what was free when they were made; a message of another store or an
// older epoch changes nothing; a save that was aborted is not prepared afterwards.
import type { ToHolder } from './messages.ts';

const ABORTED_MAX = 1024;

export type Verdict = { readonly obey: true } | { readonly obey: false; readonly why: string };

const OBEY: Verdict = { obey: true };

interface Grant {
  readonly bytes: number;
  preparing: boolean;
  /** Written for this save: deleted when it is aborted. */
  segments: readonly string[];
}

export class HolderCore {
  private readonly store: string;
  private highest: number;
  private readonly promises = new Map<string, Grant>();
  private readonly aborted = new Set<string>();

  /** `epoch`: the highest under which the directory has a file. */
  constructor(store: string, epoch: number) {
    this.store = store;
    this.highest = epoch;
  }

  get epoch(): number {
    return this.highest;
  }

  get promisedBytes(): number {
    let sum = 0;
    for (const { bytes } of this.promises.values()) sum += bytes;
    return sum;
  }

  /** A new epoch voids the promises of the old one: its coordinator will not come back for them. */
  hear(message: Pick<ToHolder, 'store' | 'epoch'>): Verdict {
    if (message.store !== this.store) return refuse('the directory belongs to another store');
    if (message.epoch < this.highest) {
      return refuse(`epoch ${message.epoch} ended, ${this.highest} is current`);
    }
    if (message.epoch > this.highest) {
      this.highest = message.epoch;
      this.promises.clear();
      this.aborted.clear();
    }
    return OBEY;
  }

  /** `freeBytes`: on the disk now, promises not counted. */
  reserve(save: string, bytes: number, freeBytes: number): Verdict {
    if (this.promises.has(save) || this.aborted.has(save)) return refuse('reserved already');
    const left = freeBytes - this.promisedBytes;
    if (bytes > left) return refuse(`${bytes} bytes are wanted, ${Math.max(0, left)} are free`);
    this.promises.set(save, { bytes, preparing: false, segments: [] });
    return OBEY;
  }

  prepare(save: string, segments: readonly string[]): Verdict {
    const grant = this.promises.get(save);
    if (grant === undefined) return refuse('nothing is reserved for it');
    if (grant.preparing) return refuse('it is being written already');
    grant.preparing = true;
    grant.segments = segments;
    return OBEY;
  }

  /** False: aborted or fenced meanwhile. What was written goes again. */
  isWanted(save: string, epoch: number): boolean {
    return epoch === this.highest && this.promises.has(save);
  }

  commit(save: string): void {
    this.promises.delete(save);
  }

  /** Files to delete. */
  abort(save: string): readonly string[] {
    const segments = this.promises.get(save)?.segments ?? [];
    this.promises.delete(save);
    this.aborted.add(save);
    if (this.aborted.size > ABORTED_MAX) {
      for (const oldest of this.aborted) {
        this.aborted.delete(oldest);
        break;
      }
    }
    return segments;
  }
}

function refuse(why: string): Verdict {
  return { obey: false, why };
}
