// The coordinator's words as values of the rank's core: what it assigns, which epoch it opens.
import { assert, present } from '../../base/assert.ts';
import { TRANSPORTS, type Transport } from '../../base/transport.ts';
import type { Assign__Output as Assign } from '../../wire/generated/coxswain/v1/Assign.ts';
import type { Open__Output as Open } from '../../wire/generated/coxswain/v1/Open.ts';
import type { EpochOpening, RankAssignment } from '../core/events.ts';

export function assignmentOf(assign: Assign): RankAssignment {
  const topology = present(assign.topology, 'an assignment has a topology');
  assert(
    TRANSPORTS.includes(assign.transport as Transport),
    'the coordinator knows the transports',
  );
  return {
    rank: assign.rank,
    topology: {
      split: topology.split,
      pp: topology.pp,
      layers: topology.layerFirst.map((first, index) => [
        first,
        present(topology.layerLast[index], 'layer ranges have both ends'),
      ]),
      kvType: topology.kvType === 'f32' ? 'f32' : 'f16',
      exact: topology.exact,
      context: topology.context,
    },
    planHash: assign.planHash,
    kvBlocks: assign.kvBlocks,
    slotsMax: assign.slotsMax,
    stepRowsMax: assign.stepRowsMax,
    threads: assign.threads,
    shareCores: assign.shareCores,
  };
}

export function openingOf(open: Open): EpochOpening {
  return {
    epoch: open.epoch,
    incarnation: open.incarnation,
    links: open.links.map(({ peer, transport, host, port }) => ({
      peer,
      transport: TRANSPORTS.find((name) => name === transport) ?? 'auto',
      host,
      port,
    })),
    firstStep: open.firstStep,
    openTimeoutMs: open.openTimeoutMs,
  };
}
