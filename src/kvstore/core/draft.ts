// From "save this prefix here" to orders: which files each directory writes. The plan names one writer
// per (pool, layer, head); a child takes over its parent's full pages.
import { boxBytes, poolOf } from './coverage.ts';
import type { SegmentOrder } from './messages.ts';
import { segmentId } from './messages.ts';
import { type Box, inherit, type PoolSpec, type Segment, type Unit } from './model.ts';
import type { SaveDraft } from './saves.ts';

/** Sizes of files are the format's affair: it says them here. */
export type FileBytes = (boxCount: number, payloadBytes: number) => number;

/** Who writes what, by directory id. */
export type Writers = ReadonlyMap<string, readonly Box[]>;

export interface SaveWish {
  readonly save: string;
  readonly unit: Omit<Unit, 'segments'>;
  /** The unit that the slot's state goes on from, and how many of its tokens are shared. */
  readonly parent: Unit | null;
  readonly common: number;
  readonly writers: Writers;
  /** The coordinator's own directory, and the payload bytes of its segments (text from a token on). */
  readonly own: {
    readonly directory: string;
    textBytes(from: number): number;
    readonly tailBytes: number;
  };
  readonly epoch: number;
  /** 16 random hex digits each time. */
  nonce(): string;
}

export function draftSave(wish: SaveWish, fileBytes: FileBytes): SaveDraft {
  const { segments, from } = inherit(wish.parent, wish.common);
  const { tokens, pools } = wish.unit;
  // A parent that ends on this very page leaves no new rows to write.
  const rowsBegin = Math.min(from, tokens);
  const orders = new Map<string, SegmentOrder[]>();
  const add = (directory: string, order: Omit<SegmentOrder, 'id'>) => {
    const list = orders.get(directory) ?? [];
    list.push({ id: segmentId(wish.epoch, wish.nonce()), ...order });
    orders.set(directory, list);
  };
  for (const [directory, boxes] of wish.writers) {
    for (const kind of ['pool', 'boundary'] as const) {
      const mine = boxes.filter((box) => isOf(kind, pools, box));
      if (mine.length === 0 || (kind === 'pool' && rowsBegin === tokens && from > 0)) continue;
      const range = { tokenBegin: kind === 'pool' ? rowsBegin : 0, tokenEnd: tokens };
      const payload = mine.reduce(
        (sum, box) => sum + boxBytes(poolOf(pools, box), box, range.tokenBegin, tokens),
        0,
      );
      add(directory, { kind, ...range, boxes: mine, fileBytes: fileBytes(mine.length, payload) });
    }
  }
  const text = { tokenBegin: rowsBegin, tokenEnd: tokens, boxes: [] };
  const { own } = wish;
  add(own.directory, { kind: 'text', ...text, fileBytes: fileBytes(0, own.textBytes(rowsBegin)) });
  const tail = { tokenBegin: 0, tokenEnd: tokens, boxes: [] };
  add(own.directory, { kind: 'tail', ...tail, fileBytes: fileBytes(0, own.tailBytes) });
  return { save: wish.save, unit: wish.unit, inherited: segments, orders };
}

function isOf(kind: Segment['kind'], pools: readonly PoolSpec[], box: Box): boolean {
  return (poolOf(pools, box).tokensPerRow === 0) === (kind === 'boundary');
}
