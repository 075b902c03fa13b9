// Owns what the core knows about epochs that failed: whom to suspect, when to give up. It decides
// nothing about slots; core.ts asks and acts.
//
// Every request with a row in flight when a rank died gets a strike. With two it is a suspect: suspects
// run one at a time and alone. One that dies alone is the culprit. One that gets on alone for a while is
// cleared, with one strike left, so that a second death makes it a suspect again.
import type { RequestState } from './request.ts';

/** Epochs in a row that ended without one accepted result. */
const BARREN_EPOCHS_MAX = 3;
const WITHOUT_PROGRESS_MS = 60_000;
const SUSPECT_STRIKES = 2;
/** Results that a suspect must get alone to be cleared. */
const PROBATION_RESULTS = 32;

export class Recovery {
  private barrenEpochs = 0;
  private acceptedThisEpoch: boolean = false;
  private readonly suspects = new Set<RequestState>();
  private alone: RequestState | null = null;
  private aloneResults = 0;
  private troubleSince: number | null = null;

  /** The suspect that must run alone now, if any. */
  get soloRequest(): RequestState | null {
    if (this.alone === null && this.suspects.size > 0) {
      this.alone = [...this.suspects].reduce((a, b) => (a.order < b.order ? a : b));
      this.aloneResults = 0;
    }
    return this.alone;
  }

  /** When everything fails unless there is progress; null while there is no trouble. */
  get deadlineAt(): number | null {
    return this.troubleSince === null ? null : this.troubleSince + WITHOUT_PROGRESS_MS;
  }

  /** No epoch is ready, and somebody waits for one. */
  noteTrouble(now: number): void {
    this.troubleSince ??= now;
  }

  /** Nobody waits for anything. */
  noteIdle(): void {
    this.troubleSince = null;
  }

  noteGaveUp(): void {
    this.troubleSince = null;
    this.barrenEpochs = 0;
  }

  noteEpochReady(): void {
    this.acceptedThisEpoch = false;
  }

  /** A step came back from every rank. */
  noteStepDone(): void {
    this.troubleSince = null;
  }

  noteAccepted(request: RequestState): void {
    this.acceptedThisEpoch = true;
    this.barrenEpochs = 0;
    if (request !== this.alone) return;
    this.aloneResults += 1;
    if (this.aloneResults < PROBATION_RESULTS) return;
    request.strikes = 1;
    this.forget(request);
  }

  /** The request is over. */
  forget(request: RequestState): void {
    this.suspects.delete(request);
    if (this.alone === request) this.alone = null;
  }

  /**
   * An epoch ended with rows of these requests in flight, some of them over meanwhile. Returns the one that
   * is to blame beyond doubt: it was alone.
   */
  noteEpochLost(inFlight: ReadonlySet<RequestState>, now: number): RequestState | null {
    this.noteTrouble(now);
    this.barrenEpochs = this.acceptedThisEpoch ? 0 : this.barrenEpochs + 1;
    this.acceptedThisEpoch = false;
    const { alone } = this;
    this.alone = null;
    if (alone !== null && inFlight.size === 1 && inFlight.has(alone)) {
      // The cause is found: the others start with a clean count.
      for (const request of this.suspects) request.strikes = 0;
      this.suspects.clear();
      this.barrenEpochs = 0;
      return alone;
    }
    for (const request of inFlight) {
      if (request.isOver) continue;
      request.strikes += 1;
      if (request.strikes >= SUSPECT_STRIKES) this.suspects.add(request);
    }
    return null;
  }

  shouldGiveUp(now: number): boolean {
    if (this.barrenEpochs >= BARREN_EPOCHS_MAX) return true;
    return this.deadlineAt !== null && now >= this.deadlineAt;
  }
}
