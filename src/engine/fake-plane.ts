// The data plane between FakeEngines: one object shared by all ranks of a simulated cluster. It knows who
// has joined which epoch, who has begun and ended which step, the partial sums of the output rows, and
// the verdicts of the last stage's leader. It decides nothing: engines ask and are called back when
// something has changed.
import { present } from '../base/assert.ts';
import type { OutputResult } from '../base/step-record.ts';

/** Verdicts are kept this many steps back, as by the native engine. */
const VERDICTS_KEPT = 128;

export interface FakeMember {
  readonly rank: number;
  /** Something changed: another rank joined, left, began or ended a step. */
  wake(): void;
}

export interface FakeBegin {
  readonly rank: number;
  /** Of the record and of all slots after its slot ops and runs. */
  readonly digest: string;
  /** How many the record asks for. */
  readonly outputs: number;
}

interface StepTrace {
  /** Digest of record and slots, by the first rank that began it. */
  readonly digest: string;
  readonly begun: Set<number>;
  readonly ended: Set<number>;
  /** (outputs) sums of the partials of all ranks. */
  readonly sums: Int32Array;
  verdict: readonly OutputResult[] | null;
}

interface EpochRoom {
  readonly members: Map<number, FakeMember>;
  readonly left: Set<number>;
  readonly steps: Map<number, StepTrace>;
}

export class FakePlane {
  readonly rankCount: number;
  readonly stages: number;
  private readonly rooms = new Map<string, EpochRoom>();

  constructor(rankCount: number, stages: number) {
    this.rankCount = rankCount;
    this.stages = stages;
  }

  stageOf(rank: number): number {
    return Math.floor(rank / (this.rankCount / this.stages));
  }

  /** The first rank of the last stage samples and answers. */
  get leader(): number {
    return this.rankCount - this.rankCount / this.stages;
  }

  join(key: string, member: FakeMember): void {
    let room = this.rooms.get(key);
    if (room === undefined) {
      room = { members: new Map(), left: new Set(), steps: new Map() };
      this.rooms.set(key, room);
    }
    room.members.set(member.rank, member);
    this.wakeAll(room);
  }

  leave(key: string, member: FakeMember): void {
    const room = this.rooms.get(key);
    if (room?.members.get(member.rank) !== member) return;
    room.members.delete(member.rank);
    room.left.add(member.rank);
    if (room.members.size === 0) this.rooms.delete(key);
    this.wakeAll(room);
  }

  isComplete(key: string): boolean {
    const room = this.rooms.get(key);
    return room !== undefined && room.members.size === this.rankCount;
  }

  /** A rank that was part of the epoch and is gone, or null. */
  lostRank(key: string): number | null {
    for (const rank of this.rooms.get(key)?.left ?? []) return rank;
    return null;
  }

  /** False: this rank's record or slots differ from those of the rank that came first. */
  begin(key: string, step: number, begin: FakeBegin): boolean {
    const { rank, digest, outputs } = begin;
    const room = this.roomOf(key);
    let trace = room.steps.get(step);
    if (trace === undefined) {
      const sums = new Int32Array(outputs);
      trace = { digest, begun: new Set(), ended: new Set(), sums, verdict: null };
      room.steps.set(step, trace);
      room.steps.delete(step - VERDICTS_KEPT);
    }
    trace.begun.add(rank);
    this.wakeAll(room);
    return trace.digest === digest;
  }

  /** All ranks of this one's stage are in the step, and the stage before has handed its rows on. */
  canCompute(key: string, step: number, rank: number): boolean {
    const trace = this.rooms.get(key)?.steps.get(step);
    if (trace === undefined) return false;
    const stage = this.stageOf(rank);
    for (let peer = 0; peer < this.rankCount; peer += 1) {
      const peerStage = this.stageOf(peer);
      if (peerStage === stage && !trace.begun.has(peer)) return false;
      if (peerStage === stage - 1 && !trace.ended.has(peer)) return false;
    }
    return true;
  }

  /** Adds this rank's partials of the output rows. */
  end(key: string, step: number, rank: number, partials: Int32Array): void {
    const room = this.roomOf(key);
    const trace = present(room.steps.get(step), 'a step that ends was begun');
    for (const [index, partial] of partials.entries()) {
      trace.sums[index] = (present(trace.sums[index], 'same outputs') + partial) | 0;
    }
    trace.ended.add(rank);
    this.wakeAll(room);
  }

  /** The sums of a step that every rank has ended, or null. */
  sums(key: string, step: number): Int32Array | null {
    const trace = this.rooms.get(key)?.steps.get(step);
    return trace !== undefined && trace.ended.size === this.rankCount ? trace.sums : null;
  }

  publish(key: string, step: number, verdict: readonly OutputResult[]): void {
    const room = this.roomOf(key);
    present(room.steps.get(step), 'a verdict belongs to a step').verdict = verdict;
    this.wakeAll(room);
  }

  /** Null: not known yet. */
  verdict(key: string, step: number): readonly OutputResult[] | null {
    return this.rooms.get(key)?.steps.get(step)?.verdict ?? null;
  }

  private roomOf(key: string): EpochRoom {
    return present(this.rooms.get(key), 'only members of an epoch compute in it');
  }

  private wakeAll(room: EpochRoom): void {
    for (const member of [...room.members.values()]) member.wake();
  }
}
