// One rank as the coordinator knows it: the process that fills it now, its session, and how far it is in
// joining and in the present epoch. Owned by Roster, which alone changes it; others read.
import type { ErrorCode } from '../../base/error-codes.ts';
import type { CoordinatorBody } from '../../wire/generated/coxswain/v1/CoordinatorBody.ts';
import type { Hello__Output as Hello } from '../../wire/generated/coxswain/v1/Hello.ts';
import type { LinkState__Output as LinkState } from '../../wire/generated/coxswain/v1/LinkState.ts';
import type { Loaded__Output as Loaded } from '../../wire/generated/coxswain/v1/Loaded.ts';
import type { Stats__Output as Stats } from '../../wire/generated/coxswain/v1/Stats.ts';
import { coordinatorBodyCodec } from '../../wire/messages.ts';
import { PartJoiner } from '../../wire/parts.ts';
import { ReliableSession } from '../../wire/reliable-session.ts';
import type { SecureChannel } from '../../wire/secure-channel.ts';

/** absent -> present (Hello) -> loading (Assign) -> loaded; lost from anywhere back to absent. */
export type MemberState = 'absent' | 'present' | 'loading' | 'loaded';

export interface MemberFailure {
  readonly epoch: number;
  readonly code: ErrorCode;
  readonly message: string;
}

/** A process from its Hello until it is lost. */
export class Occupant {
  readonly hello: Hello;
  readonly sessionId: string;
  readonly session = new ReliableSession<CoordinatorBody>(coordinatorBodyCodec.encode);
  readonly joiner = new PartJoiner();
  channel: SecureChannel | null;
  resumeTimer: NodeJS.Timeout | null = null;
  assigned: boolean = false;
  loaded: Loaded | null = null;
  links: readonly LinkState[] = [];
  stats: Stats | null = null;
  /** Highest epoch that it said Fenced, Ready, Failed for. */
  fencedEpoch = 0;
  readyEpoch = 0;
  failure: MemberFailure | null = null;

  constructor(hello: Hello, sessionId: string, channel: SecureChannel) {
    this.hello = hello;
    this.sessionId = sessionId;
    this.channel = channel;
  }
}

export class Member {
  readonly rank: number;
  readonly stage: number;
  occupant: Occupant | null = null;
  /** Highest epoch that any process of this rank ever accepted. */
  epochMax = 0;

  constructor(rank: number, stage: number) {
    this.rank = rank;
    this.stage = stage;
  }

  get state(): MemberState {
    const { occupant } = this;
    if (occupant === null) return 'absent';
    if (occupant.loaded !== null) return 'loaded';
    return occupant.assigned ? 'loading' : 'present';
  }

  /** "rank 1 (pid 77 on host)" for sentences and logs. */
  get label(): string {
    const { occupant } = this;
    if (occupant === null) return `rank ${this.rank}`;
    return `rank ${this.rank} (pid ${occupant.hello.pid} on ${occupant.hello.host})`;
  }
}
