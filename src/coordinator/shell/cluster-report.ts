// The cluster in figures: the body of GET /v1/cluster (its form is a promise: add, never change) and the
// coordinator's part of /metrics. Reads, owns nothing but the metric objects.
import { Gauge, Registry } from 'prom-client';
import type { Plan } from '../../base/addon.ts';
import type { CoreStatus } from '../core/core.ts';
import type { Member } from './member.ts';

export interface LinkDescription {
  readonly peer: number;
  readonly transport: string;
  readonly interface: string;
  readonly round_trip_us: number;
}

export interface RankDescription {
  readonly rank: number;
  readonly pid: number;
  readonly host: string;
  readonly state: string;
  readonly bytes: number;
  readonly threads: number;
  readonly links: readonly LinkDescription[];
  readonly stage: number;
  readonly isa: string;
  readonly resident_bytes: number;
  readonly collectives: number;
  readonly bytes_sent: number;
  readonly bytes_received: number;
  readonly wait_ms: number;
}

export interface ClusterDescription {
  readonly epoch: number;
  readonly state: string;
  readonly model: { readonly name: string; readonly fingerprint: string };
  readonly plan: {
    readonly tp: number;
    readonly pp: number;
    readonly split: readonly number[];
    readonly layers: readonly (readonly [number, number])[];
    readonly hash: string;
  };
  readonly ranks: readonly RankDescription[];
  readonly slots: { readonly used: number; readonly total: number };
  readonly kv_blocks: { readonly used: number; readonly total: number };
  readonly tokens_per_second: { readonly prefill: number; readonly decode: number };
  readonly cache: {
    readonly prompt_tokens: number;
    readonly cached_tokens: number;
    readonly cached_blocks: number;
  };
  readonly requests: { readonly active: number; readonly waiting: number };
  readonly steps: { readonly done: number; readonly in_flight: number };
  readonly epochs_lost: number;
  readonly preemptions: number;
}

export interface ReportSources {
  readonly plan: Plan;
  readonly split: readonly number[];
  readonly model: { readonly name: string; readonly fingerprint: string };
  readonly members: readonly Member[];
  readonly state: () => string;
  readonly epoch: () => number;
  readonly core: () => CoreStatus;
  readonly prefillPerSecond: () => number;
  readonly decodePerSecond: () => number;
}

export function describeCluster(sources: ReportSources): ClusterDescription {
  const { plan, split, model, members } = sources;
  const status = sources.core();
  return {
    epoch: sources.epoch(),
    state: sources.state(),
    model,
    plan: { tp: plan.tp, pp: plan.pp, split, layers: plan.layers, hash: plan.hash },
    ranks: members.map((member) => describeRank(member, sources.epoch())),
    slots: status.slots,
    kv_blocks: { used: status.kvBlocks.used, total: status.kvBlocks.total },
    tokens_per_second: {
      prefill: sources.prefillPerSecond(),
      decode: sources.decodePerSecond(),
    },
    cache: {
      prompt_tokens: status.promptTokens,
      cached_tokens: status.cachedTokens,
      cached_blocks: status.kvBlocks.cached,
    },
    requests: { active: status.requests, waiting: status.waiting },
    steps: { done: status.stepsDone, in_flight: status.stepsInFlight },
    epochs_lost: status.epochsLost,
    preemptions: status.preemptions,
  };
}

function describeRank(member: Member, epoch: number): RankDescription {
  const { rank, stage, state, occupant } = member;
  const loaded = occupant?.loaded;
  const stats = occupant?.stats;
  return {
    rank,
    pid: occupant?.hello.pid ?? 0,
    host: occupant?.hello.host ?? '',
    state: state === 'loaded' && occupant?.readyEpoch === epoch ? 'ready' : state,
    bytes: (loaded?.weightBytes ?? 0) + (loaded?.kvBytes ?? 0),
    threads: loaded?.threads ?? 0,
    links: (occupant?.links ?? []).map((link) => ({
      peer: link.peer,
      transport: link.transport,
      interface: link.interface,
      round_trip_us: Math.round(link.roundTripUs * 10) / 10,
    })),
    stage,
    isa: loaded?.isa ?? '',
    resident_bytes: stats?.residentBytes ?? loaded?.residentBytes ?? 0,
    collectives: stats?.collectives ?? 0,
    bytes_sent: stats?.bytesSent ?? 0,
    bytes_received: stats?.bytesReceived ?? 0,
    wait_ms: Math.round((stats?.waitNs ?? 0) / 1e6),
  };
}

/** Gauges read when they are scraped. */
export function clusterMetrics(sources: ReportSources): Registry {
  const registry = new Registry();
  const gauge = (name: string, help: string, read: () => number) =>
    new Gauge({
      name: `cox_${name}`,
      help,
      registers: [registry],
      collect() {
        this.set(read());
      },
    });
  gauge('epoch', 'Epoch that is open', sources.epoch);
  gauge('ready', '1 while the cluster serves', () => (sources.state() === 'ready' ? 1 : 0));
  gauge('epochs_lost', 'Epochs ended by a failure', () => sources.core().epochsLost);
  gauge('requests_active', 'Requests admitted and not over', () => sources.core().requests);
  gauge('requests_waiting', 'Requests waiting for a slot', () => sources.core().waiting);
  gauge('slots_used', 'Slots in use', () => sources.core().slots.used);
  gauge('slots_total', 'Slots', () => sources.core().slots.total);
  gauge('kv_blocks_used', 'KV blocks in use', () => sources.core().kvBlocks.used);
  gauge('kv_blocks_cached', 'KV blocks kept for reuse', () => sources.core().kvBlocks.cached);
  gauge('kv_blocks_total', 'KV blocks', () => sources.core().kvBlocks.total);
  gauge('prompt_tokens', 'Prompt tokens admitted', () => sources.core().promptTokens);
  gauge('cached_tokens', 'Prompt tokens that needed no prefill', () => sources.core().cachedTokens);
  gauge('prefill_tokens', 'Rows computed for prompts', () => sources.core().prefillTokens);
  gauge('decode_tokens', 'Rows computed for answers', () => sources.core().decodeTokens);
  gauge('preemptions', 'Sequences put back for lack of blocks', () => sources.core().preemptions);
  gauge('prefill_tokens_per_second', 'Prefill speed while busy', sources.prefillPerSecond);
  gauge('decode_tokens_per_second', 'Decode speed while busy', sources.decodePerSecond);
  return registry;
}
