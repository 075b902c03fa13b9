// From a step record to the rows of a fake batch: applies slot ops, takes tokens from earlier outputs,
// leaves out skipped rows, appends tokens. The rules are those of native/engine/plan_step.h.
import type { OutputResult, Run, StepRecord } from '../base/step-record.ts';
import { type FakeSlot, type FakeSlots, invalid } from './fake-slots.ts';

export interface FakePlannedRow {
  readonly slot: FakeSlot;
  readonly pos: number;
  readonly id: number;
  readonly skipped: boolean;
}

export interface FakePlan {
  readonly rows: readonly FakePlannedRow[];
}

export interface FakeStepContext {
  readonly rowsMax: number;
  /** Outputs of an earlier step, or null while unknown. */
  verdict(step: number): readonly OutputResult[] | null;
}

/** Null, and nothing changed, while a verdict that a row needs is unknown. Throws STEP_INVALID. */
export function planFakeStep(
  record: StepRecord,
  slots: FakeSlots,
  context: FakeStepContext,
): FakePlan | null {
  if (!hasSources(record, context)) return null;
  for (const op of record.slotOps) slots.apply(op);
  const rows: FakePlannedRow[] = [];
  for (const run of record.runs) {
    addRun(run, slots, context, rows);
    if (rows.length > context.rowsMax) {
      throw invalid(`a step of ${rows.length} rows exceeds the engine's ${context.rowsMax}`);
    }
  }
  checkOutputs(record, rows);
  return { rows };
}

function hasSources(record: StepRecord, context: FakeStepContext): boolean {
  for (const { tokens } of record.runs) {
    if (!('step' in tokens)) continue;
    if (tokens.step >= record.step) throw invalid('run: its source does not come before this step');
    if (context.verdict(tokens.step) === null) return false;
  }
  return true;
}

function checkOutputs(record: StepRecord, rows: readonly FakePlannedRow[]): void {
  for (const output of record.outputs) {
    const row = rows[output.row];
    if (row === undefined) throw invalid(`output: row ${output.row} of ${rows.length}`);
    if (output.want === 'token' && row.slot.sampler === null) {
      throw invalid('output: its slot has no sampler');
    }
  }
}

function addRun(
  run: Run,
  slots: FakeSlots,
  context: FakeStepContext,
  rows: FakePlannedRow[],
): void {
  const slot = slots.get(run.slot, 'run');
  let ids: readonly number[];
  if ('step' in run.tokens) {
    const source = context.verdict(run.tokens.step)?.[run.tokens.output];
    if (source === undefined) throw invalid('run: its source is not known');
    if (source.want !== 'token') throw invalid('run: its source is not a token');
    if (source.skipped || source.finish !== 'no') {
      rows.push({ slot, pos: run.pos0, id: -1, skipped: true });
      return;
    }
    ids = [source.id];
  } else {
    ids = run.tokens;
  }
  if (ids.length === 0) throw invalid('a run without rows');
  for (const [index, id] of ids.entries()) {
    slots.appendToken(run.slot, run.pos0 + index, id);
    rows.push({ slot, pos: run.pos0 + index, id, skipped: false });
  }
}
