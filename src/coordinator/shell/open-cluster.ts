// Puts a cluster together and takes it apart: control port, heartbeat monitor, roster, supervisor,
// lifecycle, core, generation front. Nothing here decides; each part owns its own state.
import { randomBytes } from 'node:crypto';
import type { Backend, InferenceRequest } from '../../api/backend.ts';
import type { Plan } from '../../base/addon.ts';
import { CoxswainError, toCoxswainError } from '../../base/errors.ts';
import type { StepResult } from '../../base/step-record.ts';
import { isLoopback } from '../../config/derive.ts';
import { type ControlServer, listenControl } from '../../wire/control-server.ts';
import { deriveClusterKeys, generateClusterToken } from '../../wire/keys.ts';
import { CoordinatorCore } from '../core/core.ts';
import {
  type ClusterDescription,
  clusterMetrics,
  describeCluster,
  type ReportSources,
} from './cluster-report.ts';
import { CoreDriver } from './core-driver.ts';
import { generate } from './generation.ts';
import { type HeartbeatMonitor, startHeartbeatMonitor } from './heartbeat-monitor.ts';
import type { Verdict } from './heartbeat-watch.ts';
import { Lifecycle } from './lifecycle.ts';
import type { ClusterDependencies, ClusterOptions } from './options.ts';
import { Roster } from './roster.ts';
import {
  type GenerateTokensOptions,
  generateTokens,
  type ScoredPosition,
  type ScoreOptions,
  score,
} from './scoring.ts';
import { StepTraffic } from './step-traffic.ts';
import { Supervisor } from './supervisor.ts';
import { Throughput } from './throughput.ts';

const SAMPLE_MS = 500;
const DRAIN_MS = 5000;
const GOODBYE_MS = 5000;

/** A running cluster. */
export interface Cluster {
  /** For the HTTP layer. */
  readonly backend: Backend;
  readonly plan: Plan;
  readonly controlPort: number;
  /** Tokens that one sequence may reach, prompt and answer together. */
  readonly contextTokens: number;
  readonly kvBlocks: number;
  /** Who fills the ranks now; pid 0: nobody. */
  ranks(): readonly { readonly rank: number; readonly pid: number }[];
  /** The body of GET /v1/cluster. */
  describe(): ClusterDescription;
  /** Teacher-forced scores, in order of position. */
  score(options: ScoreOptions, signal?: AbortSignal): AsyncIterable<ScoredPosition>;
  /** Raw generation: ids as they are accepted. */
  generateTokens(options: GenerateTokensOptions, signal?: AbortSignal): AsyncIterable<number>;
  /** Time a step took beside arithmetic and waiting, in microseconds, latest last (at most 1,024). */
  stepOverheadsUs(): readonly number[];
  /** Lets running requests end for a moment, ends all ranks, closes everything. Idempotent. */
  close(): Promise<void>;
}

/**
 * Resolves when the cluster is ready to compute. Aborting `signal` ends the start (and nothing later).
 * @throws CoxswainError PLAN_IMPOSSIBLE (the planner's sentence), JOIN_TIMEOUT, HANDSHAKE_REFUSED,
 * CONFIG_INVALID, or whatever a rank could not load; nothing is left running then.
 */
export async function openClusterWith(
  options: ClusterOptions,
  dependencies: ClusterDependencies,
  signal: AbortSignal,
): Promise<Cluster> {
  const { plan } = dependencies;
  if (plan.refused !== null) throw new CoxswainError('PLAN_IMPOSSIBLE', plan.refused);
  const cluster = new RunningCluster(options, dependencies, tokenOf(options));
  const stop = () => void cluster.close();
  signal.addEventListener('abort', stop, { once: true });
  try {
    signal.throwIfAborted();
    await cluster.start();
    return cluster;
  } catch (thrown) {
    await cluster.close();
    throw toCoxswainError(thrown);
  } finally {
    signal.removeEventListener('abort', stop);
  }
}

function tokenOf({ token, ranks, listenHost }: ClusterOptions): string {
  if (token !== null) return token;
  if (ranks === 'local' && isLoopback(listenHost)) return generateClusterToken();
  throw new CoxswainError(
    'CONFIG_INVALID',
    'Ranks that join from elsewhere need a cluster token: set COX_CLUSTER_TOKEN or --token-file, ' +
      'the same for every process.',
  );
}

class RunningCluster implements Cluster {
  readonly backend: Backend;
  readonly plan: Plan;
  private readonly options: ClusterOptions;
  private readonly dependencies: ClusterDependencies;
  private readonly token: string;
  private readonly incarnation = randomBytes(16).toString('hex');
  private readonly core: CoordinatorCore;
  private readonly driver: CoreDriver;
  private readonly roster: Roster;
  private readonly supervisor: Supervisor | null;
  private readonly lifecycle: Lifecycle;
  private readonly report: ReportSources;
  private readonly traffic: StepTraffic;
  private readonly prefillRate = new Throughput();
  private readonly decodeRate = new Throughput();
  private server: ControlServer | null = null;
  private monitor: HeartbeatMonitor | null = null;
  private sampler: NodeJS.Timeout | null = null;
  private closing: Promise<void> | null = null;

  constructor(options: ClusterOptions, dependencies: ClusterDependencies, token: string) {
    const { plan, model, log } = dependencies;
    this.options = options;
    this.dependencies = dependencies;
    this.token = token;
    this.plan = plan;
    this.core = new CoordinatorCore({ queueMax: options.queueMax });
    this.driver = new CoreDriver({
      core: this.core,
      log,
      sendStep: (record) => this.traffic.send(record, this.lifecycle.epoch),
      openEpoch: (reason) => void this.lifecycle.recover(reason),
    });
    this.roster = this.makeRoster();
    this.traffic = new StepTraffic({
      roster: this.roster,
      leader: (plan.pp - 1) * plan.tp,
      onStallLimit: (ms) => this.monitor?.request({ type: 'stall-limit', ms }),
    });
    this.supervisor = options.ranks === 'local' ? this.makeSupervisor() : null;
    this.lifecycle = new Lifecycle({
      options,
      plan,
      model,
      incarnation: this.incarnation,
      roster: this.roster,
      supervisor: this.supervisor,
      heartbeatAddress: () => `:${this.monitor?.port ?? 0}`,
      dispatch: (event) => {
        if (event.type === 'epoch-ready') this.traffic.forget();
        this.driver.dispatch(event);
      },
      log,
    });
    this.report = {
      plan,
      split: options.topology.split,
      model: { name: options.modelName, fingerprint: model.fingerprint },
      members: this.roster.members,
      state: () => this.lifecycle.state,
      epoch: () => this.lifecycle.epoch,
      core: () => this.core.status,
      prefillPerSecond: () => this.prefillRate.perSecond,
      decodePerSecond: () => this.decodeRate.perSecond,
    };
    this.backend = this.makeBackend();
  }

  get controlPort(): number {
    return this.server?.port ?? 0;
  }

  get contextTokens(): number {
    return this.lifecycle.contextTokens;
  }

  get kvBlocks(): number {
    return this.lifecycle.kvBlocks;
  }

  async start(): Promise<void> {
    const { listenHost, listenPort, onListening } = this.options;
    const { log, heartbeats } = this.dependencies;
    this.server = await listenControl({
      host: listenHost,
      port: listenPort,
      keys: deriveClusterKeys(this.token),
      clusterId: this.incarnation,
      log,
      onChannel: (channel) => this.roster.attach(channel),
    });
    this.monitor = await startHeartbeatMonitor({
      where: heartbeats,
      host: listenHost,
      port: this.server.port,
      onVerdict: (verdict) => this.onVerdict(verdict),
    });
    const { port } = this.server;
    log.info({ host: listenHost, port, heartbeat_port: this.monitor.port }, 'control port open');
    onListening?.({ host: listenHost, port });
    this.sampler = setInterval(() => this.sampleRates(), SAMPLE_MS);
    await this.lifecycle.start();
  }

  ranks(): { rank: number; pid: number }[] {
    return this.roster.members.map(({ rank, occupant }) => ({
      rank,
      pid: this.supervisor?.pid(rank) ?? occupant?.hello.pid ?? 0,
    }));
  }

  describe(): ClusterDescription {
    return describeCluster(this.report);
  }

  score(
    options: ScoreOptions,
    signal = new AbortController().signal,
  ): AsyncIterable<ScoredPosition> {
    return score(options, this.dependencies.model.vocab, this.driver, signal);
  }

  generateTokens(
    options: GenerateTokensOptions,
    signal = new AbortController().signal,
  ): AsyncIterable<number> {
    return generateTokens(options, this.driver, signal);
  }

  stepOverheadsUs(): readonly number[] {
    return this.traffic.overheadsUs;
  }

  close(): Promise<void> {
    this.closing ??= this.closeAll();
    return this.closing;
  }

  private async closeAll(): Promise<void> {
    this.driver.dispatch({ type: 'drain' });
    const drainUntil = performance.now() + DRAIN_MS;
    while (this.lifecycle.state === 'ready' && this.driver.requestCount > 0) {
      if (performance.now() > drainUntil) break;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    this.lifecycle.close();
    this.roster.beginClosing();
    this.supervisor?.beginClosing();
    if (this.driver.requestCount > 0) {
      const code = 'SHUTTING_DOWN' as const;
      const message = 'The cluster is shutting down.';
      this.driver.dispatch({ type: 'cluster-failed', code, message });
    }
    for (const member of this.roster.members) {
      this.roster.send(member, { shutdown: { reason: 'the cluster ends' } });
    }
    const allGone = () => this.roster.members.every(({ occupant }) => occupant === null);
    await this.roster.changed.until(allGone, performance.now() + GOODBYE_MS);
    for (const { rank } of this.roster.members) {
      this.roster.lose(rank, 'SHUTTING_DOWN', 'the cluster ends');
    }
    await this.supervisor?.close();
    if (this.sampler !== null) clearInterval(this.sampler);
    this.driver.close();
    await this.monitor?.stop();
    await this.server?.close();
    await this.dependencies.codec.close();
    this.dependencies.log.info({}, 'cluster closed');
  }

  private makeRoster(): Roster {
    const { plan, model, log } = this.dependencies;
    return new Roster({
      plan,
      model,
      log,
      events: {
        onAssigned: ({ rank, stage }, key) =>
          this.monitor?.request({ type: 'watch', rank, stage, key }),
        onResumed: ({ rank }, key) => this.monitor?.request({ type: 'rekey', rank, key }),
        onLost: (rank, code, message) => {
          this.monitor?.request({ type: 'unwatch', rank });
          this.lifecycle.onLost(rank, code, message);
        },
        onFailed: (rank, epoch, code, message) =>
          this.lifecycle.onFailed(rank, epoch, code, message),
        onLoadFailed: (_rank, code, message) =>
          this.lifecycle.onHopeless(new CoxswainError(code, message)),
        onResult: (rank, bytes) => this.onResult(rank, bytes),
      },
    });
  }

  private makeSupervisor(): Supervisor {
    const { launch, log, plan } = this.dependencies;
    const { modelPath, threads, listenHost } = this.options;
    const host = listenHost.includes(':') ? `[${listenHost}]` : listenHost;
    return new Supervisor({
      count: plan.ranks.length,
      log,
      launch: (rank) =>
        launch({
          rank,
          join: `${host}:${this.controlPort}`,
          modelPath,
          token: this.token,
          threads,
          log,
        }),
      onExit: (rank, sentence, hopeless) => {
        this.roster.lose(rank, 'RANK_LOST', sentence);
        if (!hopeless) return;
        const message = `Rank ${rank} cannot be kept running: ${sentence}.`;
        this.lifecycle.onHopeless(new CoxswainError('RANK_LOST', message));
      },
    });
  }

  private makeBackend(): Backend {
    const { options, dependencies, driver, lifecycle } = this;
    const { model, codec } = dependencies;
    const metrics = clusterMetrics(this.report);
    const generation = {
      codec,
      driver,
      contextTokens: () => this.contextTokens,
      checkReady: () => this.checkReady(),
    };
    return {
      models: () => [
        {
          id: options.modelName,
          createdSeconds: model.createdSeconds,
          contextTokens: this.contextTokens,
        },
      ],
      infer: (request: InferenceRequest, signal: AbortSignal) =>
        generate(request, generation, signal),
      health: () => ({ ok: lifecycle.state === 'ready', state: lifecycle.state }),
      cluster: () => Promise.resolve({ ...this.describe() }),
      metrics: () => metrics.metrics(),
    };
  }

  private checkReady(): void {
    const { state } = this.lifecycle;
    if (state === 'closing') {
      throw new CoxswainError('SHUTTING_DOWN', 'The cluster is shutting down.', {
        retryAfterSeconds: 5,
      });
    }
    if (state === 'failed') {
      throw new CoxswainError('CLUSTER_NOT_READY', 'The cluster lost a rank and is not back yet.', {
        retryAfterSeconds: 10,
      });
    }
  }

  private onResult(rank: number, bytes: Uint8Array): void {
    let result: StepResult | null;
    try {
      result = this.traffic.take(rank, bytes, this.lifecycle.epoch);
    } catch (thrown) {
      this.roster.lose(rank, 'STEP_INVALID', toCoxswainError(thrown).message);
      return;
    }
    if (result !== null) this.driver.dispatch({ type: 'step-result', rank, result });
  }

  private onVerdict(verdict: Verdict): void {
    const { rank, ms } = verdict;
    if (verdict.kind === 'silent') {
      this.roster.lose(rank, 'RANK_LOST', `it was silent for ${ms} ms`);
      return;
    }
    const { epoch, step, item } = verdict;
    const where = `epoch ${epoch}, step ${step}, item ${item}`;
    this.roster.lose(rank, 'RANK_STALLED', `it made no progress for ${ms} ms (${where})`);
  }

  private sampleRates(): void {
    const { prefillTokens, decodeTokens } = this.core.status;
    const now = performance.now();
    this.prefillRate.sample(prefillTokens, now);
    this.decodeRate.sample(decodeTokens, now);
  }
}
