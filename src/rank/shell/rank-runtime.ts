// A rank at work: turns control messages and engine events into events of RankCore and runs its effects
// through one queue, strictly in order (rank/core/events.ts says which are awaited). Owns the engine, the
// heartbeats, the frames service and the link to the coordinator.
import { present } from '../../base/assert.ts';
import { CoxswainError, toCoxswainError } from '../../base/errors.ts';
import type { EngineFacts, RankEngine } from '../../engine/engine.ts';
import type { Assign__Output as Assign } from '../../wire/generated/coxswain/v1/Assign.ts';
import type { CoordinatorBody__Output as CoordinatorBody } from '../../wire/generated/coxswain/v1/CoordinatorBody.ts';
import type { Hello } from '../../wire/generated/coxswain/v1/Hello.ts';
import { type ClusterKeys, deriveClusterKeys } from '../../wire/keys.ts';
import { PartJoiner, sendInParts } from '../../wire/parts.ts';
import { PROTOCOL_VERSION, type ProvedSession } from '../../wire/proof.ts';
import type { RankAssignment, RankEffect, RankEvent } from '../core/events.ts';
import { RankCore } from '../core/rank-core.ts';
import { assignmentOf, openingOf } from './assignment.ts';
import { CoordinatorLink } from './coordinator-link.ts';
import { type EpochStore, openEpochStore } from './epoch-file.ts';
import { FramesService } from './frames-service.ts';
import { type Heartbeats, startHeartbeats } from './heartbeat.ts';
import { type HostFacts, hostFacts, parseAddress } from './host-facts.ts';
import type { RankDependencies, RankOptions } from './options.ts';

const LOADING_INTERVAL_MS = 1000;
const STATS_INTERVAL_MS = 2000;
const IDLE = { epoch: 0, step: 0, item: 0, busy: false };

export class RankRuntime {
  private readonly options: RankOptions & { readonly dataHost: string };
  private readonly dependencies: RankDependencies;
  private readonly keys: ClusterKeys;
  private readonly link: CoordinatorLink;
  private readonly frames: FramesService;
  private readonly host: HostFacts = hostFacts();
  private readonly heartbeats: Heartbeats;
  private readonly epochs: EpochStore;
  private joiner = new PartJoiner();
  private core: RankCore | null = null;
  private engine: RankEngine | null = null;
  /** The engine once it has loaded: before, there is nothing to ask it. */
  private loaded: RankEngine | null = null;
  /** The latest load, settled either way. One that another assignment overtook is waited for, not reported. */
  private loading: Promise<unknown> = Promise.resolve();
  private assign: Assign | null = null;
  private proved: ProvedSession | null = null;
  private epochMax = 0;
  private framesPort = 0;
  private stopped: boolean = false;
  private failure: CoxswainError | null = null;
  private statsTimer: NodeJS.Timeout | null = null;
  /** Effects run one after the other: each call's effects behind those of the call before. */
  private queue: Promise<void> = Promise.resolve();

  constructor(
    options: RankOptions & { readonly dataHost: string },
    dependencies: RankDependencies,
  ) {
    this.options = options;
    this.dependencies = dependencies;
    this.keys = deriveClusterKeys(options.token);
    this.epochs = openEpochStore(options.stateDir, `rank-${options.rank ?? 'any'}`);
    this.frames = new FramesService(this.keys.data, dependencies.log);
    this.heartbeats = startHeartbeats({
      where: dependencies.heartbeats,
      progress: () => this.loaded?.progress() ?? IDLE,
      onLease: () => this.step({ type: 'lease-expired' }),
    });
    this.link = new CoordinatorLink({
      address: options.join,
      keys: this.keys,
      identity: `${this.host.host} pid ${process.pid}`,
      joinTimeoutMs: options.joinTimeoutMs,
      log: dependencies.log,
      handlers: {
        hello: () => this.hello(),
        onSession: () => {
          this.joiner = new PartJoiner();
          this.step({ type: 'attached' });
        },
        onLost: (reason) => this.step({ type: 'detached', reason }),
        onConnection: (proved) => {
          this.proved = proved;
          this.aimHeartbeats();
        },
        onBody: (body) => this.onBody(body),
      },
    });
  }

  /** Until stop(), the coordinator's Shutdown, or an error that only a person can mend. */
  async run(): Promise<void> {
    try {
      const persisted = await this.epochs.read();
      this.epochMax = persisted.epoch;
      this.core = new RankCore(persisted);
      this.statsTimer = setInterval(() => this.sendStats(), STATS_INTERVAL_MS);
      await this.link.run();
    } finally {
      if (this.statsTimer !== null) clearInterval(this.statsTimer);
      this.stopped = true;
      await this.queue;
      await this.heartbeats.stop();
      await this.frames.close();
      this.loaded = null;
      await this.engine?.close();
    }
    if (this.failure !== null) throw this.failure;
  }

  stop(reason: string): void {
    if (this.core === null) this.link.close(reason);
    else this.step({ type: 'shutdown', reason });
  }

  private step(event: RankEvent): void {
    if (this.stopped) return;
    const effects = present(this.core, 'events come after run()').step(event);
    if (effects.length === 0) return;
    this.queue = this.queue
      .then(async () => {
        for (const effect of effects) await this.execute(effect);
      })
      .catch((thrown) => this.fail(toCoxswainError(thrown)));
  }

  /** An effect that failed (a full disk under the epoch file) leaves nothing to go on with. */
  private fail(error: CoxswainError): void {
    this.failure ??= error;
    this.link.close(error.message);
  }

  private async execute(effect: RankEffect): Promise<void> {
    switch (effect.type) {
      case 'send-hello':
        return; // said already: a connection begins with it, before the core hears of the session
      case 'load-engine':
        this.startLoading(effect.assignment);
        return;
      case 'send-loaded':
        this.sendLoaded(effect.facts, effect.planHash);
        return;
      case 'persist-epoch':
        await this.epochs.write({ epoch: effect.epoch, incarnation: effect.incarnation });
        this.epochMax = effect.epoch;
        return;
      case 'fence-engine':
        this.frames.closeLinks(effect.reason);
        await this.loaded?.fence();
        return;
      case 'open-engine':
        this.startOpening(effect.spec);
        return;
      case 'send-ready':
        this.link.send({ ready: { epoch: effect.epoch, links: [...effect.links] } });
        return;
      case 'submit-step':
        this.submit(effect.record);
        return;
      case 'send-result':
        sendInParts(effect.bytes, (part, more) => {
          const { epoch, step } = effect;
          this.link.send({ result: { epoch, step, result: Buffer.from(part), more } });
        });
        return;
      case 'send-failed': {
        const { epoch, step, code, message } = effect;
        this.link.send({ failed: { epoch, step, code, message } });
        return;
      }
      case 'send-fenced':
        this.link.send({ fenced: { epoch: effect.epoch } });
        return;
      case 'stop':
        this.link.close(effect.reason);
        return;
      case 'log':
        this.dependencies.log[effect.level](effect.fields, effect.message);
        return;
    }
  }

  private onBody(body: CoordinatorBody): void {
    switch (body.kind) {
      case 'assign':
        this.onAssign(present(body.assign, 'kind says assign'));
        return;
      case 'open':
        this.step({
          type: 'open',
          opening: openingOf(present(body.open, 'kind says open')),
        });
        return;
      case 'step': {
        const { epoch, step, record, more } = present(body.step, 'kind says step');
        const whole = this.joiner.add(record, more);
        if (whole !== null) this.step({ type: 'step', epoch, step, record: whole });
        return;
      }
      case 'fence': {
        const { epoch, reason } = present(body.fence, 'kind says fence');
        this.step({ type: 'fence', epoch, reason });
        return;
      }
      case 'shutdown':
        this.step({
          type: 'shutdown',
          reason: present(body.shutdown, 'kind says shutdown').reason,
        });
        return;
      default:
        this.dependencies.log.warn({ kind: body.kind ?? 'none' }, 'unknown message ignored');
    }
  }

  private onAssign(assign: Assign): void {
    this.assign = assign;
    this.aimHeartbeats();
    this.dependencies.onJoined?.(assign.rank);
    this.dependencies.log.info({ rank: assign.rank, plan_hash: assign.planHash }, 'share assigned');
    this.step({ type: 'assign', assignment: assignmentOf(assign) });
  }

  /** The datagrams go to the same host as the control stream, unless the assignment names another. */
  private aimHeartbeats(): void {
    if (this.assign === null || this.proved === null) return;
    const named = parseAddress(this.assign.heartbeatAddress);
    this.heartbeats.aim({
      host: named.host === '' ? parseAddress(this.options.join).host : named.host,
      port: named.port,
      rank: this.assign.rank,
      key: this.proved.heartbeatKey,
    });
  }

  private startLoading(assignment: RankAssignment): void {
    const startedAt = performance.now();
    const timer = setInterval(() => {
      this.link.send({ loading: { seconds: (performance.now() - startedAt) / 1000 } });
    }, LOADING_INTERVAL_MS);
    const load = this.loading.then(() => this.load(assignment));
    const settled = load.catch(() => undefined);
    this.loading = settled;
    load
      .then((facts) => {
        if (this.loading === settled) this.step({ type: 'engine-loaded', facts });
      })
      .catch((thrown) => {
        if (this.loading !== settled) return;
        const { code, message } = toCoxswainError(thrown);
        this.step({ type: 'engine-load-failed', code, message });
      })
      .finally(() => clearInterval(timer));
  }

  private async load(assignment: RankAssignment): Promise<EngineFacts> {
    const { modelPath, threads, dataHost } = this.options;
    this.loaded = null;
    await this.engine?.close();
    if (this.stopped) throw new CoxswainError('SHUTTING_DOWN', 'This rank ends.');
    const engine = this.dependencies.createEngine();
    this.engine = engine;
    engine.onEvent((event) => this.step({ type: 'engine-event', event }));
    engine.onRefused((reason) =>
      this.dependencies.log.warn({ reason }, 'stranger refused on the data port'),
    );
    const facts = await engine.load({
      path: modelPath,
      topology: assignment.topology,
      rank: assignment.rank,
      threads: threads > 0 ? threads : Math.max(1, assignment.threads),
      kvBlocks: assignment.kvBlocks,
      slotsMax: assignment.slotsMax,
      stepRowsMax: assignment.stepRowsMax,
      shareCores: assignment.shareCores,
      dataHost,
    });
    if (facts.planHash !== assignment.planHash) {
      throw new CoxswainError(
        'HANDSHAKE_REFUSED',
        `This rank's plan is ${facts.planHash}, the coordinator's ${assignment.planHash}: ` +
          'run the same Coxswain version everywhere.',
      );
    }
    this.loaded = engine;
    if (this.assign?.transport === 'grpc') this.framesPort = await this.frames.listen(dataHost);
    return facts;
  }

  private startOpening(spec: Extract<RankEffect, { type: 'open-engine' }>['spec']): void {
    const engine = present(this.loaded, 'the core opens epochs on a loaded engine');
    const open = async () => {
      await this.frames.open(spec, engine.grpc);
      return engine.openEpoch({ ...spec, dataKey: this.keys.data });
    };
    open()
      .then((links) => this.step({ type: 'engine-opened', epoch: spec.epoch, links }))
      .catch((thrown) => {
        const { code, message } = toCoxswainError(thrown);
        this.step({ type: 'engine-open-failed', epoch: spec.epoch, code, message });
      });
  }

  private submit(record: Uint8Array): void {
    const engine = present(this.loaded, 'the core submits steps to an open engine');
    try {
      engine.submit(record);
    } catch (thrown) {
      const { code, message } = toCoxswainError(thrown);
      const { epoch, step } = engine.progress();
      this.step({ type: 'engine-event', event: { kind: 'failed', epoch, step, code, message } });
    }
  }

  private sendLoaded(facts: EngineFacts, planHash: string): void {
    const { numericsId, isa, weightBytes, kvBytes, residentBytes, vocab, context } = facts;
    const { options, framesPort, assign } = this;
    this.link.send({
      loaded: {
        planHash,
        numericsId,
        isa,
        weightBytes,
        kvBytes,
        residentBytes,
        vocab,
        context,
        loadMs: facts.loadMs,
        dataPort: facts.dataPort,
        threads: options.threads > 0 ? options.threads : Math.max(1, assign?.threads ?? 1),
        framesPort,
      },
    });
  }

  private sendStats(): void {
    if (this.loaded === null) return;
    const { epoch, step, busy } = this.loaded.progress();
    if (epoch === 0) return;
    const counters = this.loaded.counters();
    const residentBytes = process.memoryUsage.rss();
    this.link.send({ stats: { epoch, ...counters, residentBytes, steps: busy ? step - 1 : step } });
  }

  private hello(): Hello {
    const { identity } = this.dependencies;
    return {
      protocol: PROTOCOL_VERSION,
      buildId: identity.buildId,
      numericsContract: identity.numericsContract,
      fingerprint: identity.fingerprint,
      ...this.host,
      dataHost: this.options.dataHost,
      pid: process.pid,
      wantedRank: this.options.rank ?? -1,
      epochMax: this.epochMax,
      threads: this.options.threads,
    };
  }
}
