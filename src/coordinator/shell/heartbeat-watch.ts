// Decides from heartbeats which ranks are dead or stuck. Pure: datagrams and the time are arguments.
//   silent:  nothing heard for SILENT_MS (for FIRST_BEAT_MS more before the first beat).
//   stalled: busy without progress past the step's deadline while another rank is ahead and so waits.
// Time in which the watch itself was not running (a stopped or starved process) counts for nobody.
import {
  claimedRank,
  decodeHeartbeat,
  encodeHeartbeat,
  type Heartbeat,
} from '../../wire/heartbeat-codec.ts';

export const SILENT_MS = 1000;
export const TICK_MS = 100;
/** A rank that was just told where to beat may take so much longer for its first beat. */
export const FIRST_BEAT_MS = 4000;
/** Least time without progress that is a stall: a peer's deadline is max(2 s, 8 x predicted). */
export const STALL_MS_MIN = 2000;

export type Verdict =
  | { readonly kind: 'silent'; readonly rank: number; readonly ms: number }
  | {
      readonly kind: 'stalled';
      readonly rank: number;
      readonly ms: number;
      readonly epoch: number;
      readonly step: number;
      readonly item: number;
    };

interface Watched {
  readonly stage: number;
  /** Of the present control connection and the one before: beats of both may be under way. */
  keys: Uint8Array[];
  counter: number;
  heardAt: number;
  last: Heartbeat | null;
  progressAt: number;
}

export class HeartbeatWatch {
  private readonly ranks = new Map<number, Watched>();
  private tickedAt: number | null = null;
  /** max(STALL_MS_MIN, 8 x predicted) of the steps under way. */
  stallMs = STALL_MS_MIN;

  /** A process that was just told where to beat. */
  watch(rank: number, stage: number, key: Uint8Array, now: number): void {
    this.ranks.set(rank, {
      stage,
      keys: [key],
      counter: 0,
      heardAt: now + FIRST_BEAT_MS,
      last: null,
      progressAt: now,
    });
  }

  /** The same process over a new connection. */
  rekey(rank: number, key: Uint8Array): void {
    const watched = this.ranks.get(rank);
    if (watched) watched.keys = [key, ...watched.keys.slice(0, 1)];
  }

  unwatch(rank: number): void {
    this.ranks.delete(rank);
  }

  /** The answer to send back, or null for anything that is not a fresh heartbeat of a watched rank. */
  take(bytes: Uint8Array, now: number): Buffer | null {
    const rank = claimedRank(bytes);
    const watched = rank === null ? undefined : this.ranks.get(rank);
    if (watched === undefined) return null;
    for (const key of watched.keys) {
      const beat = decodeHeartbeat(bytes, key);
      if (beat === null) continue;
      if (beat.kind !== 'beat' || beat.counter <= watched.counter) return null;
      note(watched, beat, now);
      return encodeHeartbeat({ ...beat, kind: 'answer' }, key);
    }
    return null;
  }

  /** What became of the ranks since the last tick. A rank that was judged is not watched any more. */
  tick(now: number): Verdict[] {
    this.forgivePause(now);
    const verdicts: Verdict[] = [];
    for (const [rank, watched] of this.ranks) {
      const silentMs = now - watched.heardAt;
      if (silentMs > SILENT_MS) {
        const sinceMs = watched.last === null ? silentMs + FIRST_BEAT_MS : silentMs;
        verdicts.push({ kind: 'silent', rank, ms: Math.round(sinceMs) });
      } else if (this.isStalled(watched, now)) {
        const { epoch = 0, step = 0, item = 0 } = watched.last ?? {};
        const ms = Math.round(now - watched.progressAt);
        verdicts.push({ kind: 'stalled', rank, ms, epoch, step, item });
      }
    }
    for (const { rank } of verdicts) this.ranks.delete(rank);
    return verdicts;
  }

  private forgivePause(now: number): void {
    const pauseMs = this.tickedAt === null ? 0 : now - this.tickedAt - TICK_MS;
    this.tickedAt = now;
    if (pauseMs <= TICK_MS) return;
    for (const watched of this.ranks.values()) {
      watched.heardAt += pauseMs;
      watched.progressAt += pauseMs;
    }
  }

  private isStalled(watched: Watched, now: number): boolean {
    const { last } = watched;
    if (last === null || !last.busy || now - watched.progressAt <= this.stallMs) return false;
    return [...this.ranks.values()].some((other) => isAhead(other, watched));
  }
}

function note(watched: Watched, beat: Heartbeat, now: number): void {
  const { last } = watched;
  const moved =
    last === null ||
    last.epoch !== beat.epoch ||
    last.step !== beat.step ||
    last.item !== beat.item ||
    !beat.busy;
  if (moved) watched.progressAt = now;
  watched.counter = beat.counter;
  watched.heardAt = now;
  watched.last = beat;
}

function isAhead(other: Watched, watched: Watched): boolean {
  const a = other.last;
  const b = watched.last;
  if (a === null || b === null || a.epoch !== b.epoch) return false;
  if (a.step !== b.step) return a.step > b.step;
  return other.stage === watched.stage && a.item > b.item;
}
