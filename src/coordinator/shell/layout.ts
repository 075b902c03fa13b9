// Threads and memory of each rank from what the ranks said of their hosts: pure. The number of KV blocks
// is the same in every rank (the coordinator allots them by number), so the least able rank decides.

import type { Plan } from '../../base/addon.ts';
import { CoxswainError } from '../../base/errors.ts';
import { KV_BLOCK_TOKENS } from '../../base/step-record.ts';

/** Of what a host has left beside the weights, the part that KV caches may take unasked. */
const MEMORY_SHARE = 0.25;
/**
 * Unasked, so many slots get a full context; short sessions share the same blocks among more. Blocks are
 * touched when a rank loads, so that more of them would only make every start slower.
 */
const FULL_CONTEXTS_MAX = 8;
export interface RankHost {
  readonly rank: number;
  readonly hostId: string;
  readonly host: string;
  readonly cores: number;
  /** Available when the rank said Hello. */
  readonly memoryBytes: number;
  /** The rank's own wish; 0: none. */
  readonly threads: number;
}

export interface LayoutWishes {
  readonly threads: number;
  readonly kvBytes: number | null;
  readonly slots: number;
  readonly context: number;
}

export interface ClusterLayout {
  readonly kvBlocks: number;
  readonly threads: readonly number[];
  readonly shareCores: readonly boolean[];
}

/** @throws CoxswainError MEMORY_EXHAUSTED when not even one block fits. */
export function layOut(
  hosts: readonly RankHost[],
  plan: Plan,
  wishes: LayoutWishes,
): ClusterLayout {
  const threads = hosts.map((host) => threadsOf(host, hosts, wishes));
  return {
    threads,
    shareCores: hosts.map((host) => {
      const onHost = hosts.filter((other) => other.hostId === host.hostId);
      const threadsOnHost = onHost.reduce((sum, other) => sum + (threads[other.rank] ?? 1), 0);
      return threadsOnHost > host.cores;
    }),
    kvBlocks: Math.min(...hosts.map((host) => kvBlocksOf(host, hosts, plan, wishes))),
  };
}

function threadsOf(host: RankHost, hosts: readonly RankHost[], wishes: LayoutWishes): number {
  if (host.threads > 0) return host.threads;
  if (wishes.threads > 0) return wishes.threads;
  const onHost = hosts.filter((other) => other.hostId === host.hostId).length;
  return Math.max(1, Math.floor(host.cores / onHost));
}

function kvBlocksOf(
  host: RankHost,
  hosts: readonly RankHost[],
  plan: Plan,
  wishes: LayoutWishes,
): number {
  const slots = wishes.kvBytes === null ? Math.min(wishes.slots, FULL_CONTEXTS_MAX) : wishes.slots;
  const full = slots * Math.ceil(wishes.context / KV_BLOCK_TOKENS);
  const share = plan.ranks[host.rank];
  if (share === undefined || share.kv_bytes_per_token === 0) return full;
  const blockBytes = share.kv_bytes_per_token * KV_BLOCK_TOKENS;
  const blocks = Math.min(full, Math.floor(kvBudget(host, hosts, plan, wishes) / blockBytes));
  if (blocks >= 1) return blocks;
  throw new CoxswainError(
    'MEMORY_EXHAUSTED',
    `Rank ${host.rank} on ${host.host} has no room for a KV cache: one block of ${KV_BLOCK_TOKENS} ` +
      `tokens takes ${blockBytes} bytes. Free memory, add ranks, or give --kv-mem.`,
  );
}

function kvBudget(
  host: RankHost,
  hosts: readonly RankHost[],
  plan: Plan,
  wishes: LayoutWishes,
): number {
  if (wishes.kvBytes !== null) return wishes.kvBytes;
  const onHost = hosts.filter((other) => other.hostId === host.hostId);
  const weights = onHost.reduce((sum, { rank }) => sum + (plan.ranks[rank]?.weight_bytes ?? 0), 0);
  return Math.max(0, (host.memoryBytes - weights) * MEMORY_SHARE) / onHost.length;
}
