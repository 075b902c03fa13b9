// Random histories of several slots (batches of uneven runs, rollbacks, forks, drops) give every row the
// bits that its tokens have when they are fed alone, in one piece, to one rank with other kernels.
// Owns the slots' tokens and the blocks' holders, as the coordinator does.
import { describe, expect, it } from 'vitest';
import { hostKernels } from '../../src/base/addon.ts';
import { present } from '../../src/base/assert.ts';
import { createPrng, type Prng } from '../../src/base/prng.ts';
import { KV_BLOCK_TOKENS, type Output, type Run, type SlotOp } from '../../src/base/step-record.ts';
import {
  type Cluster,
  type ClusterOptions,
  logitsOf,
  oracleModel,
  Session,
  withCluster,
} from './driver.ts';
import { ownModel } from './own-case.ts';

const VOCAB = 512;
const LENGTH_MAX = 560;
const SLOTS = 4;
const BLOCKS = 16;
const ROUNDS = 14;
/** Lengths of runs: decoding, odd cuts, a whole KV block, more than one. */
const RUNS = [1, 1, 1, 2, 7, 16, 33, 100, 256, 300];
/** Steps that a rank with the slowest kernels does in the time that fast ones allow it. */
const SHORT_RUNS = [1, 1, 2, 7, 16, 33];

interface Slot {
  tokens: number[];
  blocks: number[];
}

/** Logits of one row, and the tokens up to it. */
interface Row {
  readonly tokens: readonly number[];
  readonly logits: Float32Array;
}

class History {
  readonly rows: Row[] = [];
  private readonly slots: (Slot | undefined)[] = new Array(SLOTS).fill(undefined);
  private readonly holders = new Array<number>(BLOCKS).fill(0);
  private readonly cluster: Cluster;
  private readonly prng: Prng;
  private readonly lengths: readonly number[];

  constructor(cluster: Cluster, seed: number, lengths: readonly number[]) {
    this.cluster = cluster;
    this.prng = createPrng(seed);
    this.lengths = lengths;
  }

  /** One step: changes to some slots, then runs of some of them. */
  async round(): Promise<void> {
    const slotOps: SlotOp[] = [];
    for (let slot = 0; slot < SLOTS; slot += 1) this.change(slot, slotOps);
    const runs: Run[] = [];
    const outputs: Output[] = [];
    const fed: (readonly number[])[] = [];
    for (let slot = 0; slot < SLOTS; slot += 1) {
      const live = this.slots[slot];
      if (live === undefined || this.prng.chance(0.3)) continue;
      const run = this.extend(slot, live, slotOps);
      if (run === undefined) continue;
      runs.push(run);
      for (let n = run.pos0 + 1; n <= live.tokens.length; n += 1) {
        outputs.push({ row: fed.length, want: 'logits' });
        fed.push(live.tokens.slice(0, n));
      }
    }
    const result = await this.cluster.submit({ slotOps, runs, outputs });
    result.outputs.forEach((output, row) => {
      this.rows.push({ tokens: present(fed[row], 'its tokens'), logits: logitsOf(output) });
    });
  }

  private change(slot: number, slotOps: SlotOp[]): void {
    const live = this.slots[slot];
    if (live === undefined) {
      const source = this.slots[this.prng.below(SLOTS)];
      const length = source === undefined ? 0 : this.prng.below(source.tokens.length + 1);
      this.fork(slot, source ?? { tokens: [], blocks: [] }, { length, slotOps });
    } else if (this.prng.chance(0.1)) {
      this.release(live.blocks);
      this.slots[slot] = undefined;
      slotOps.push({ kind: 'drop', slot });
    } else if (this.prng.chance(0.2)) {
      const length = this.prng.below(live.tokens.length + 1);
      const blockCount = Math.ceil(length / KV_BLOCK_TOKENS);
      live.tokens.length = length;
      this.release(live.blocks.splice(blockCount));
      slotOps.push({ kind: 'truncate', slot, length, blockCount });
    }
  }

  /** A new slot with the first `length` tokens of another: full blocks are shared, the last is copied. */
  private fork(slot: number, source: Slot, at: { length: number; slotOps: SlotOp[] }): void {
    const { length, slotOps } = at;
    const shared = source.blocks.slice(0, Math.floor(length / KV_BLOCK_TOKENS));
    const rows = length % KV_BLOCK_TOKENS;
    const last = rows > 0 ? this.take(1) : [];
    if (last === undefined) return;
    const tokens = source.tokens.slice(0, length);
    const blocks = [...shared, ...last];
    for (const block of shared) this.holders[block] = this.held(block) + 1;
    slotOps.push({ kind: 'create', slot, blocks: [...blocks], tokens: [...tokens] });
    const [to] = last;
    const from = source.blocks[shared.length];
    if (to !== undefined && from !== undefined) slotOps.push({ kind: 'copy', from, to, rows });
    this.slots[slot] = { tokens, blocks };
  }

  /** A run of random length, or none where the blocks are used up. */
  private extend(slot: number, live: Slot, slotOps: SlotOp[]): Run | undefined {
    const pos0 = live.tokens.length;
    const wanted = present(this.lengths[this.prng.below(this.lengths.length)], 'a length');
    const count = Math.min(wanted, LENGTH_MAX - pos0);
    if (count < 1 || !this.own(slot, live, slotOps)) return undefined;
    const fresh = this.take(Math.ceil((pos0 + count) / KV_BLOCK_TOKENS) - live.blocks.length);
    if (fresh === undefined) return undefined;
    if (fresh.length > 0) slotOps.push({ kind: 'append', slot, blocks: fresh });
    live.blocks.push(...fresh);
    const tokens = Array.from({ length: count }, () => this.prng.below(VOCAB));
    live.tokens.push(...tokens);
    return { slot, pos0, tokens };
  }

  /** A shared block that will be written is copied first: the slot is made anew around the copy. */
  private own(slot: number, live: Slot, slotOps: SlotOp[]): boolean {
    const index = Math.floor(live.tokens.length / KV_BLOCK_TOKENS);
    const written = live.blocks[index];
    if (written === undefined || this.held(written) === 1) return true;
    const to = this.take(1)?.[0];
    if (to === undefined) return false;
    this.release([written]);
    live.blocks[index] = to;
    const rows = live.tokens.length % KV_BLOCK_TOKENS;
    slotOps.push(
      { kind: 'drop', slot },
      { kind: 'create', slot, blocks: [...live.blocks], tokens: [...live.tokens] },
      { kind: 'copy', from: written, to, rows },
    );
    return true;
  }

  private held(block: number): number {
    return present(this.holders[block], 'a block');
  }

  private take(count: number): number[] | undefined {
    const free = [...this.holders.keys()].filter((block) => this.held(block) === 0);
    if (free.length < count) return undefined;
    const taken = free.slice(0, Math.max(0, count));
    for (const block of taken) this.holders[block] = 1;
    return taken;
  }

  private release(blocks: readonly number[]): void {
    for (const block of blocks) this.holders[block] = this.held(block) - 1;
  }
}

/** Rows of sequences that no longer one continues. */
function leaves(rows: readonly Row[]): Row[] {
  const inner = new Set<string>();
  const key = (tokens: readonly number[]) => tokens.join();
  for (const { tokens } of rows) inner.add(key(tokens.slice(0, -1)));
  return rows.filter(({ tokens }) => !inner.has(key(tokens)));
}

const bits = (row: Float32Array) =>
  Buffer.from(row.buffer, row.byteOffset, row.byteLength).toString('latin1');

/** Every prefix of the sequences, fed alone in one piece, to its logits' bits. */
async function referenceBits(
  options: ClusterOptions,
  sequences: readonly (readonly number[])[],
): Promise<Map<string, string>> {
  const known = new Map<string, string>();
  await withCluster(options, async (cluster) => {
    for (const tokens of sequences) {
      await cluster.openEpoch();
      const session = await Session.create(cluster, { slot: 0, tokensMax: tokens.length });
      const logits = await session.feed(tokens);
      for (const [at, row] of logits.entries()) {
        known.set(tokens.slice(0, at + 1).join(), bits(row));
      }
    }
  });
  return known;
}

const available = hostKernels().available;
/** The kernel set of a rank: the best one first. */
const isaOf = (rank: number) =>
  present(available.at(-1 - (rank % available.length)), 'a kernel set');
/** Another one, for the reference. */
const REFERENCE_ISA = present(available.at(-2) ?? available.at(-1), 'a kernel set');

interface Subject {
  readonly title: string;
  readonly model: string;
  readonly options: Omit<ClusterOptions, 'model'>;
  readonly seed: number;
}

const SUBJECTS: readonly Subject[] = [
  {
    title: 'int8 activations, F16 cache, two threads',
    model: oracleModel('llama-q.q4_k_m'),
    options: { topology: { exact: false, kvType: 'f16' }, threads: 2 },
    seed: 1,
  },
  {
    title: 'int8 activations, F32 cache, two stages',
    model: ownModel('own-head-48.q4_0'),
    options: { topology: { exact: false, kvType: 'f32', pp: 2 } },
    seed: 6,
  },
  {
    title: 'float activations, F16 cache, three threads',
    model: ownModel('own-seven.f16'),
    options: { topology: { exact: false, kvType: 'f16' }, threads: 3 },
    seed: 3,
  },
  {
    title: 'float activations, F32 cache, two stages of two threads',
    model: ownModel('own-three-blocks'),
    options: { topology: { exact: true, kvType: 'f32', pp: 2 }, threads: 2 },
    seed: 4,
  },
];

describe('random histories of slots', () => {
  it.each(SUBJECTS)('keep every bit: $title', async ({ model, options, seed }) => {
    const stages = options.topology?.pp ?? 1;
    const rows = await withCluster(
      {
        ...options,
        model,
        kvBlocks: BLOCKS,
        isas: Array.from({ length: stages }, (_, rank) => isaOf(rank)),
      },
      async (cluster) => {
        const history = new History(cluster, seed, RUNS);
        for (let round = 0; round < ROUNDS; round += 1) await history.round();
        return history.rows;
      },
    );
    const longest = Math.max(...rows.map(({ tokens }) => tokens.length));
    expect(longest, 'the history reaches the third KV block').toBeGreaterThan(2 * KV_BLOCK_TOKENS);

    const plain = { ...options.topology, pp: 1 };
    const known = await referenceBits(
      { model, topology: plain, isas: [REFERENCE_ISA] },
      leaves(rows).map(({ tokens }) => tokens),
    );
    const differing = rows.findIndex(
      ({ tokens, logits }) => known.get(tokens.join()) !== bits(logits),
    );
    expect({ differing, tokens: rows[differing]?.tokens.length }).toEqual({ differing: -1 });
  });

  it('are the same on ranks with different kernel sets', async () => {
    const model = oracleModel('llama-q.q4_1');
    const topology = { exact: false, kvType: 'f16', split: [1, 1, 1] } as const;
    const run = (isas: readonly string[]) =>
      withCluster({ model, topology, kvBlocks: BLOCKS, isas }, async (cluster) => {
        const history = new History(cluster, 5, SHORT_RUNS);
        for (let round = 0; round < ROUNDS; round += 1) await history.round();
        return history.rows.map(({ logits }) => bits(logits));
      });
    const alike = await run(['scalar', 'scalar', 'scalar']);
    const mixed = await run([isaOf(0), isaOf(1), isaOf(2)]);
    expect(mixed.findIndex((row, index) => row !== alike[index])).toBe(-1);
    expect(mixed).toHaveLength(alike.length);
  });
});
