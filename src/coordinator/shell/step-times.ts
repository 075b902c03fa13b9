// What a step costs beside its arithmetic, for `cox bench`: the time between answers of the last stage's
// leader, less what its engine computed and waited. Keeps the latest STEPS_KEPT.
const STEPS_KEPT = 1024;

export class StepTimes {
  private readonly sentAt = new Map<number, number>();
  private readonly overheadsUs: number[] = [];
  private answeredAt = 0;

  /** Times are performance.now(). */
  sent(step: number, now: number): void {
    this.sentAt.set(step, now);
  }

  answered(step: number, engineUs: number, now: number): void {
    const sentAt = this.sentAt.get(step);
    this.sentAt.delete(step);
    if (sentAt === undefined) return;
    // Steps overlap: this one could not begin before the answer to the one before.
    const wallUs = (now - Math.max(sentAt, this.answeredAt)) * 1000;
    this.answeredAt = now;
    this.overheadsUs.push(Math.max(0, wallUs - engineUs));
    if (this.overheadsUs.length > STEPS_KEPT) this.overheadsUs.shift();
  }

  /** A new epoch: steps of the old one are void. */
  reset(): void {
    this.sentAt.clear();
  }

  /** Latest last. */
  get latestUs(): readonly number[] {
    return this.overheadsUs;
  }
}
