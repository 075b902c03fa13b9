// Fills the flight: preempts for blocks, starts waiting sequences, composes steps, until as many are under
// way as the stages can take. Counts what it did for status().
import type { EpochWork } from './epoch-work.ts';
import type { CoreEffect } from './events.ts';
import type { Recovery } from './recovery.ts';
import type { RequestTable } from './request-table.ts';

export class Launcher {
  readonly totals = { cachedTokens: 0, promptTokens: 0, preemptions: 0 };
  private readonly requests: RequestTable;
  private readonly recovery: Recovery;
  private readonly say: (effect: CoreEffect) => void;

  constructor(requests: RequestTable, recovery: Recovery, say: (effect: CoreEffect) => void) {
    this.requests = requests;
    this.recovery = recovery;
    this.say = say;
  }

  launch(work: EpochWork, now: number): void {
    this.clearTheWayForSuspect(work);
    while (work.flight.hasRoom) {
      for (const sequence of work.provideBlocks()) {
        this.totals.preemptions += 1;
        this.requests.enqueue(sequence);
      }
      this.admit(work, now);
      const record = work.compose(this.requests.queue.length > 0, now);
      if (record === null) return;
      this.say({ type: 'send-step', record });
    }
  }

  /** While a suspect runs, nobody else does. */
  private clearTheWayForSuspect(work: EpochWork): void {
    const solo = this.recovery.soloRequest;
    if (solo === null) return;
    for (const sequence of [...work.slots.running]) {
      if (sequence.request === solo) continue;
      work.slots.stop(sequence);
      this.requests.enqueue(sequence);
    }
  }

  /** Starts waiting sequences, oldest first, while slots and blocks last. */
  private admit(work: EpochWork, now: number): void {
    const solo = this.recovery.soloRequest;
    for (const sequence of [...this.requests.queue]) {
      if (!work.slots.hasFree) return;
      const { request } = sequence;
      if (solo !== null && request !== solo) continue;
      // The choices of one request share its prompt: the first computes it, the others follow.
      if (work.computesPromptOf(request)) continue;
      const live = work.slots.start(sequence);
      if (live === null) return;
      this.requests.dequeue(sequence);
      if (!this.requests.markStarted(request, now)) continue;
      const cachedTokens = live.next;
      this.totals.cachedTokens += cachedTokens;
      this.totals.promptTokens += sequence.promptLength;
      this.say({ type: 'request-started', id: request.id, cachedTokens });
    }
  }
}
