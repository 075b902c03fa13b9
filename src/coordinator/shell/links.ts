// Which ranks talk to which, and how: pure. Ranks that never talk have no link. A pair is linked when it
// is in one stage (collectives), in adjacent stages with the same TP index (activations), or when one of
// it is the leader of the last stage (its verdicts go to every rank of the first stage, and all ranks
// receive all ids).
import type { Plan } from '../../base/addon.ts';
import type { Transport } from '../../base/transport.ts';

export interface LinkedRank {
  readonly rank: number;
  /** Equal for ranks that can share memory. */
  readonly hostId: string;
  readonly dataHost: string;
  readonly dataPort: number;
  readonly framesPort: number;
}

export interface OpenLink {
  readonly peer: number;
  readonly transport: Transport;
  readonly host: string;
  readonly port: number;
}

/** Pairs with the lower rank first, ascending. */
export function linkedPairs(plan: Plan): (readonly [lower: number, higher: number])[] {
  const leader = (plan.pp - 1) * plan.tp;
  const pairs: [number, number][] = [];
  for (const a of plan.ranks) {
    for (const b of plan.ranks) {
      if (a.rank >= b.rank) continue;
      const sameStage = a.stage === b.stage;
      const adjacent = Math.abs(a.stage - b.stage) === 1 && a.tp_index === b.tp_index;
      if (sameStage || adjacent || a.rank === leader || b.rank === leader) {
        pairs.push([a.rank, b.rank]);
      }
    }
  }
  return pairs;
}

/** The links that `rank` opens: both ends of a pair are told of each other. */
export function linksOf(
  rank: LinkedRank,
  ranks: readonly LinkedRank[],
  plan: Plan,
  transport: Transport,
): OpenLink[] {
  const links: OpenLink[] = [];
  for (const [lower, higher] of linkedPairs(plan)) {
    if (lower !== rank.rank && higher !== rank.rank) continue;
    const peer = ranks.find((other) => other.rank === (lower === rank.rank ? higher : lower));
    if (peer === undefined) continue;
    links.push({
      peer: peer.rank,
      transport: transportBetween(rank, peer, transport),
      host: peer.dataHost,
      port: transport === 'grpc' ? peer.framesPort : peer.dataPort,
    });
  }
  return links;
}

/** One sentence when the wished transport cannot join these ranks, else null. */
export function transportRefusal(
  ranks: readonly LinkedRank[],
  plan: Plan,
  transport: Transport,
): string | null {
  if (transport !== 'shm') return null;
  for (const [lower, higher] of linkedPairs(plan)) {
    const a = ranks.find(({ rank }) => rank === lower);
    const b = ranks.find(({ rank }) => rank === higher);
    if (a && b && a.hostId !== b.hostId) {
      return (
        `Ranks ${lower} and ${higher} share no memory, so --transport shm cannot join them: ` +
        'use auto, tcp or grpc.'
      );
    }
  }
  return null;
}

/** Between hosts there is nothing for `auto` to try but tcp. */
function transportBetween(a: LinkedRank, b: LinkedRank, transport: Transport): Transport {
  return transport === 'auto' && a.hostId !== b.hostId ? 'tcp' : transport;
}
