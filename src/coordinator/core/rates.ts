// Predicts how long a step will take from how long steps took: an exponential mean of the time of a
// decode step and of the time of one prefill row. Times are microseconds of compute of the slowest rank.
import { STEP_ROWS_MAX } from '../../base/step-record.ts';

/** While anyone decodes, a step should not hold up the next token longer than this. */
const DECODING_US = 50_000;
/** While anyone waits for a turn. */
const WAITING_US = 250_000;
/** Nobody waits: long steps are cheap, but a newcomer or a cancel waits for the steps in flight. */
const ALONE_US = 500_000;
const ROWS_MIN = 16;
/** Before anything was measured: small enough for a slow machine, large enough to measure. */
const PROBE_ROWS = 32;
/** Weight of the newest measurement. */
const FRESH = 0.25;
/** Below this many prefill rows the time says more about the step than about its rows. */
const MEASURED_ROWS_MIN = 8;
/** A guess for deadlines before the first measurement. */
const UNKNOWN_ROW_US = 5_000;

export interface StepLoad {
  readonly decodeRows: number;
  readonly prefillRows: number;
}

export class Rates {
  private decodeStepUs: number | null = null;
  private prefillRowUs: number | null = null;

  /** Takes the compute time of one finished step. */
  measure(load: StepLoad, computeUs: number): void {
    if (load.prefillRows === 0 && load.decodeRows > 0) {
      this.decodeStepUs = mean(this.decodeStepUs, computeUs);
    } else if (load.prefillRows >= MEASURED_ROWS_MIN) {
      const decodeUs = load.decodeRows > 0 ? (this.decodeStepUs ?? 0) : 0;
      const rowUs = Math.max(computeUs - decodeUs, computeUs / 8) / load.prefillRows;
      this.prefillRowUs = mean(this.prefillRowUs, Math.max(rowUs, 0.1));
    }
  }

  /** How many prefill rows to add to a step with these decode rows. */
  prefillRows(decodeRows: number, others: 'decode' | 'wait' | 'none'): number {
    if (this.prefillRowUs === null) return PROBE_ROWS;
    const budgetUs = { decode: DECODING_US, wait: WAITING_US, none: ALONE_US }[others];
    const decodeUs = decodeRows > 0 ? (this.decodeStepUs ?? 0) : 0;
    const rows = Math.floor((budgetUs - decodeUs) / this.prefillRowUs);
    return Math.min(STEP_ROWS_MAX, Math.max(ROWS_MIN, rows));
  }

  predictUs(load: StepLoad): number {
    const rowUs = this.prefillRowUs ?? UNKNOWN_ROW_US;
    const decodeUs = load.decodeRows > 0 ? (this.decodeStepUs ?? load.decodeRows * rowUs) : 0;
    return decodeUs + load.prefillRows * rowUs;
  }
}

function mean(old: number | null, fresh: number): number {
  return old === null ? fresh : old + (fresh - old) * FRESH;
}
