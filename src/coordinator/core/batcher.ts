// Composes the rows of one step from the running sequences: decode rows first, then prefill chunks sized
// by predicted time, whoever was served longest ago first. Changes only the sequences' `live` marks.
//
// With several stages the decoding sequences are dealt out over consecutive steps (at most their number
// divided by the stages in one step, and none whose newest row is still within the pipeline), so that
// every stage has a step to work on. A lone sequence decodes in every step all the same: the ranks hand
// the token on among themselves, and the round trip to the coordinator is hidden.
import { present } from '../../base/assert.ts';
import type { Output, OutputRef, Run } from '../../base/step-record.ts';
import type { CoreLimits, ScoreRequest } from './events.ts';
import type { Ticket } from './flight.ts';
import type { Rates, StepLoad } from './rates.ts';
import { compareAge, type Live, type Sequence } from './request.ts';
import type { Slots } from './slots.ts';

/** All logits of a row are some 200 to 600 KB: few rows a result, unless the request sets its chunk. */
const LOGITS_ROWS_MAX = 8;

/** Smaller chunks would cost the stages more than their overlap brings. */
const STAGE_ROWS_MIN = 64;

export interface Batch {
  readonly step: number;
  readonly runs: Run[];
  readonly outputs: Output[];
  readonly tickets: Ticket[];
  readonly members: { readonly sequence: Sequence; readonly live: Live }[];
  readonly load: StepLoad;
}

interface Candidate {
  readonly sequence: Sequence;
  readonly live: Live;
}

interface Draft {
  readonly step: number;
  readonly runs: Run[];
  readonly outputs: Output[];
  readonly tickets: Ticket[];
  readonly members: Candidate[];
  rows: number;
}

export class Batcher {
  private readonly limits: CoreLimits;
  private readonly rates: Rates;
  private readonly slots: Slots;

  constructor(limits: CoreLimits, rates: Rates, slots: Slots) {
    this.limits = limits;
    this.rates = rates;
    this.slots = slots;
  }

  /** The next step, or null when there is nothing to compute. Blocks for decode rows are provided. */
  compose(step: number, queueWaits: boolean): Batch | null {
    const decoding: Candidate[] = [];
    const prefilling: Candidate[] = [];
    for (const sequence of this.slots.running) {
      const live = present(sequence.live, 'a running sequence has a slot');
      if (isDecoding(sequence, live)) decoding.push({ sequence, live });
      else if (rowsLeft(sequence, live) > 0) prefilling.push({ sequence, live });
    }
    const draft: Draft = { step, runs: [], outputs: [], tickets: [], members: [], rows: 0 };
    for (const candidate of this.chooseDecodes(step, decoding, prefilling.length > 0)) {
      this.addDecode(draft, candidate);
    }
    const decodeRows = draft.rows;
    const others = othersNow(decoding.length, queueWaits || prefilling.length > 1);
    let budget = Math.min(this.rates.prefillRows(decodeRows, others), this.stageShare(prefilling));
    prefilling.sort(byLongestUnserved);
    for (const candidate of prefilling) {
      budget -= this.addPrefill(draft, candidate, budget);
    }
    if (draft.rows === 0) return null;
    return { ...draft, load: { decodeRows, prefillRows: draft.rows - decodeRows } };
  }

  /** With several stages a prompt is cut, so that they work on its chunks at the same time. */
  private stageShare(prefilling: readonly Candidate[]): number {
    const { stages } = this.limits;
    if (stages === 1) return Number.POSITIVE_INFINITY;
    const left = prefilling.reduce((sum, { sequence, live }) => sum + rowsLeft(sequence, live), 0);
    return Math.max(STAGE_ROWS_MIN, Math.ceil(left / (2 * stages)));
  }

  private chooseDecodes(step: number, decoding: Candidate[], prefills: boolean): Candidate[] {
    const { stages, stepRowsMax } = this.limits;
    const open = decoding.filter(({ sequence, live }) => live.next <= sequence.lengthMax - 2);
    const rowsMax = prefills ? Math.max(1, stepRowsMax - (stepRowsMax >> 2)) : stepRowsMax;
    if (stages === 1) {
      return open.length <= rowsMax ? open : open.sort(byLongestUnserved).slice(0, rowsMax);
    }
    const ripe = open.filter(
      ({ sequence, live }) => live.next < sequence.length || live.lastStep <= step - stages,
    );
    const chosen = ripe.length === 0 && !prefills ? open : ripe;
    const share = Math.ceil(decoding.length / stages);
    return chosen.sort(byLongestUnserved).slice(0, Math.min(share, rowsMax));
  }

  private addDecode(draft: Draft, { sequence, live }: Candidate): void {
    const { next } = live;
    const tokens =
      next < sequence.length
        ? sequence.idsBetween(next, next + 1)
        : present(live.lastOutput, 'a row past the known ids follows an output');
    this.add(draft, { sequence, live }, tokens);
  }

  /** Returns how many rows were added. */
  private addPrefill(draft: Draft, candidate: Candidate, budget: number): number {
    const { sequence, live } = candidate;
    const room = this.limits.stepRowsMax - draft.rows;
    const rows = Math.min(room, rowsLeft(sequence, live), chunkOf(sequence, live, budget));
    if (rows <= 0) return 0;
    this.add(draft, candidate, sequence.idsBetween(live.next, live.next + rows));
    return rows;
  }

  private add(draft: Draft, candidate: Candidate, tokens: readonly number[] | OutputRef): void {
    const { sequence, live } = candidate;
    const count = 'step' in tokens ? 1 : tokens.length;
    draft.runs.push({ slot: live.slot, pos0: live.next, tokens });
    addOutputs(draft, candidate, count);
    draft.members.push(candidate);
    draft.rows += count;
    live.next += count;
    live.lastStep = draft.step;
    live.stepsInFlight += 1;
    this.slots.noteKnownRows(sequence, live);
  }
}

/** At most one known id is left: the next row is one token of the answer. */
export function isDecoding(sequence: Sequence, live: Live): boolean {
  return sequence.generates && live.next >= sequence.length - 1;
}

function rowsLeft(sequence: Sequence, live: Live): number {
  return sequence.length - live.next;
}

function chunkOf({ request }: Sequence, live: Live, budget: number): number {
  const { request: wanted } = request;
  if (wanted.kind === 'generate') return budget;
  if (wanted.chunk !== null) return wanted.chunk;
  return rowsUntilLogits(wanted, live.next, budget);
}

/** Cuts a chunk so that it has at most LOGITS_ROWS_MAX rows of whole logits. */
function rowsUntilLogits({ wants }: ScoreRequest, from: number, budget: number): number {
  let logitsRows = 0;
  for (let rows = 0; rows < budget; rows += 1) {
    if (wants.get(from + rows)?.want === 'logits') logitsRows += 1;
    if (logitsRows > LOGITS_ROWS_MAX) return rows;
  }
  return budget;
}

function othersNow(decoding: number, waits: boolean): 'decode' | 'wait' | 'none' {
  if (decoding > 0) return 'decode';
  return waits ? 'wait' : 'none';
}

function byLongestUnserved(a: Candidate, b: Candidate): number {
  return a.live.lastStep - b.live.lastStep || compareAge(a.sequence, b.sequence);
}

/** A generated token is wanted of the last known row and of every later one; scores as asked. */
function addOutputs(draft: Draft, { sequence, live }: Candidate, count: number): void {
  const { request } = sequence.request;
  if (request.kind === 'generate') {
    const pos = live.next + count - 1;
    if (pos < sequence.length - 1) return;
    live.lastOutput = { step: draft.step, output: draft.outputs.length };
    draft.outputs.push({ row: draft.rows + count - 1, want: 'token' });
    draft.tickets.push({ sequence, live, pos });
    return;
  }
  for (let row = 0; row < count; row += 1) {
    const pos = live.next + row;
    const wanted = request.wants.get(pos);
    if (wanted === undefined || pos < sequence.scoredUpTo) continue;
    draft.outputs.push({ row: draft.rows + row, ...wanted });
    draft.tickets.push({ sequence, live, pos });
  }
}
