// The life of the cluster: all ranks join and load, an epoch is opened, and when one ends the next is
// opened (fence, restart or rejoin, links, Ready). Owns the cluster's state and the epoch counter; tells
// the core by events. Gives up recovering after EPOCHS_MAX failed epochs or RECOVERY_MS, says so, and
// goes on trying slowly, so that a machine that comes back is served again.

import { setTimeout as sleep } from 'node:timers/promises';
import type { Plan } from '../../base/addon.ts';
import { assert, present } from '../../base/assert.ts';
import type { ErrorCode } from '../../base/error-codes.ts';
import { CoxswainError, toCoxswainError } from '../../base/errors.ts';
import type { Assign } from '../../wire/generated/coxswain/v1/Assign.ts';
import type { CoreEvent, CoreLimits } from '../core/events.ts';
import { type ClusterLayout, layOut } from './layout.ts';
import { type LinkedRank, linksOf, transportRefusal } from './links.ts';
import type { Member } from './member.ts';
import type { ClusterLog, ClusterOptions, ModelFacts } from './options.ts';
import type { Roster } from './roster.ts';
import type { Supervisor } from './supervisor.ts';

const FENCE_MS = 2000;
const OPEN_MS = 20_000;
/** Native code gives up at OPEN_MS and says why; only a rank that cannot even say so runs into this. */
const READY_MS = OPEN_MS + 3000;
/** Longer than any load that works: beyond it something hangs that heartbeats do not show. */
const LOAD_MS_MAX = 30 * 60_000;
const EPOCHS_MAX = 3;
const RECOVERY_MS = 60_000;
const SLOW_RETRY_MS = 5000;
const FIRST_STEP = 1;

export type ClusterState = 'starting' | 'ready' | 'recovering' | 'failed' | 'closing';

export interface LifecycleOptions {
  readonly options: ClusterOptions;
  readonly plan: Plan;
  readonly model: ModelFacts;
  readonly incarnation: string;
  readonly roster: Roster;
  /** null: the ranks are started by someone else. */
  readonly supervisor: Supervisor | null;
  readonly heartbeatAddress: () => string;
  readonly dispatch: (event: CoreEvent) => void;
  readonly log: ClusterLog;
}

export class Lifecycle {
  private readonly given: LifecycleOptions;
  private layout: ClusterLayout | null = null;
  private fatal: CoxswainError | null = null;
  private stateNow: ClusterState = 'starting';
  private epochNow = 0;
  private readonly stop = new AbortController();

  constructor(given: LifecycleOptions) {
    this.given = given;
  }

  get state(): ClusterState {
    return this.stateNow;
  }

  get epoch(): number {
    return this.epochNow;
  }

  get kvBlocks(): number {
    return this.layout?.kvBlocks ?? 0;
  }

  /** Tokens that one sequence may reach, prompt and answer together. */
  get contextTokens(): number {
    return this.given.model.context;
  }

  /** All ranks joined, loaded, linked. @throws CoxswainError naming the rank, or JOIN_TIMEOUT. */
  async start(): Promise<void> {
    const { roster, options, supervisor } = this.given;
    const deadline = performance.now() + options.joinTimeoutMs;
    supervisor?.startAll();
    const joined = () => this.interrupted || roster.members.every(({ occupant }) => occupant);
    const inTime = await roster.changed.until(joined, deadline);
    this.throwIfInterrupted();
    if (!inTime) throw this.joinTimeout('joined');
    this.layout = this.layOut();
    roster.assignAll((member) => this.assignmentOf(member));
    await this.openOnce(deadline);
    supervisor?.allowRestarts();
  }

  /** The core's open-epoch: resolves when an epoch is open again, or the cluster is closing. */
  async recover(reason: string): Promise<void> {
    if (this.stateNow === 'recovering' || this.stateNow === 'closing') return;
    this.become('recovering', reason);
    const startedAt = performance.now();
    for (let attempt = 1; !this.stop.signal.aborted; attempt += 1) {
      try {
        // A first start may wait for a day until people have started all hosts; clients may not.
        const waitMs = Math.min(this.given.options.joinTimeoutMs, RECOVERY_MS);
        await this.openOnce(performance.now() + waitMs);
        return;
      } catch (thrown) {
        const error = toCoxswainError(thrown);
        if (this.stop.signal.aborted) return;
        this.given.log.warn(
          { attempt, code: error.code, reason: error.message },
          'epoch not opened',
        );
        const spentMs = performance.now() - startedAt;
        const isHopeless = this.fatal !== null || attempt >= EPOCHS_MAX || spentMs > RECOVERY_MS;
        if (isHopeless) await this.giveUp(error);
      }
    }
  }

  /** A rank is absent now. */
  onLost(rank: number, code: ErrorCode, message: string): void {
    this.given.supervisor?.kill(rank);
    this.onFailed(rank, this.epochNow, code, message);
  }

  /** A rank's epoch is over, whether or not the rank lives. */
  onFailed(rank: number, epoch: number, code: ErrorCode, message: string): void {
    if (this.stateNow !== 'ready' || epoch !== this.epochNow) return;
    this.given.dispatch({ type: 'rank-failed', epoch, rank, code, message });
  }

  onHopeless(error: CoxswainError): void {
    this.fatal ??= error;
    this.given.roster.changed.notify();
  }

  close(): void {
    this.become('closing', 'the cluster was told to end');
    this.stop.abort();
    this.given.roster.changed.notify();
  }

  /** One attempt: fence, wait for all to be loaded, open, wait for Ready, tell the core. */
  private async openOnce(deadline: number): Promise<void> {
    await this.fenceAll();
    await this.awaitLoaded(deadline);
    const { roster, plan, options, incarnation, log } = this.given;
    const ranks = roster.members.map(linkedRank);
    const refusal = transportRefusal(ranks, plan, options.transport);
    if (refusal !== null) throw new CoxswainError('PLAN_IMPOSSIBLE', refusal);
    const epoch = 1 + Math.max(this.epochNow, ...roster.members.map(({ epochMax }) => epochMax));
    this.epochNow = epoch;
    for (const member of roster.members) {
      const links = linksOf(linkedRank(member), ranks, plan, options.transport);
      roster.send(member, {
        open: { epoch, incarnation, links, firstStep: FIRST_STEP, openTimeoutMs: OPEN_MS },
      });
    }
    await this.awaitReady(epoch);
    this.become('ready', `epoch ${epoch} is open`);
    const links = roster.members.flatMap(({ rank, occupant }) =>
      (occupant?.links ?? []).map(
        (link) => `${rank}-${link.peer} ${link.transport} ${link.roundTripUs.toFixed(1)} us`,
      ),
    );
    log.info({ epoch, links }, 'epoch open');
    const limits = this.limits();
    this.given.dispatch({ type: 'epoch-ready', epoch, firstStep: FIRST_STEP, limits });
  }

  private async fenceAll(): Promise<void> {
    const { roster } = this.given;
    const epoch = this.epochNow;
    const inEpoch = roster.members.filter(({ occupant }) => occupant?.loaded && epoch > 0);
    for (const member of inEpoch) {
      roster.send(member, { fence: { epoch, reason: 'a new epoch begins' } });
    }
    const left = (member: Member) => {
      const { occupant } = member;
      return occupant === null || !occupant.loaded || occupant.fencedEpoch >= epoch;
    };
    await roster.changed.until(() => inEpoch.every(left), performance.now() + FENCE_MS);
    for (const member of inEpoch) {
      if (left(member)) continue;
      const message = `it did not leave epoch ${epoch} within ${FENCE_MS} ms`;
      roster.lose(member.rank, 'RANK_STALLED', message);
    }
  }

  /**
   * The deadline is for joining. A rank that loads may take its time: it says Loading every second and
   * its heartbeats prove that it lives, so only the size of the model and the disk decide.
   */
  private async awaitLoaded(deadline: number): Promise<void> {
    const { roster } = this.given;
    const isLoaded = ({ state }: Member) => state === 'loaded';
    const done = () => this.interrupted || roster.members.every(isLoaded);
    let inTime = await roster.changed.until(done, deadline);
    const isOnItsWay = ({ state }: Member) => state === 'loaded' || state === 'loading';
    if (!inTime && roster.members.every(isOnItsWay)) {
      const stuck = () => done() || !roster.members.every(isOnItsWay);
      await roster.changed.until(stuck, performance.now() + LOAD_MS_MAX);
      inTime = done();
    }
    this.throwIfInterrupted();
    if (!inTime) throw this.joinTimeout('loaded its share');
  }

  private async awaitReady(epoch: number): Promise<void> {
    const { roster } = this.given;
    const broken = () =>
      roster.members.find(({ occupant }) => occupant === null || occupant.failure?.epoch === epoch);
    const isReady = ({ occupant }: Member) => occupant?.readyEpoch === epoch;
    const done = () => this.interrupted || broken() !== undefined || roster.members.every(isReady);
    const inTime = await roster.changed.until(done, performance.now() + READY_MS);
    this.throwIfInterrupted();
    const culprit = broken();
    if (culprit !== undefined) {
      const { occupant, label } = culprit;
      const { code, message } = occupant?.failure ?? {
        code: 'RANK_LOST' as const,
        message: `${label} was lost while epoch ${epoch} opened`,
      };
      throw new CoxswainError(code, message);
    }
    if (inTime) return;
    const late = roster.members.filter((member) => !isReady(member));
    for (const { rank } of late) {
      roster.lose(rank, 'RANK_STALLED', `it was not ready in epoch ${epoch} within ${READY_MS} ms`);
    }
    const names = late.map(({ label }) => label).join(', ');
    throw new CoxswainError('RANK_STALLED', `${names}: not ready in epoch ${epoch} in time.`);
  }

  private get interrupted(): boolean {
    return this.fatal !== null || this.stop.signal.aborted;
  }

  private throwIfInterrupted(): void {
    if (this.fatal !== null) throw this.fatal;
    if (this.stop.signal.aborted) {
      throw new CoxswainError('SHUTTING_DOWN', 'The cluster was told to end while it started.');
    }
  }

  private async giveUp(error: CoxswainError): Promise<void> {
    const { code, message } = error;
    if (this.stateNow !== 'failed') {
      this.become('failed', message);
      this.given.dispatch({ type: 'cluster-failed', code, message });
    }
    await sleep(SLOW_RETRY_MS, undefined, { signal: this.stop.signal }).catch(() => undefined);
    this.fatal = null;
    this.given.supervisor?.forgive();
  }

  private layOut(): ClusterLayout {
    const { roster, plan, options, model } = this.given;
    const hosts = roster.members.map(({ rank, occupant }) => {
      const { hostId, host, cores, memoryBytes, threads } = present(
        occupant,
        'all ranks joined before the layout',
      ).hello;
      return { rank, hostId, host, cores, memoryBytes, threads };
    });
    const { threads, kvBytes, slots } = options;
    const layout = layOut(hosts, plan, { threads, kvBytes, slots, context: model.context });
    this.given.log.info(
      { kv_blocks: layout.kvBlocks, threads: layout.threads, share_cores: layout.shareCores },
      'cluster laid out',
    );
    return layout;
  }

  private assignmentOf(member: Member): Assign {
    const { options, plan } = this.given;
    const layout = present(this.layout, 'ranks are assigned after the layout');
    const { topology } = options;
    return {
      rank: member.rank,
      topology: {
        split: [...topology.split],
        pp: topology.pp,
        layerFirst: topology.layers.map(([first]) => first),
        layerLast: topology.layers.map(([, last]) => last),
        kvType: topology.kvType,
        exact: topology.exact,
        context: topology.context,
      },
      planHash: plan.hash,
      kvBlocks: layout.kvBlocks,
      slotsMax: options.slots,
      stepRowsMax: options.stepRowsMax,
      threads: layout.threads[member.rank] ?? 1,
      shareCores: layout.shareCores[member.rank] ?? false,
      heartbeatAddress: this.given.heartbeatAddress(),
      transport: options.transport,
    };
  }

  private limits(): CoreLimits {
    const { options, plan, model } = this.given;
    return {
      slots: options.slots,
      kvBlocks: this.kvBlocks,
      context: model.context,
      stages: plan.pp,
      rankCount: plan.ranks.length,
      stepRowsMax: options.stepRowsMax,
      queueMax: options.queueMax,
      liveReuse: options.liveReuse,
    };
  }

  private joinTimeout(what: string): CoxswainError {
    const { roster } = this.given;
    const missing = roster.members.filter(({ state }) => state !== 'loaded');
    const names = missing.map(({ label, state }) => `${label} (${state})`).join(', ');
    return new CoxswainError(
      'JOIN_TIMEOUT',
      `Not every rank has ${what} in time; missing: ${names}.`,
    );
  }

  private become(state: ClusterState, reason: string): void {
    if (this.stateNow === state) return;
    assert(this.stateNow !== 'closing', 'a closing cluster stays closing');
    this.given.log.info({ from: this.stateNow, to: state, reason }, 'cluster state');
    this.stateNow = state;
  }
}

function linkedRank(member: Member): LinkedRank {
  const { occupant, rank } = member;
  const hello = occupant?.hello;
  return {
    rank,
    hostId: hello?.hostId ?? '',
    dataHost: hello?.dataHost ?? '',
    dataPort: occupant?.loaded?.dataPort ?? 0,
    framesPort: occupant?.loaded?.framesPort ?? 0,
  };
}
