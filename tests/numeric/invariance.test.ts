// Invariance (a row's value depends on its own inputs, its position and the weights): the logits of one
// token sequence, computed in many ways, are equal in every bit.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { nativeExport } from '../../src/base/addon.ts';
import { present } from '../../src/base/assert.ts';
import { createPrng } from '../../src/base/prng.ts';
import type { Output, Run } from '../../src/base/step-record.ts';
import { KV_BLOCK_TOKENS } from '../../src/base/step-record.ts';
import type { Topology } from '../../src/engine/engine.ts';
import {
  type Cluster,
  type ClusterOptions,
  logitsOf,
  oracleModel,
  Session,
  withCluster,
} from './driver.ts';

/** Kernel sets of this architecture; what the processor lacks is skipped by name. */
const ISAS = process.arch === 'arm64' ? ['scalar', 'neon'] : ['scalar', 'avx2', 'avx512'];
const { available } = nativeExport<() => { readonly available: readonly string[] }>('host')();

const VOCAB = 512;
const LENGTH = 300; // more than one KV block

interface Subject {
  readonly title: string;
  readonly model: string;
  readonly topology: Partial<Topology>;
}

const SUBJECTS: readonly Subject[] = [
  {
    title: 'int8 activations, F16 cache',
    model: 'llama-q.q4_k_m',
    topology: { exact: false, kvType: 'f16' },
  },
  {
    title: 'int8 activations with minima, F32 cache',
    model: 'llama-q.q4_1',
    topology: { exact: false, kvType: 'f32' },
  },
  { title: 'F32 weights, F16 cache', model: 'qwen3', topology: { exact: false, kvType: 'f16' } },
  { title: 'F16 weights, F32 cache', model: 'llama-q.f16', topology: { kvType: 'f32' } },
  { title: 'biases, dequantised weights', model: 'qwen2', topology: { exact: true } },
];

function randomTokens(seed: number, count: number): number[] {
  const prng = createPrng(seed);
  return Array.from({ length: count }, () => prng.below(VOCAB));
}

const TOKENS = randomTokens(1, LENGTH);

function bitsOf(logits: readonly Float32Array[]): Buffer {
  return Buffer.concat(
    logits.map((row) => Buffer.from(row.buffer, row.byteOffset, row.byteLength)),
  );
}

function expectSameBits(got: readonly Float32Array[], wanted: readonly Float32Array[]): void {
  expect(got.length).toBe(wanted.length);
  const differing = got.findIndex(
    (row, index) => !bitsOf([row]).equals(bitsOf([present(wanted[index], 'as many rows')])),
  );
  expect({ firstDifferingRow: differing }).toEqual({ firstDifferingRow: -1 });
}

async function logitsWith(
  options: ClusterOptions,
  chunk: number,
  isa?: string,
): Promise<Float32Array[]> {
  return await withCluster(options, async (cluster) => {
    if (isa !== undefined) expect(cluster.facts[0]?.isa).toBe(isa);
    const session = await Session.create(cluster, { slot: 0, tokensMax: LENGTH });
    return await session.feed(TOKENS, chunk);
  });
}

/** Feeds the tokens in a batch with two other sessions, all cut at random. */
async function logitsAmongOthers(cluster: Cluster): Promise<Float32Array[]> {
  const prng = createPrng(9);
  const feeds = [TOKENS, randomTokens(2, LENGTH), randomTokens(3, LENGTH)];
  const sessions: Session[] = [];
  for (const slot of feeds.keys()) {
    sessions.push(await Session.create(cluster, { slot, tokensMax: LENGTH }));
  }
  const subject = present(sessions[0], 'the subject');
  const logits: Float32Array[] = [];
  while (subject.tokens.length < LENGTH) {
    const runs: Run[] = [];
    const outputs: Output[] = [];
    let rows = 0;
    const order = prng.chance(0.5) ? [0, 1, 2] : [2, 0, 1];
    for (const index of order) {
      const session = present(sessions[index], 'a session');
      const at = session.tokens.length;
      const part = present(feeds[index], 'its tokens').slice(at, at + 1 + prng.below(40));
      const wanted = session === subject ? part : [];
      if (part.length > 0) runs.push(session.run(part));
      outputs.push(...wanted.map((_, row): Output => ({ row: rows + row, want: 'logits' })));
      rows += part.length;
    }
    logits.push(...(await cluster.submit({ runs, outputs })).outputs.map(logitsOf));
  }
  return logits;
}

describe.each(SUBJECTS)('the bits of every logit with $title', ({ model, topology }) => {
  const base: ClusterOptions = { model: oracleModel(model), topology };
  let wanted: Float32Array[] = [];
  beforeAll(async () => {
    wanted = await logitsWith(base, LENGTH);
  });
  afterAll(() => {
    delete process.env['COX_ISA'];
  });

  it.each([1, 7, 64])('stay when the prompt comes in chunks of %i', async (chunk) => {
    expectSameBits(await logitsWith(base, chunk), wanted);
  });

  it.each([2, 3])('stay on %i threads', async (threads) => {
    expectSameBits(await logitsWith({ ...base, threads }, LENGTH), wanted);
    expectSameBits(await logitsWith({ ...base, threads }, 1), wanted);
  });

  describe.each(ISAS)('with the %s kernels', (isa) => {
    it.skipIf(!available.includes(isa))('stay', async () => {
      process.env['COX_ISA'] = isa;
      try {
        expectSameBits(await logitsWith(base, 50, isa), wanted);
      } finally {
        delete process.env['COX_ISA'];
      }
    });
  });

  it('stay in a batch with other sessions', async () => {
    expectSameBits(await withCluster({ ...base, threads: 2 }, logitsAmongOthers), wanted);
  });

  it('stay over two pipeline stages', async () => {
    const staged = { ...base, topology: { ...topology, pp: 2 } };
    expectSameBits(await logitsWith(staged, 100), wanted);
    expectSameBits(await logitsWith(staged, 1), wanted);
  });

  it('stay after wrong tokens were taken back', async () => {
    const logits = await withCluster(base, async (cluster) => {
      const session = await Session.create(cluster, { slot: 0, tokensMax: LENGTH });
      const before = await session.feed(TOKENS.slice(0, 200), 90);
      await session.feed(randomTokens(4, 80));
      await session.truncate(150);
      const again = await session.feed(TOKENS.slice(150), 60);
      return [...before.slice(0, 150), ...again];
    });
    expectSameBits(logits, wanted);
  });

  it('stay in a fork that shares full blocks and copies the last', async () => {
    const shared = KV_BLOCK_TOKENS + 20;
    const logits = await withCluster(base, async (cluster) => {
      const source = await Session.create(cluster, { slot: 0, tokensMax: LENGTH });
      await source.feed(TOKENS.slice(0, shared));
      const [own] = cluster.takeBlocks(1);
      const to = present(own, 'a block');
      await cluster.submit({
        slotOps: [
          { kind: 'create', slot: 1, blocks: [0, to], tokens: TOKENS.slice(0, shared) },
          { kind: 'copy', from: 1, to, rows: shared - KV_BLOCK_TOKENS },
        ],
      });
      // Both go on, each into its own last block.
      const rest = TOKENS.slice(shared);
      const runs: Run[] = [
        { slot: 0, pos0: shared, tokens: randomTokens(5, rest.length) },
        { slot: 1, pos0: shared, tokens: rest },
      ];
      const outputs: Output[] = rest.map((_, i) => ({ row: rest.length + i, want: 'logits' }));
      return (await cluster.submit({ runs, outputs })).outputs.map(logitsOf);
    });
    expectSameBits(logits, wanted.slice(shared));
  });
});
