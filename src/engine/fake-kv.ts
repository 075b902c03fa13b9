// The KV cache of one FakeEngine: one 32-bit row a token for every (layer, head) that the rank holds, in
// the blocks that the coordinator allots. Like a real cache it is not cleared: what a block held before is
// read by whoever reads it wrongly.
import { present } from '../base/assert.ts';
import { CoxswainError } from '../base/errors.ts';
import type { StepRecord } from '../base/step-record.ts';
import type { EngineOptions, LoadPages, SavedPages, Topology } from './engine.ts';
import { type FakeShape, type FakeUnit, fakePartial, fakeRow, foldRow } from './fake-model.ts';
import type { FakePlan, FakePlannedRow } from './fake-step.ts';

export class FakeKv {
  private readonly units: readonly { readonly unit: FakeUnit; readonly rows: Int32Array }[];
  private readonly blockTokens: number;

  constructor(shape: FakeShape, options: EngineOptions, blockTokens: number) {
    this.blockTokens = blockTokens;
    this.units = unitsOf(shape, options.topology, options.rank).map((unit) => ({
      unit,
      rows: new Int32Array(options.kvBlocks * blockTokens),
    }));
  }

  get bytes(): number {
    return this.units.reduce((sum, { rows }) => sum + rows.byteLength, 0);
  }

  /** Runs a planned step; returns this rank's partial of every output row (0 where skipped). */
  compute(record: StepRecord, plan: FakePlan): Int32Array {
    const sums = new Int32Array(plan.rows.length);
    for (const { unit, rows } of this.units) {
      for (const op of record.slotOps) {
        if (op.kind !== 'copy') continue;
        const from = op.from * this.blockTokens;
        rows.copyWithin(op.to * this.blockTokens, from, from + op.rows);
      }
      this.computeUnit(unit, rows, plan.rows, sums);
    }
    return Int32Array.from(record.outputs, ({ row }) => sums[row] ?? 0);
  }

  /** Pages of the blocks: per block the rows of every (layer, head), and a checksum of each such chunk. */
  save(blocks: Uint32Array): { readonly bytes: Int32Array; readonly saved: SavedPages } {
    const size = this.blockTokens;
    const chunks = blocks.length * this.units.length;
    const bytes = new Int32Array(chunks * size);
    let at = 0;
    for (const block of blocks) {
      for (const { rows } of this.units) {
        bytes.set(rows.subarray(block * size, (block + 1) * size), at);
        at += size;
      }
    }
    const sums = Array.from({ length: chunks }, (_, i) => checksum(bytes, i * size, size));
    const checksums = new Uint8Array(BigUint64Array.from(sums, (sum) => BigInt(sum)).buffer);
    const fileLayers = new Set(this.units.map(({ unit }) => unit.layer)).size;
    const fileKvHeads = new Set(this.units.map(({ unit }) => unit.head)).size;
    return { bytes, saved: { fileLayers, fileKvHeads, checksums } };
  }

  /** @throws CoxswainError KV_DAMAGED: cut short, or a checksum that differs. */
  load(bytes: Int32Array, request: LoadPages): void {
    const { box, fileLayers, fileKvHeads } = request;
    const checksums = new BigUint64Array(request.checksums.slice().buffer);
    const heads = new Set(this.units.map(({ unit }) => unit.head)).size;
    for (const [page, block] of request.blocks.entries()) {
      for (let index = 0; index < box.layers * box.heads; index += 1) {
        const layer = Math.floor(index / box.heads);
        const head = index % box.heads;
        const chunk =
          (page * fileLayers + box.fileLayer + layer) * fileKvHeads + box.fileHead + head;
        const from = chunk * this.blockTokens;
        const whole = from + this.blockTokens <= bytes.length;
        if (!whole || BigInt(checksum(bytes, from, this.blockTokens)) !== checksums[chunk]) {
          throw new CoxswainError('KV_DAMAGED', `"${request.path}": page ${page} is damaged`);
        }
        const to = this.units[(box.layer + layer) * heads + box.head + head];
        present(to, 'a box lies within the shard').rows.set(
          bytes.subarray(from, from + this.blockTokens),
          block * this.blockTokens,
        );
      }
    }
  }

  private computeUnit(
    unit: FakeUnit,
    rows: Int32Array,
    plan: readonly FakePlannedRow[],
    sums: Int32Array,
  ): void {
    let before: { readonly slot: object; readonly next: number; readonly fold: number } | null =
      null;
    for (const [index, planned] of plan.entries()) {
      const { slot, pos, id, skipped } = planned;
      if (skipped) continue;
      // The next row of the same run folds one row more; any other reads its whole past.
      const goesOn: boolean = before !== null && before.slot === slot && before.next === pos;
      const fold: number = goesOn ? (before?.fold ?? 0) : this.foldPast(rows, planned);
      const row = fakeRow(unit, pos, id, fold);
      rows[this.place(slot.blocks, pos)] = row;
      before = { slot, next: pos + 1, fold: foldRow(fold, pos, row) };
      sums[index] = ((sums[index] ?? 0) + fakePartial(unit, row)) | 0;
    }
  }

  private foldPast(rows: Int32Array, { slot, pos }: FakePlannedRow): number {
    let fold = 0;
    for (let at = 0; at < pos; at += 1) {
      fold = foldRow(fold, at, present(rows[this.place(slot.blocks, at)], 'in the cache'));
    }
    return fold;
  }

  private place(blocks: readonly number[], pos: number): number {
    const block = present(blocks[Math.floor(pos / this.blockTokens)], 'the table covers the row');
    return block * this.blockTokens + (pos % this.blockTokens);
  }
}

function checksum(rows: Int32Array, from: number, count: number): number {
  let sum = 17;
  for (let at = from; at < from + count; at += 1)
    sum = (Math.imul(sum, 31) + (rows[at] ?? 0)) >>> 0;
  return sum;
}

/** Heads are cut by the weights of the TP ranks, layers evenly over the stages. */
export function unitsOf(shape: FakeShape, topology: Topology, rank: number): FakeUnit[] {
  const { split, pp } = topology;
  const tp = split.length;
  const stage = Math.floor(rank / tp);
  const layers = cut(shape.layers, new Array<number>(pp).fill(1), stage);
  const heads = cut(shape.heads, split, rank % tp);
  const units: FakeUnit[] = [];
  for (let layer = layers.begin; layer < layers.end; layer += 1) {
    for (let head = heads.begin; head < heads.end; head += 1) units.push({ layer, head });
  }
  return units;
}

function cut(
  count: number,
  weights: readonly number[],
  index: number,
): { readonly begin: number; readonly end: number } {
  const total = weights.reduce((a, b) => a + b, 0);
  const before = weights.slice(0, index).reduce((a, b) => a + b, 0);
  const at = (weight: number) => Math.round((count * weight) / total);
  return { begin: at(before), end: at(before + present(weights[index], 'a rank of the plan')) };
}
