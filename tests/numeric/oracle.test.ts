// Every oracle model on every topology, transports in rotation (each pair of factors occurs), or all
// three factors in full with COX_MATRIX=all. Float activations and F32 cache, as the oracle used.
import { describe, expect, it } from 'vitest';
import { present } from '../../src/base/assert.ts';
import type { Transport } from '../../src/base/transport.ts';
import type { Topology } from '../../src/engine/engine.ts';
import { type Cluster, idOf, oracleModel, Session, withCluster } from './driver.ts';
import {
  clearGreedyCount,
  expectPrompt,
  type OracleCase,
  type OracleVectors,
  oracleVectors,
} from './oracle-case.ts';

const QUANTISED =
  'q8_0 q4_0 q4_1 q5_0 q5_1 q2_k q3_k q4_k q5_k q6_k iq2_xxs iq3_xxs iq4_nl iq4_xs q4_k_m';
const MODELS = [
  'llama',
  'qwen2',
  'qwen3',
  'llama-q',
  'llama-q.f16',
  'llama-q.bf16',
  ...QUANTISED.split(' ').map((type) => `llama-q.${type}`),
];
const TOPOLOGIES: Record<string, Partial<Topology>> = {
  'one rank': {},
  'TP 2': { split: [1, 1] },
  'TP 3, uneven': { split: [2, 1, 1] },
  'PP 2': { pp: 2 },
  'TP 2 x PP 2': { split: [1, 1], pp: 2 },
};
const TRANSPORTS: readonly Transport[] = ['shm', 'tcp', 'grpc'];

const combinations = MODELS.flatMap((model, row) =>
  Object.entries(TOPOLOGIES).flatMap(([name, topology], column) => {
    if (name === 'one rank') return [{ model, name, topology, transport: 'auto' as Transport }];
    const transports =
      process.env['COX_MATRIX'] === 'all'
        ? TRANSPORTS
        : [present(TRANSPORTS[(row + column) % TRANSPORTS.length], 'a transport')];
    return transports.map((transport) => ({ model, name, topology, transport }));
  }),
);

async function agrees(
  cluster: Cluster,
  slot: number,
  { vectors, reference }: { vectors: OracleVectors; reference: OracleCase },
): Promise<void> {
  const { prompt, greedy } = reference;
  const tokensMax = prompt.length + greedy.tokens.length;
  const session = await Session.create(cluster, { slot, tokensMax });
  const logits = await session.feed(prompt);
  expectPrompt(reference, vectors.sampleIds, logits);
  await session.truncate(prompt.length - 1);
  const last = present(prompt.at(-1), 'a prompt has tokens');
  const generated = await session.generate(last, greedy.tokens.length);
  const clear = clearGreedyCount(reference);
  expect(generated.map(idOf).slice(0, clear)).toEqual(greedy.tokens.slice(0, clear));
}

describe('the logits of llama.cpp', () => {
  const titled = combinations.map(
    (one) => [`${one.model}, ${one.name}, ${one.transport}`, one] as const,
  );
  it.each(titled)('%s', async (_title, { model, topology, transport }) => {
    const vectors = oracleVectors(model);
    await withCluster({ model: oracleModel(model), topology, transport }, async (cluster) => {
      for (const [slot, reference] of vectors.cases.entries()) {
        await agrees(cluster, slot, { vectors, reference });
      }
    });
  });
});
