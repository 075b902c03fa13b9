// The holder of one shard directory: a rank's, or the coordinator's own. Answers the store's messages,
// writes what it is ordered, reads what is restored. What an engine exports comes through PayloadSource;
// nothing here knows an engine.
// Messages may be handled at the same time: an abort overtakes the writing that it ends.
import { BrokenInvariant } from '../../base/assert.ts';
import { CoxswainError, toCoxswainError } from '../../base/errors.ts';
import { HolderCore } from '../core/holder.ts';
import {
  epochOfSegment,
  type FromHolder,
  type Inventory,
  type SegmentOrder,
  type ToHolder,
  type WrittenSegment,
} from '../core/messages.ts';
import { WriteGate } from '../core/space.ts';
import type { Disk } from '../disk/disk.ts';
import { PlacingFailed } from '../disk/files.ts';
import type { RandomBytes } from '../disk/identity-files.ts';
import { type OpenSegment, ShardDirectory } from '../disk/shard-directory.ts';
import { blockCount, headerBytes } from '../format/segment-file.ts';

/**
 * The payload of a segment, in pieces: an engine's export at the step that the save names, or text and
 * logits of the coordinator. Its size is that of the order. Throws where the state is gone.
 */
export type PayloadSource = (save: string, order: SegmentOrder) => AsyncIterable<Uint8Array>;

export interface HolderDependencies {
  readonly disk: Disk;
  readonly path: string;
  readonly store: string;
  readonly random: RandomBytes;
  readonly payload: PayloadSource;
  readonly now: () => number;
  /** The one warning when the disk stops taking data, and the word that it takes it again. */
  readonly onWriteState: (open: boolean, cause: string) => void;
}

export class SegmentHolder {
  readonly directory: ShardDirectory;
  private readonly core: HolderCore;
  private readonly gate = new WriteGate();
  private readonly deps: HolderDependencies;

  private constructor(deps: HolderDependencies, directory: ShardDirectory, epoch: number) {
    this.deps = deps;
    this.directory = directory;
    this.core = new HolderCore(directory.store, epoch);
  }

  static async open(deps: HolderDependencies): Promise<SegmentHolder> {
    const directory = await ShardDirectory.open(deps.disk, deps.path, deps.store, deps.random);
    const { segments } = await directory.inventory();
    const epoch = segments.reduce((most, { id }) => Math.max(most, epochOfSegment(id)), 0);
    return new SegmentHolder(deps, directory, epoch);
  }

  /** The highest epoch heard, or under which a file here was written. The next one must be higher. */
  get epoch(): number {
    return this.core.epoch;
  }

  /**
   * What the directory holds, for the coordinator of this epoch. From here on no older one is obeyed: what
   * it still sends must not delete what the new one counts on. KV_FOREIGN, EPOCH_FENCED.
   */
  inventory(to: { readonly store: string; readonly epoch: number }): Promise<Inventory> {
    const heard = this.core.hear(to);
    if (!heard.obey) {
      const code = to.store === this.directory.store ? 'EPOCH_FENCED' : 'KV_FOREIGN';
      throw new CoxswainError(code, `${this.directory.path}: ${heard.why}`);
    }
    return this.directory.inventory();
  }

  /** The answer, or null where none is due. Throws only what is a bug. */
  async receive(message: ToHolder): Promise<FromHolder | null> {
    const heard = this.core.hear(message);
    if (!heard.obey) return this.refusal(message, heard.why);
    switch (message.type) {
      case 'reserve':
        return this.reserve(message);
      case 'prepare':
        return this.prepare(message);
      case 'commit':
        this.core.commit(message.save);
        await this.tolerate(() => this.directory.keepManifest(message.name, message.manifest));
        return null;
      case 'abort': {
        const segments = this.core.abort(message.save);
        await this.tolerate(() => this.directory.remove(segments));
        return null;
      }
      case 'delete':
        await this.tolerate(async () => {
          await this.directory.dropManifests(message.names);
          await this.directory.remove(message.segments);
        });
        return null;
      case 'trash':
        await this.tolerate(() => this.directory.trash(message.segments, this.deps.now()));
        return null;
    }
  }

  /** null: no such file. KV_DAMAGED. */
  openSegment(id: string): Promise<OpenSegment | null> {
    return this.directory.openSegment(id);
  }

  /** Checked bytes of an open segment. KV_DAMAGED. */
  readRange(
    segment: OpenSegment,
    range: { readonly offset: number; readonly bytes: number },
  ): Promise<Uint8Array> {
    return this.directory.readRange(segment, range);
  }

  private async reserve(message: ToHolder & { readonly type: 'reserve' }): Promise<FromHolder> {
    const answer = (refusal: string | null): FromHolder => ({
      type: 'reserved',
      directory: this.directory.id,
      epoch: message.epoch,
      save: message.save,
      refusal,
    });
    if (!(await this.mayWrite())) return answer('the disk takes no data');
    try {
      const free = await this.directory.freeBytes();
      const verdict = this.core.reserve(message.save, message.bytes, free);
      return answer(verdict.obey ? null : verdict.why);
    } catch (error) {
      return answer(toCoxswainError(error).message);
    }
  }

  private async prepare(message: ToHolder & { readonly type: 'prepare' }): Promise<FromHolder> {
    const { save, epoch, orders } = message;
    const answer = (written: readonly WrittenSegment[], failure: string | null): FromHolder => ({
      type: 'prepared',
      directory: this.directory.id,
      epoch,
      save,
      written,
      failure,
    });
    const ids = orders.map(({ id }) => id);
    const verdict = this.core.prepare(save, ids);
    if (!verdict.obey) return answer([], verdict.why);
    const written: WrittenSegment[] = [];
    try {
      for (const order of orders) {
        written.push(await this.write(save, epoch, order));
        if (!this.core.isWanted(save, epoch)) throw fenced(save);
      }
    } catch (error) {
      await this.tolerate(() => this.directory.remove(ids));
      return answer([], this.failed(error));
    }
    return answer(written, null);
  }

  private write(save: string, epoch: number, order: SegmentOrder): Promise<WrittenSegment> {
    const { fileBytes, ...facts } = order;
    const payloadBytes = payloadOf(order);
    const header = { ...facts, store: this.directory.store, directory: this.directory.id, epoch };
    return this.directory.write({ ...header, payloadBytes }, this.deps.payload(save, order));
  }

  private refusal(message: ToHolder, why: string): FromHolder | null {
    const to = { directory: this.directory.id, epoch: message.epoch };
    if (message.type === 'reserve')
      return { type: 'reserved', ...to, save: message.save, refusal: why };
    if (message.type !== 'prepare') return null;
    return { type: 'prepared', ...to, save: message.save, written: [], failure: why };
  }

  private async mayWrite(): Promise<boolean> {
    if (this.gate.open) return true;
    if (!this.gate.probeDue(this.deps.now())) return false;
    const takes = await this.directory.probe();
    if (this.gate.probed(takes, this.deps.now())) this.deps.onWriteState(true, '');
    return this.gate.open;
  }

  /** The sentence of a failure; a failing disk closes the gate. */
  private failed(error: unknown): string {
    // A bug ends the process; only what the world does is an answer.
    if (error instanceof BrokenInvariant) throw error;
    const { code, message } = toCoxswainError(error instanceof PlacingFailed ? error.cause : error);
    if (code === 'KV_WRITE_FAILED' && this.gate.close(message, this.deps.now())) {
      this.deps.onWriteState(false, message);
    }
    return message;
  }

  /** For files that may stay: what is not deleted now is swept at the next join. */
  private async tolerate(work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      this.failed(error);
    }
  }
}

function fenced(save: string): CoxswainError {
  return new CoxswainError('EPOCH_FENCED', `save ${save} was ended while it was being written`);
}

/** The payload of a file of that size: the one number that fits header and checksums. */
function payloadOf(order: SegmentOrder): number {
  const rest = order.fileBytes - headerBytes(order.boxes.length) - 8;
  // rest = payload + 4 * ceil(payload / 64 KiB)
  let payload = rest - 4 * blockCount(rest);
  while (payload + 4 * blockCount(payload) < rest) payload += 1;
  return payload;
}
