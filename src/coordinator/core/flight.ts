// Steps that were sent and that not every rank has answered. Answers of one rank come in step order;
// the leader's carries the outputs. Bounded: stages + 1 steps. One Flight lives as long as its epoch.
import { present } from '../../base/assert.ts';
import type { StepResult } from '../../base/step-record.ts';
import type { StepLoad } from './rates.ts';
import type { Live, Sequence } from './request.ts';

/** Whom an output belongs to, in which life, and at which row. */
export interface Ticket {
  readonly sequence: Sequence;
  readonly live: Live;
  readonly pos: number;
}

export interface FlightStep {
  readonly step: number;
  readonly tickets: readonly Ticket[];
  /** Every sequence with rows in this step, in its life then. */
  readonly members: readonly { readonly sequence: Sequence; readonly live: Live }[];
  readonly load: StepLoad;
  readonly sentAt: number;
  readonly deadlineAt: number;
  answersLeft: number;
  computeUsMax: number;
  outputsTaken: boolean;
}

export type Landing =
  | { readonly kind: 'duplicate' }
  | { readonly kind: 'broken'; readonly message: string }
  | { readonly kind: 'answer'; readonly step: FlightStep; readonly hasOutputs: boolean };

export class Flight {
  private readonly steps: FlightStep[] = [];
  private readonly nextAnswer: number[];
  private readonly stepsMax: number;

  constructor(rankCount: number, firstStep: number, stepsMax: number) {
    this.nextAnswer = new Array<number>(rankCount).fill(firstStep);
    this.stepsMax = stepsMax;
  }

  get hasRoom(): boolean {
    return this.steps.length < this.stepsMax;
  }

  get count(): number {
    return this.steps.length;
  }

  get oldest(): FlightStep | undefined {
    return this.steps[0];
  }

  get all(): readonly FlightStep[] {
    return this.steps;
  }

  launch(step: FlightStep): void {
    this.steps.push(step);
  }

  /** Ranks that have not answered `step`. */
  missing(step: number): number[] {
    return this.nextAnswer.flatMap((next, rank) => (next <= step ? [rank] : []));
  }

  /** Counts one rank's answer. */
  land(rank: number, result: StepResult): Landing {
    const due = this.nextAnswer[rank];
    if (due === undefined) return broken(`rank ${rank} answered, which is not part of the epoch`);
    if (result.step < due) return { kind: 'duplicate' };
    if (result.step > due) {
      return broken(`rank ${rank} answered step ${result.step} where ${due} was due`);
    }
    const step = this.steps.find((flying) => flying.step === result.step);
    if (step === undefined) return broken(`rank ${rank} answered step ${result.step}, never sent`);
    const wrong = misfit(step, rank, result) ?? this.overtaken(step, rank, result);
    if (wrong !== null) return broken(wrong);
    this.nextAnswer[rank] = due + 1;
    step.answersLeft -= 1;
    step.computeUsMax = Math.max(step.computeUsMax, result.computeUs);
    const hasOutputs = result.outputs.length > 0;
    if (hasOutputs) step.outputsTaken = true;
    return { kind: 'answer', step, hasOutputs };
  }

  /** Only one rank answers outputs, so those of a step cannot come before those of an earlier one. */
  private overtaken({ step }: FlightStep, rank: number, result: StepResult): string | null {
    if (result.outputs.length === 0) return null;
    const open = this.steps.find(
      ({ tickets, outputsTaken }) => tickets.length > 0 && !outputsTaken,
    );
    if (open === undefined || open.step >= step) return null;
    return `rank ${rank} answered the outputs of step ${step} before those of ${open.step}`;
  }

  /** The oldest step, when every rank has answered it: it leaves the flight. */
  retire(): FlightStep | null {
    const oldest = this.steps[0];
    if (oldest === undefined || oldest.answersLeft > 0) return null;
    return present(this.steps.shift(), 'the oldest step is there');
  }
}

function broken(message: string): Landing {
  return { kind: 'broken', message };
}

/** What is wrong with an answer's outputs: exactly one rank, the leader, answers all of them. */
function misfit(step: FlightStep, rank: number, result: StepResult): string | null {
  const { length } = result.outputs;
  const due = step.tickets.length;
  if (length === 0) {
    if (due === 0 || step.outputsTaken || step.answersLeft > 1) return null;
    return `no rank answered the ${due} outputs of step ${step.step}`;
  }
  if (length !== due)
    return `rank ${rank} answered ${length} outputs of step ${step.step}, not ${due}`;
  if (step.outputsTaken) return `two ranks answered the outputs of step ${step.step}`;
  return null;
}
