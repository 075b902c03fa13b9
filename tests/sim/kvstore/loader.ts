// Loads a unit for a plan through the holders, as ranks do, and compares every row with what computing
// gives. A wrong row ends the test; damage is quarantined; what is missing is a miss.
import { assert, present } from '../../../src/base/assert.ts';
import { CoxswainError } from '../../../src/base/errors.ts';
import { restorePieces } from '../../../src/kvstore/core/coverage.ts';
import type { Box, Unit } from '../../../src/kvstore/core/model.ts';
import type { OpenSegment } from '../../../src/kvstore/disk/shard-directory.ts';
import type { SegmentHolder } from '../../../src/kvstore/shell/segment-holder.ts';
import type { StoreDriver } from '../../../src/kvstore/shell/store-driver.ts';
import { boxesOf, firstWrongRow, type Plan, prefixHashes } from './model-state.ts';

export class Loader {
  private readonly driver: StoreDriver;
  private readonly holders: readonly SegmentHolder[];
  private readonly onDamage: () => void;
  /** What was read last: the culprit when reading fails. */
  private reading: readonly string[] = [];

  constructor(driver: StoreDriver, holders: readonly SegmentHolder[], onDamage: () => void) {
    this.driver = driver;
    this.holders = holders;
    this.onDamage = onDamage;
  }

  /** False: not to be had. */
  async load(unit: Unit, plan: Plan, ids: Int32Array): Promise<boolean> {
    try {
      return await this.loadAll(unit, plan, ids.slice(0, unit.tokens));
    } catch (error) {
      if (!(error instanceof CoxswainError) || error.code !== 'KV_DAMAGED') throw error;
      this.onDamage();
      for (const segment of this.reading) this.driver.quarantine(segment);
      return false;
    }
  }

  private async loadAll(unit: Unit, plan: Plan, ids: Int32Array): Promise<boolean> {
    this.reading = unit.segments.filter(({ kind }) => kind === 'text').map(({ id }) => id);
    const text = await this.driver.textOf(unit);
    assert(
      Buffer.from(text.ids.buffer).equals(Buffer.from(ids.buffer)),
      'stored ids are the prompt’s',
    );
    const hashes = prefixHashes(ids);
    for (let rank = 0; rank < plan.tp * plan.pp; rank += 1) {
      for (const box of [...boxesOf(plan, rank, 'pool'), ...boxesOf(plan, rank, 'boundary')]) {
        const rows = await this.readRows(unit, box);
        if (rows === null) return false;
        const wrong = firstWrongRow(unit, box, hashes, (segment, offset) =>
          present(rows.get(`${segment} ${offset}`), 'every piece was read'),
        );
        assert(wrong === null, `a wrong answer: ${wrong} of ${unit.name}`);
      }
    }
    return true;
  }

  private async readRows(unit: Unit, box: Box): Promise<Map<string, Uint8Array> | null> {
    const rows = new Map<string, Uint8Array>();
    const open = new Map<string, OpenSegment>();
    for (const piece of restorePieces(unit, box)) {
      const holder = this.holders.find(({ directory }) => directory.id === piece.directory);
      if (holder === undefined) return null;
      this.reading = [piece.segment];
      const segment = open.get(piece.segment) ?? (await holder.openSegment(piece.segment));
      if (segment === null) {
        this.driver.missing(piece.directory, piece.segment);
        return null;
      }
      open.set(piece.segment, segment);
      rows.set(`${piece.segment} ${piece.offset}`, await holder.readRange(segment, piece));
    }
    return rows;
  }
}
