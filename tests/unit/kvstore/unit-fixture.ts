// A small lineage with all its files in memory: a parent and its child, as a plan's ranks write them.
import { createPrng } from '../../../src/base/prng.ts';
import { inherit, type Segment, type Unit } from '../../../src/kvstore/core/model.ts';
import { encodeTail, encodeText, textFrom } from '../../../src/kvstore/format/text-payload.ts';
import {
  boxesOf,
  makeSegment,
  type Plan,
  POOLS,
  payloadOf,
  prefixHashes,
} from '../../sim/kvstore/model-state.ts';

export const STORE = '11'.repeat(16);
export const hexOf = (value: number, bytes: number): string =>
  value.toString(16).padStart(bytes * 2, '0');

export interface BuiltUnit {
  readonly unit: Unit;
  readonly ids: Int32Array;
  /** New files by segment id. */
  readonly files: ReadonlyMap<string, Uint8Array>;
}

let segments = 0;

export function randomIds(seed: number, count: number): Int32Array {
  const prng = createPrng(seed);
  return Int32Array.from({ length: count }, () => prng.below(500));
}

/** Key bytes of two bytes a token. */
export function textOf(ids: Int32Array) {
  const key = new Uint8Array(ids.length * 2);
  ids.forEach((id, at) => {
    key.set([33 + (id % 90), 33 + Math.floor(id / 90)], at * 2);
  });
  const ends = Uint32Array.from(ids, (_, at) => at * 2 + 2);
  const whole = new Uint8Array(ids.length).fill(1);
  return { ids, ends, key, whole, control: new Uint8Array(ids.length) };
}

export function buildUnit(plan: Plan, ids: Int32Array, parent: Unit | null = null): BuiltUnit {
  const { segments: inherited, from } = inherit(parent, parent?.tokens ?? 0);
  const hashes = prefixHashes(ids);
  const files = new Map<string, Uint8Array>();
  const own: Segment[] = [];
  const add = (made: { readonly segment: Segment; readonly file: Uint8Array }) => {
    own.push(made.segment);
    files.set(made.segment.id, made.file);
  };
  const facts = (directory: number) => {
    segments += 1;
    const id = hexOf(1, 8) + hexOf(segments, 8);
    return { id, store: STORE, directory: hexOf(directory, 16), epoch: 1, tokenEnd: ids.length };
  };
  for (let rank = 0; rank < plan.tp * plan.pp; rank += 1) {
    for (const kind of ['pool', 'boundary'] as const) {
      const boxes = boxesOf(plan, rank, kind);
      if (boxes.length === 0) continue;
      const header = { ...facts(rank + 1), kind, boxes, tokenBegin: kind === 'pool' ? from : 0 };
      add(makeSegment(header, payloadOf(POOLS, header, hashes)));
    }
  }
  const text = textFrom(textOf(ids), from);
  const common = { ...facts(99), boxes: [] };
  add(makeSegment({ ...common, kind: 'text', tokenBegin: from }, encodeText(text)));
  const tail = {
    logits: Float32Array.of(1, 2, -3),
    witness: { token: 1, logits: Float32Array.of(4, 5, 6) },
  };
  add(makeSegment({ ...facts(99), boxes: [], kind: 'tail', tokenBegin: 0 }, encodeTail(tail)));
  const unit: Unit = {
    name: hexOf(ids.length, 20),
    scope: hexOf(1, 32),
    compat: hexOf(2, 32),
    plan: hexOf(plan.tp * 16 + plan.pp, 32),
    tokens: ids.length,
    keyBytes: ids.length * 2,
    reason: 'prompt-end',
    createdMs: 1_700_000_000_000,
    epoch: 1,
    pools: POOLS,
    segments: [...inherited, ...own],
  };
  return { unit, ids, files };
}
