// How long a rank may go without progress before it counts as stalled: max(2 s, 8 x predicted), the
// prediction being the rows of the steps under way at the measured time a row. Pure arithmetic; the
// heartbeat monitor is told only when the limit moved by a good part.
import { STALL_MS_MIN } from './heartbeat-watch.ts';

const PREDICTION_FACTOR = 8;
const SMOOTHING = 0.25;
const STEPS_REMEMBERED = 64;

export class StallLimit {
  private readonly rowsOf = new Map<number, number>();
  private usPerRow = 0;
  private told = STALL_MS_MIN;

  /** The new limit to tell, or null when the told one still serves. */
  sent(step: number, rows: number): number | null {
    this.rowsOf.set(step, rows);
    if (this.rowsOf.size > STEPS_REMEMBERED) {
      for (const oldest of this.rowsOf.keys()) {
        this.rowsOf.delete(oldest);
        break;
      }
    }
    let rowsUnderWay = 0;
    for (const count of this.rowsOf.values()) rowsUnderWay += count;
    const predictedMs = (rowsUnderWay * this.usPerRow) / 1000;
    const limit = Math.max(STALL_MS_MIN, PREDICTION_FACTOR * predictedMs);
    if (limit <= this.told * 1.25 && limit >= this.told / 2) return null;
    this.told = limit;
    return limit;
  }

  answered(step: number, computeUs: number): void {
    const rows = this.rowsOf.get(step);
    if (rows === undefined || rows === 0) return;
    this.rowsOf.delete(step);
    const measured = computeUs / rows;
    this.usPerRow += (measured - this.usPerRow) * (this.usPerRow === 0 ? 1 : SMOOTHING);
  }

  /** A new epoch: steps of the old one are void. */
  reset(): void {
    this.rowsOf.clear();
  }
}
