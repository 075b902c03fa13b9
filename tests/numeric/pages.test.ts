// A prefix that left for files goes on where it stopped: bit for bit under the same plan, within the bound
// of the numerics under every other one; and a damaged file never becomes state.
import { mkdtempSync, openSync, readSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { planModel } from '../../src/base/addon.ts';
import { present } from '../../src/base/assert.ts';
import { createPrng } from '../../src/base/prng.ts';
import type { SavedPages, Topology } from '../../src/engine/engine.ts';
import { type Cluster, GREEDY, logitsOf, oracleModel, Session, withCluster } from './driver.ts';

const MODEL = oracleModel('llama');
const BLOCK = 256;
const STORED = 2 * BLOCK;
const OFFSET = 4096;
const prng = createPrng(11);
const TOKENS = Array.from({ length: STORED + 8 }, () => prng.below(512));

const PLANS: Readonly<Record<string, Partial<Topology>>> = {
  'one rank': {},
  'TP 2': { split: [1, 1] },
  'TP 3': { split: [1, 1, 1] },
  'PP 2': { pp: 2 },
  'TP 2 x PP 2': { split: [1, 1], pp: 2 },
};

let directory: string;
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'cox-pages-'));
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

interface Shard {
  readonly layers: readonly [number, number];
  readonly heads: readonly [number, number];
}

/** What each rank of a plan holds: [begin, end) of layers and KV heads. */
async function shardsOf(topology: Partial<Topology>): Promise<Shard[]> {
  const whole = { split: [1], pp: 1, layers: [], kvType: 'f32', exact: true, context: 0 } as const;
  const { ranks } = await planModel(MODEL, { ...whole, ...topology });
  return ranks.map(({ ranges }) => ({ layers: ranges.layers, heads: ranges.kv_heads }));
}

interface Stored {
  readonly shards: readonly Shard[];
  readonly files: readonly (SavedPages & { readonly path: string })[];
  /** Of the tokens after the stored ones. */
  readonly logits: readonly Float32Array[];
}

async function store(name: string): Promise<Stored> {
  const topology = present(PLANS[name], 'a plan');
  return await withCluster({ model: MODEL, topology }, async (cluster) => {
    const session = await Session.create(cluster, { slot: 0, tokensMax: TOKENS.length });
    await session.feed(TOKENS.slice(0, STORED));
    const files = await Promise.all(
      cluster.engines.map(async (engine, rank) => {
        const path = join(directory, `${name}.${rank}`);
        writeFileSync(path, '');
        const blocks = Uint32Array.of(0, 1);
        return { path, ...(await engine.savePages({ epoch: 1, path, offset: OFFSET, blocks })) };
      }),
    );
    return {
      shards: await shardsOf(topology),
      files,
      logits: await session.feed(TOKENS.slice(STORED)),
    };
  });
}

/** Every rank takes what it holds from whichever file has it. */
async function load(cluster: Cluster, shards: readonly Shard[], stored: Stored): Promise<void> {
  const blocks = Uint32Array.of(3, 1);
  for (const [rank, target] of shards.entries()) {
    for (const [index, source] of stored.shards.entries()) {
      const layer = Math.max(target.layers[0], source.layers[0]);
      const layers = Math.min(target.layers[1], source.layers[1]) - layer;
      const head = Math.max(target.heads[0], source.heads[0]);
      const heads = Math.min(target.heads[1], source.heads[1]) - head;
      if (layers <= 0 || heads <= 0) continue;
      await present(cluster.engines[rank], 'a rank').loadPages({
        ...present(stored.files[index], 'a file a shard'),
        epoch: 1,
        offset: OFFSET,
        blocks,
        box: {
          fileLayer: layer - source.layers[0],
          layer: layer - target.layers[0],
          layers,
          fileHead: head - source.heads[0],
          head: head - target.heads[0],
          heads,
        },
      });
    }
  }
}

async function resume(name: string, stored: Stored): Promise<Float32Array[]> {
  const topology = present(PLANS[name], 'a plan');
  return await withCluster({ model: MODEL, topology }, async (cluster) => {
    await load(cluster, await shardsOf(topology), stored);
    const tokens = TOKENS.slice(STORED);
    const result = await cluster.submit({
      slotOps: [
        { kind: 'create', slot: 0, blocks: [3, 1, 4], tokens: TOKENS.slice(0, STORED) },
        { kind: 'sampler', slot: 0, params: GREEDY },
      ],
      runs: [{ slot: 0, pos0: STORED, tokens }],
      outputs: tokens.map((_, row) => ({ row, want: 'logits' })),
    });
    return result.outputs.map(logitsOf);
  });
}

function worstDifference(got: readonly Float32Array[], wanted: readonly Float32Array[]): number {
  expect(got.length).toBe(wanted.length);
  return Math.max(
    ...got.flatMap((row, index) =>
      Array.from(row, (value, id) => Math.abs(value - (wanted[index]?.[id] ?? Number.NaN))),
    ),
  );
}

describe.each(Object.keys(PLANS))('a prefix stored by %s', (name) => {
  let stored: Stored;
  beforeAll(async () => {
    stored = await store(name);
  });

  it.each(Object.keys(PLANS))('goes on under %s', async (other) => {
    const logits = await resume(other, stored);
    if (other === name) expect(worstDifference(logits, stored.logits)).toBe(0);
    else expect(worstDifference(logits, stored.logits)).toBeLessThan(1e-3);
  });
});

it('a damaged page is refused by its file, page, layer and head', async () => {
  const stored = await store('one rank');
  const { path } = present(stored.files[0], 'a file');
  const fd = openSync(path, 'r+');
  const byte = Buffer.alloc(1);
  readSync(fd, byte, 0, 1, OFFSET + 12_345);
  byte[0] = (byte[0] ?? 0) ^ 1;
  writeSync(fd, byte, 0, 1, OFFSET + 12_345);
  await expect(resume('one rank', stored)).rejects.toMatchObject({
    code: 'KV_DAMAGED',
    message: expect.stringMatching(/the checksum of page 0, layer 0, KV head 0 differs/),
  });
});

it('pages of an epoch that is over are not moved', async () => {
  await withCluster({ model: MODEL }, async (cluster) => {
    await cluster.openEpoch();
    const path = join(directory, 'late');
    writeFileSync(path, '');
    const late = { epoch: 1, path, offset: 0, blocks: Uint32Array.of(0) };
    const engine = present(cluster.engines[0], 'a rank');
    await expect(engine.savePages(late)).rejects.toMatchObject({ code: 'EPOCH_FENCED' });
  });
});
