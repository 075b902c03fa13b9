// One simulated control stream: ordered both ways, each message late by a random time, closed from either
// side. What is sent into a closed stream is lost, as is what was under way towards the side that closed.
import type { Prng } from '../../src/base/prng.ts';
import type { EngineFacts, LinkReport } from '../../src/engine/engine.ts';
import type { EpochOpening, RankAssignment } from '../../src/rank/core/events.ts';
import type { FakeClock } from './fake-clock.ts';

export type ToRank =
  | { readonly type: 'assign'; readonly assignment: RankAssignment }
  | { readonly type: 'open'; readonly opening: EpochOpening }
  | {
      readonly type: 'step';
      readonly epoch: number;
      readonly step: number;
      readonly record: Uint8Array;
    }
  | { readonly type: 'fence'; readonly epoch: number; readonly reason: string };

export type FromRank =
  | { readonly type: 'hello'; readonly epochMax: number }
  | { readonly type: 'loaded'; readonly facts: EngineFacts }
  | { readonly type: 'ready'; readonly epoch: number; readonly links: readonly LinkReport[] }
  | {
      readonly type: 'result';
      readonly epoch: number;
      readonly step: number;
      readonly bytes: Uint8Array;
    }
  | {
      readonly type: 'failed';
      readonly epoch: number;
      readonly step: number;
      readonly code: string;
      readonly message: string;
    }
  | { readonly type: 'fenced'; readonly epoch: number };

export interface StreamWorld {
  readonly clock: FakeClock;
  readonly prng: Prng;
  /** Longest usual delay of a message. */
  readonly delayMs: number;
}

export class SimStream {
  readonly rank: number;
  onRank: (message: ToRank) => void = () => {};
  onCoordinator: (message: FromRank) => void = () => {};
  onRankClosed: () => void = () => {};
  onCoordinatorClosed: () => void = () => {};
  private readonly world: StreamWorld;
  private isOpen: boolean = true;
  private toRankAt = 0;
  private fromRankAt = 0;

  constructor(rank: number, world: StreamWorld) {
    this.rank = rank;
    this.world = world;
  }

  get open(): boolean {
    return this.isOpen;
  }

  sendToRank(message: ToRank): void {
    this.toRankAt = this.arrival(this.toRankAt);
    this.world.clock.at(this.toRankAt, () => {
      if (this.isOpen) this.onRank(message);
    });
  }

  sendToCoordinator(message: FromRank): void {
    this.fromRankAt = this.arrival(this.fromRankAt);
    this.world.clock.at(this.fromRankAt, () => {
      if (this.isOpen) this.onCoordinator(message);
    });
  }

  /** Both sides learn of it, each in its time. */
  close(): void {
    if (!this.isOpen) return;
    this.isOpen = false;
    const { clock, prng, delayMs } = this.world;
    clock.after(prng.uniform() * delayMs, () => this.onRankClosed());
    clock.after(prng.uniform() * delayMs, () => this.onCoordinatorClosed());
  }

  /** Never before the message that was sent before it. Now and then one is very late. */
  private arrival(last: number): number {
    const { clock, prng, delayMs } = this.world;
    const usual = prng.uniform() * delayMs;
    const late = prng.chance(0.01) ? prng.uniform() * 40 * delayMs : 0;
    return Math.max(last, clock.now + usual + late);
  }
}
