// Steps on their way: a record to every rank, encoded once; results back as values. Keeps the times of
// steps, for the figures of `cox bench` and for how long a rank may go without progress.
import type { StepRecord, StepResult } from '../../base/step-record.ts';
import { sendInParts } from '../../wire/parts.ts';
import { decodeStepResult, StepEncoder } from '../../wire/step-codec.ts';
import type { Roster } from './roster.ts';
import { StallLimit } from './stall-limit.ts';
import { StepTimes } from './step-times.ts';

export interface StepTrafficOptions {
  readonly roster: Roster;
  /** The rank whose answers count: of the last stage, it sees every step to its end. */
  readonly leader: number;
  readonly onStallLimit: (ms: number) => void;
}

export class StepTraffic {
  private readonly options: StepTrafficOptions;
  private readonly encoder = new StepEncoder();
  private readonly stallLimit = new StallLimit();
  private readonly times = new StepTimes();

  constructor(options: StepTrafficOptions) {
    this.options = options;
  }

  /** A record of another epoch than `current` is dropped. */
  send(record: StepRecord, current: number): void {
    const { epoch, step, runs } = record;
    if (epoch !== current) return;
    const { roster, onStallLimit } = this.options;
    const bytes = this.encoder.encode(record);
    for (const member of roster.members) {
      sendInParts(bytes, (part, more) =>
        roster.send(member, {
          // The encoder's buffer is reused, and a message is encoded before send() returns.
          step: {
            epoch,
            step,
            record: Buffer.from(part.buffer, part.byteOffset, part.length),
            more,
          },
        }),
      );
    }
    let rows = 0;
    for (const run of runs) rows += 'step' in run.tokens ? 1 : run.tokens.length;
    this.times.sent(step, performance.now());
    const limit = this.stallLimit.sent(step, rows);
    if (limit !== null) onStallLimit(limit);
  }

  /** The result in these bytes, or null when it is of another epoch. @throws CoxswainError STEP_INVALID */
  take(rank: number, bytes: Uint8Array, current: number): StepResult | null {
    const result = decodeStepResult(bytes);
    if (result.epoch !== current) return null;
    if (rank === this.options.leader) {
      const { step, computeUs, waitUs } = result;
      this.stallLimit.answered(step, computeUs + waitUs);
      this.times.answered(step, computeUs + waitUs, performance.now());
    }
    return result;
  }

  /** A new epoch: steps of the old one are void. */
  forget(): void {
    this.stallLimit.reset();
    this.times.reset();
  }

  /** Latest last, at most 1,024. */
  get overheadsUs(): readonly number[] {
    return this.times.latestUs;
  }
}
