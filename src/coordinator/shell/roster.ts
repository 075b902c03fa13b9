// Who fills which rank. Owns the members and their sessions: takes proved channels, hears Hello, compares,
// places, assigns, resumes broken streams, and declares ranks lost. What a loss means for the cluster is
// the lifecycle's business (events below).

import { randomBytes } from 'node:crypto';
import type { Plan } from '../../base/addon.ts';
import { present } from '../../base/assert.ts';
import { type ErrorCode, isErrorCode } from '../../base/error-codes.ts';
import { toCoxswainError } from '../../base/errors.ts';
import type { Assign } from '../../wire/generated/coxswain/v1/Assign.ts';
import type { CoordinatorBody } from '../../wire/generated/coxswain/v1/CoordinatorBody.ts';
import type { Failed__Output as Failed } from '../../wire/generated/coxswain/v1/Failed.ts';
import type { Hello__Output as Hello } from '../../wire/generated/coxswain/v1/Hello.ts';
import type { Loaded__Output as Loaded } from '../../wire/generated/coxswain/v1/Loaded.ts';
import type { RankBody__Output as RankBody } from '../../wire/generated/coxswain/v1/RankBody.ts';
import { coordinatorBodyCodec, rankBodyCodec } from '../../wire/messages.ts';
import type { SecureChannel } from '../../wire/secure-channel.ts';
import { ChangeSignal } from './change-signal.ts';
import { refuseHello, refuseLoaded } from './handshake.ts';
import { Member, Occupant } from './member.ts';
import type { ClusterLog, ModelFacts } from './options.ts';

const HELLO_MS_MAX = 5000;
/** How long a broken control stream may take to come back. */
const RESUME_MS = 5000;
const PLACE_RETRY_MS = 500;
const PLACE_TRIES = 4;

export interface RosterEvents {
  /** From now on the process beats: with its share it was told where. */
  onAssigned(member: Member, heartbeatKey: Uint8Array): void;
  /** It beats under another key: a new connection. */
  onResumed(member: Member, heartbeatKey: Uint8Array): void;
  /** The member is absent now. */
  onLost(rank: number, code: ErrorCode, message: string): void;
  /** The rank lives, but its epoch is over. */
  onFailed(rank: number, epoch: number, code: ErrorCode, message: string): void;
  /** The rank could not load its share: trying again will not help. */
  onLoadFailed(rank: number, code: ErrorCode, message: string): void;
  onResult(rank: number, result: Uint8Array): void;
}

export interface RosterOptions {
  readonly plan: Plan;
  readonly model: ModelFacts;
  readonly log: ClusterLog;
  readonly events: RosterEvents;
}

/** A connection from its proof on. */
interface Arrival {
  readonly channel: SecureChannel;
  member: Member | null;
  occupant: Occupant | null;
  greeted: boolean;
  gone: boolean;
}

export class Roster {
  readonly members: readonly Member[];
  readonly changed = new ChangeSignal();
  private readonly options: RosterOptions;
  /** What each rank is assigned, once all hosts are known. */
  private assignments: ((member: Member) => Assign) | null = null;
  private closing: boolean = false;

  constructor(options: RosterOptions) {
    this.options = options;
    this.members = options.plan.ranks.map(({ rank, stage }) => new Member(rank, stage));
  }

  /** A channel that is proved and has said nothing: its Hello decides. */
  attach(channel: SecureChannel): void {
    const arrival: Arrival = { channel, member: null, occupant: null, greeted: false, gone: false };
    const timer = setTimeout(() => channel.close('no Hello came'), HELLO_MS_MAX);
    channel.consume(
      (bytes) => {
        const body = rankBodyCodec.decode(bytes);
        const { member, occupant } = arrival;
        if (!arrival.greeted) {
          clearTimeout(timer);
          arrival.greeted = true;
          if (body.hello) this.welcome(arrival, body.hello, PLACE_TRIES);
          else channel.close('the first message was no Hello');
        } else if (member !== null && occupant?.channel === channel) {
          // Otherwise a newer connection of the same process has taken over.
          this.handle(member, occupant, body);
        }
      },
      (reason) => {
        clearTimeout(timer);
        arrival.gone = true;
        const { member, occupant } = arrival;
        if (member !== null && occupant?.channel === channel) {
          this.onBroken(member, occupant, reason);
        }
      },
    );
  }

  /** From now on every member is assigned its share as soon as it is there. */
  assignAll(assignments: (member: Member) => Assign): void {
    this.assignments = assignments;
    for (const member of this.members) this.assign(member);
  }

  send(member: Member, body: CoordinatorBody): void {
    const { occupant } = member;
    if (occupant === null) return;
    try {
      occupant.session.send(body);
    } catch (thrown) {
      this.lose(member.rank, 'CONTROL_LOST', toCoxswainError(thrown).message);
    }
  }

  /** The process in this rank is given up; its connection is closed. */
  lose(rank: number, code: ErrorCode, message: string): void {
    const member = present(this.members[rank], 'the rank is one of the plan');
    const { occupant } = member;
    if (occupant === null) return;
    const whose = `pid ${occupant.hello.pid} on ${occupant.hello.host}`;
    member.occupant = null;
    if (occupant.resumeTimer !== null) clearTimeout(occupant.resumeTimer);
    occupant.channel?.close(message);
    if (!this.closing) {
      this.options.log.warn({ rank, code, reason: message }, 'rank lost');
      this.options.events.onLost(rank, code, `${message} (${whose})`);
    }
    this.changed.notify();
  }

  /** Losses are no events any more. */
  beginClosing(): void {
    this.closing = true;
  }

  private welcome(arrival: Arrival, hello: Hello, tries: number): void {
    if (arrival.gone) return;
    const { channel } = arrival;
    const resumed = this.resume(channel, hello);
    if (resumed !== null) {
      arrival.member = resumed;
      arrival.occupant = resumed.occupant;
      return;
    }
    const refusal = refuseHello(hello, this.options.model) ?? this.refuseWish(hello);
    if (refusal !== null) {
      this.refuse(channel, hello, refusal);
      return;
    }
    const place = this.placeFor(hello);
    if (typeof place !== 'string') this.seat(arrival, hello, place);
    else if (tries === 0) this.refuse(channel, hello, place);
    else {
      // The process before it may be dead already, and its heartbeats say so within a second.
      setTimeout(() => this.welcome(arrival, hello, tries - 1), PLACE_RETRY_MS);
    }
  }

  private seat(arrival: Arrival, hello: Hello, member: Member): void {
    const { channel } = arrival;
    if (member.occupant !== null) this.lose(member.rank, 'RANK_LOST', 'its process was replaced');
    const sessionId = randomBytes(16).toString('hex');
    const occupant = new Occupant(hello, sessionId, channel);
    arrival.member = member;
    arrival.occupant = occupant;
    member.occupant = occupant;
    occupant.session.attach(channel, 0);
    member.epochMax = Math.max(member.epochMax, hello.epochMax);
    const { rank } = member;
    this.options.log.info({ rank, rank_pid: hello.pid, host: hello.host }, 'rank joined');
    this.assign(member);
    this.changed.notify();
  }

  private resume(channel: SecureChannel, hello: Hello): Member | null {
    if (hello.session === '') return null;
    const member = this.members.find(({ occupant }) => occupant?.sessionId === hello.session);
    const occupant = member?.occupant;
    if (!(member && occupant)) return null;
    if (occupant.resumeTimer !== null) clearTimeout(occupant.resumeTimer);
    occupant.resumeTimer = null;
    const old = occupant.channel;
    occupant.channel = channel;
    old?.close('a new connection replaced this one');
    const resume = { received: occupant.session.received };
    channel.send(coordinatorBodyCodec.encode({ resume, number: 0, acked: resume.received }));
    occupant.session.attach(channel, hello.received);
    this.options.log.info({ rank: member.rank }, 'control stream resumed');
    this.options.events.onResumed(member, channel.session.heartbeatKey);
    return member;
  }

  /** null: its wish can be met, now or later. */
  private refuseWish({ wantedRank }: Hello): string | null {
    if (this.closing) return 'This cluster is shutting down.';
    const last = this.members.length - 1;
    if (wantedRank <= last) return null;
    return `It wants to be rank ${wantedRank}, but this cluster has ranks 0 to ${last}.`;
  }

  /** The rank to fill, or the sentence that says why there is none now. */
  private placeFor({ wantedRank }: Hello): Member | string {
    if (wantedRank < 0) {
      const free = this.members.find(({ occupant }) => occupant === null);
      return free ?? `All ${this.members.length} ranks of this cluster are taken.`;
    }
    const member = present(this.members[wantedRank], 'a wish beyond the plan was refused');
    return member.occupant?.channel ? `${member.label} is here already.` : member;
  }

  private refuse(channel: SecureChannel, hello: Hello, sentence: string): void {
    const { host, pid } = hello;
    this.options.log.warn(
      { peer: channel.peer, host, rank_pid: pid, reason: sentence },
      'rank refused',
    );
    const refused = { code: 'HANDSHAKE_REFUSED', sentence };
    channel.send(coordinatorBodyCodec.encode({ refused }));
    channel.close(sentence);
  }

  private assign(member: Member): void {
    const { occupant } = member;
    if (this.assignments === null || occupant === null || occupant.assigned) return;
    occupant.assigned = true;
    const key = occupant.channel?.session.heartbeatKey;
    if (key !== undefined) this.options.events.onAssigned(member, key);
    this.send(member, { assign: { ...this.assignments(member), session: occupant.sessionId } });
  }

  private onBroken(member: Member, occupant: Occupant, reason: string): void {
    occupant.session.detach();
    occupant.channel = null;
    const { rank } = member;
    if (member.occupant !== occupant) return;
    // Without an assignment the process knows no session that it could take up again.
    if (!occupant.assigned || this.closing) {
      this.lose(rank, 'CONTROL_LOST', `its control stream broke: ${reason}`);
      return;
    }
    this.options.log.warn({ rank, reason, resume_ms: RESUME_MS }, 'control stream broke');
    occupant.resumeTimer = setTimeout(() => {
      const message = `its control stream broke and did not come back within ${RESUME_MS} ms`;
      if (member.occupant === occupant) this.lose(rank, 'CONTROL_LOST', message);
    }, RESUME_MS);
  }

  private handle(member: Member, occupant: Occupant, body: RankBody): void {
    if (!occupant.session.take(body.number, body.acked)) return;
    const { rank } = member;
    switch (body.kind) {
      case 'loaded':
        this.onLoaded(member, occupant, present(body.loaded, 'kind says loaded'));
        return;
      case 'ready': {
        const ready = present(body.ready, 'kind says ready');
        occupant.readyEpoch = ready.epoch;
        occupant.links = ready.links;
        member.epochMax = Math.max(member.epochMax, ready.epoch);
        this.changed.notify();
        return;
      }
      case 'result': {
        const { result, more } = present(body.result, 'kind says result');
        const whole = occupant.joiner.add(result, more);
        if (whole !== null) this.options.events.onResult(rank, whole);
        return;
      }
      case 'failed':
        this.onFailed(member, occupant, present(body.failed, 'kind says failed'));
        return;
      case 'fenced':
        occupant.fencedEpoch = present(body.fenced, 'kind says fenced').epoch;
        this.changed.notify();
        return;
      case 'stats':
        occupant.stats = present(body.stats, 'kind says stats');
        return;
      case 'loading':
        this.changed.notify();
        return;
      case 'goodbye':
        this.lose(
          rank,
          'RANK_LOST',
          `it ended: ${present(body.goodbye, 'kind says goodbye').reason}`,
        );
        return;
      default:
        this.options.log.warn({ rank, kind: body.kind ?? 'none' }, 'unknown message ignored');
    }
  }

  private onLoaded(member: Member, occupant: Occupant, loaded: Loaded): void {
    const { plan, model, log, events } = this.options;
    const first = this.members[0]?.occupant?.loaded ?? null;
    const sentence = refuseLoaded(loaded, plan, model, first);
    if (sentence !== null) {
      log.error({ rank: member.rank, reason: sentence }, 'rank refused');
      const message = `${member.label} does not fit: ${sentence}`;
      events.onLoadFailed(member.rank, 'HANDSHAKE_REFUSED', message);
      return;
    }
    occupant.loaded = loaded;
    const { weightBytes, loadMs, threads, isa } = loaded;
    log.info(
      { rank: member.rank, weight_bytes: weightBytes, load_ms: Math.round(loadMs), threads, isa },
      'rank loaded',
    );
    this.changed.notify();
  }

  private onFailed(member: Member, occupant: Occupant, failed: Failed): void {
    const code = isErrorCode(failed.code) ? failed.code : 'INTERNAL';
    const message = `${member.label}: ${failed.message}`;
    if (occupant.loaded === null) {
      this.options.events.onLoadFailed(member.rank, code, message);
      return;
    }
    occupant.failure = { epoch: failed.epoch, code, message };
    this.changed.notify();
    this.options.events.onFailed(member.rank, failed.epoch, code, failed.message);
  }
}
