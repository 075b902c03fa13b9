// The two-phase commit of units, coordinator's side. Nothing is written before every directory has
// granted the bytes; the manifest is renamed into place only when every file is there and together they
// cover the unit; that rename is the commit, and there is no second one.
//
//   begin -> reserving -> preparing -> committing -> finished(committed)
//              refused      failed       failed: abort, delete      all: finished(failed)
//                                        uncertain: delete nothing
//
// Invariant: once `write-manifest` was given out, no abort is sent for the save unless the manifest is
// known not to exist: a file that a manifest may name is never deleted.
// Order of effects is order of execution. Owner: the coordinator's store driver.
import { assert } from '../../base/assert.ts';
import { coverageFault } from './coverage.ts';
import type { FromHolder, SegmentOrder, ToHolder, WrittenSegment } from './messages.ts';
import type { Segment, Unit } from './model.ts';

/** A unit before its files exist. */
export interface SaveDraft {
  /** Unique within the epoch. */
  readonly save: string;
  readonly unit: Omit<Unit, 'segments'>;
  /** Taken over from the parent; pinned by the caller until the save has finished. */
  readonly inherited: readonly Segment[];
  /** By directory id. */
  readonly orders: ReadonlyMap<string, readonly SegmentOrder[]>;
}

export type SaveOutcome = 'committed' | 'refused' | 'failed' | 'uncertain' | 'fenced' | 'late';

export type SaveEffect =
  | { readonly type: 'send'; readonly directory: string; readonly message: ToHolder }
  | { readonly type: 'write-manifest'; readonly save: string; readonly unit: Unit }
  | {
      readonly type: 'finished';
      readonly save: string;
      readonly outcome: SaveOutcome;
      readonly cause: string;
      readonly unit: Unit | null;
    };

export interface SaveLimits {
  readonly inFlightMax: number;
  readonly bytesInFlightMax: number;
  readonly reserveMs: number;
  readonly prepareMs: number;
}

export const SAVE_LIMITS: SaveLimits = {
  inFlightMax: 4,
  bytesInFlightMax: 8 * 2 ** 30,
  reserveMs: 5_000,
  prepareMs: 60_000,
};

interface Save {
  readonly draft: SaveDraft;
  readonly bytes: number;
  phase: 'reserving' | 'preparing' | 'committing';
  deadlineMs: number;
  readonly waiting: Set<string>;
  readonly written: Map<string, WrittenSegment>;
  unit: Unit | null;
}

export class SaveCore {
  private readonly store: string;
  private readonly limits: SaveLimits;
  private readonly saves = new Map<string, Save>();
  private epoch = 0;

  constructor(store: string, limits: SaveLimits = SAVE_LIMITS) {
    this.store = store;
    this.limits = limits;
  }

  get inFlight(): number {
    return this.saves.size;
  }

  /** Segments that a save under way is writing. */
  isBeingWritten(segmentId: string): boolean {
    for (const { draft } of this.saves.values()) {
      for (const orders of draft.orders.values()) {
        if (orders.some((order) => order.id === segmentId)) return true;
      }
    }
    return false;
  }

  /** Names of units that are being written: a request for one is a miss, never a wait. */
  isSaving(name: string): boolean {
    for (const { draft } of this.saves.values()) if (draft.unit.name === name) return true;
    return false;
  }

  nextDeadlineMs(): number | null {
    let next: number | null = null;
    for (const { deadlineMs } of this.saves.values())
      next = Math.min(next ?? deadlineMs, deadlineMs);
    return next;
  }

  /** False: too many saves or bytes are under way; nothing has begun. */
  hasRoomFor(draft: SaveDraft): boolean {
    let bytes = bytesOf(draft);
    for (const save of this.saves.values()) bytes += save.bytes;
    return this.saves.size < this.limits.inFlightMax && bytes <= this.limits.bytesInFlightMax;
  }

  begin(draft: SaveDraft, nowMs: number): SaveEffect[] {
    assert(this.hasRoomFor(draft) && !this.saves.has(draft.save), 'the caller asked for room');
    const save: Save = {
      draft,
      bytes: bytesOf(draft),
      phase: 'reserving',
      deadlineMs: nowMs + this.limits.reserveMs,
      waiting: new Set(draft.orders.keys()),
      written: new Map(),
      unit: null,
    };
    this.saves.set(draft.save, save);
    return [...draft.orders].map(([directory, orders]) => {
      const bytes = orders.reduce((sum, order) => sum + order.fileBytes, 0);
      return this.send(directory, { type: 'reserve', save: draft.save, bytes });
    });
  }

  answered(answer: FromHolder, nowMs: number): SaveEffect[] {
    const save = this.saves.get(answer.save);
    if (save === undefined || answer.epoch !== this.epoch) return [];
    if (!save.waiting.has(answer.directory)) return [];
    if (answer.type === 'reserved') return this.reserved(save, answer, nowMs);
    return save.phase === 'preparing' ? this.prepared(save, answer) : [];
  }

  /** What became of `write-manifest`. */
  manifestWritten(
    saveId: string,
    outcome: 'committed' | 'failed' | 'uncertain',
    cause: string,
  ): SaveEffect[] {
    const save = this.saves.get(saveId);
    if (save === undefined) return [];
    assert(save.phase === 'committing', 'a manifest is written once all files are there');
    if (outcome === 'failed') return this.fail(save, 'failed', cause);
    return this.finish(save, outcome, cause);
  }

  /** A directory's holder is gone: its part will not come. A manifest on its way is not held up. */
  directoryLost(directory: string): SaveEffect[] {
    const effects: SaveEffect[] = [];
    for (const save of [...this.saves.values()]) {
      if (save.phase !== 'committing' && save.draft.orders.has(directory)) {
        effects.push(...this.fail(save, 'failed', `directory ${directory} is gone`));
      }
    }
    return effects;
  }

  /** Everything that is not being committed dies with its epoch; its files are swept at the next join. */
  epochChanged(epoch: number): SaveEffect[] {
    assert(epoch >= this.epoch, 'epochs only rise');
    this.epoch = epoch;
    const open = [...this.saves.values()].filter((save) => save.phase !== 'committing');
    return open.flatMap((save) => this.finish(save, 'fenced', 'the epoch ended'));
  }

  tick(nowMs: number): SaveEffect[] {
    const late = [...this.saves.values()].filter(
      (save) => save.phase !== 'committing' && nowMs >= save.deadlineMs,
    );
    return late.flatMap((save) =>
      this.fail(save, 'late', `no answer from ${[...save.waiting].join(', ')} while ${save.phase}`),
    );
  }

  private reserved(
    save: Save,
    answer: FromHolder & { readonly type: 'reserved' },
    nowMs: number,
  ): SaveEffect[] {
    if (save.phase !== 'reserving') return [];
    if (answer.refusal !== null) return this.fail(save, 'refused', answer.refusal);
    save.waiting.delete(answer.directory);
    if (save.waiting.size > 0) return [];
    save.phase = 'preparing';
    save.deadlineMs = nowMs + this.limits.prepareMs;
    return [...save.draft.orders].map(([directory, orders]) => {
      save.waiting.add(directory);
      return this.send(directory, { type: 'prepare', save: save.draft.save, orders });
    });
  }

  private prepared(save: Save, answer: FromHolder & { readonly type: 'prepared' }): SaveEffect[] {
    if (answer.failure !== null) return this.fail(save, 'failed', answer.failure);
    const orders = save.draft.orders.get(answer.directory) ?? [];
    for (const written of answer.written) save.written.set(written.id, written);
    const wrong = orders.find((order) => save.written.get(order.id)?.fileBytes !== order.fileBytes);
    if (wrong !== undefined) {
      return this.fail(save, 'failed', `${answer.directory} did not write ${wrong.id} as ordered`);
    }
    save.waiting.delete(answer.directory);
    return save.waiting.size > 0 ? [] : this.commit(save);
  }

  private commit(save: Save): SaveEffect[] {
    const { draft } = save;
    const own: Segment[] = [];
    for (const [directory, orders] of draft.orders) {
      for (const { fileBytes, ...order } of orders) {
        const written = save.written.get(order.id);
        assert(written !== undefined, 'all files were written');
        own.push({ ...order, directory, digest: written.digest, fileBytes });
      }
    }
    const unit: Unit = { ...draft.unit, segments: [...draft.inherited, ...own] };
    const fault = coverageFault(unit.pools, unit.segments, unit.tokens);
    if (fault !== null) return this.fail(save, 'failed', fault);
    save.phase = 'committing';
    save.unit = unit;
    return [{ type: 'write-manifest', save: draft.save, unit }];
  }

  private fail(save: Save, outcome: SaveOutcome, cause: string): SaveEffect[] {
    const aborts = [...save.draft.orders.keys()].map((directory) =>
      this.send(directory, { type: 'abort', save: save.draft.save }),
    );
    save.unit = null;
    return [...aborts, ...this.finish(save, outcome, cause)];
  }

  private finish(save: Save, outcome: SaveOutcome, cause: string): SaveEffect[] {
    this.saves.delete(save.draft.save);
    const unit = outcome === 'committed' ? save.unit : null;
    return [{ type: 'finished', save: save.draft.save, outcome, cause, unit }];
  }

  private send(directory: string, message: WithoutSender): SaveEffect {
    return {
      type: 'send',
      directory,
      message: { ...message, store: this.store, epoch: this.epoch },
    };
  }
}

type WithoutSender = ToHolder extends infer Message
  ? Message extends ToHolder
    ? Omit<Message, 'store' | 'epoch'>
    : never
  : never;

function bytesOf(draft: SaveDraft): number {
  let sum = 0;
  for (const orders of draft.orders.values()) for (const order of orders) sum += order.fileBytes;
  return sum;
}
