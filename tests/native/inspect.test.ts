// What TypeScript learns of model files through the addon: inspection, metadata, plans, and their errors.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  inspectModel,
  type PlanTopology,
  planModel,
  readModelMetadata,
} from '../../src/base/addon.ts';
import { CoxswainError } from '../../src/base/errors.ts';
import { loadConfig } from '../../src/config/load.ts';

const ORACLE = join(import.meta.dirname, '../vectors/oracle/models');
const MODEL = join(ORACLE, 'llama-q.q4_k.gguf');
const VOCABULARY = join(ORACLE, 'tok-qwen.gguf');

const topology = (parts: Partial<PlanTopology> = {}): PlanTopology => ({
  split: [1],
  pp: 1,
  layers: [],
  kvType: 'f16',
  exact: false,
  context: 0,
  ...parts,
});

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'coxswain-inspect-'));
});
afterAll(() => {
  rmSync(folder, { recursive: true });
});

function written(name: string, bytes: Uint8Array): string {
  const path = join(folder, name);
  writeFileSync(path, bytes);
  return path;
}

describe('inspecting a model file', () => {
  it('gives the sizes, the tensor directory and the bytes', async () => {
    const model = await inspectModel(MODEL);
    expect(model).toMatchObject({
      architecture: 'llama',
      fileBytes: readFileSync(MODEL).length,
      problem: null,
      shape: {
        layers: 2,
        hidden: 256,
        heads: 4,
        kvHeads: 2,
        headDim: 64,
        ffn: 256,
        vocab: 512,
        context: 4096,
        tiedOutput: false,
      },
    });
    expect(model.tensors).toHaveLength(2 * 9 + 3);
    expect(model.tensors.find(({ name }) => name === 'blk.1.ffn_down.weight')).toEqual({
      name: 'blk.1.ffn_down.weight',
      type: 'Q4_K',
      dims: [256, 256],
      bytes: (256 * 256 * 144) / 256,
    });
  });

  it('gives a copy at another path the same fingerprint, and a changed model another', async () => {
    const bytes = readFileSync(MODEL);
    const { fingerprint } = await inspectModel(MODEL);
    expect(fingerprint).toMatch(/^[0-9a-f]{64}$/);
    expect((await inspectModel(written('copy.gguf', bytes))).fingerprint).toBe(fingerprint);
    bytes.writeUInt8(bytes.readUInt8(bytes.length - 100) ^ 1, bytes.length - 100);
    expect((await inspectModel(written('changed.gguf', bytes))).fingerprint).not.toBe(fingerprint);
  });

  it('says why a file that holds only a vocabulary cannot run', async () => {
    const { shape, problem } = await inspectModel(VOCABULARY);
    expect(shape).toBeNull();
    expect(problem).toMatchObject({ code: 'GGUF_INVALID' });
    expect(problem?.message).toContain('llama.block_count');
  });

  it.each([
    ['a missing file', 'FILE_UNREADABLE', () => join(folder, 'absent.gguf')],
    ['a folder', 'FILE_UNREADABLE', () => folder],
    ['another kind of file', 'GGUF_INVALID', () => written('text.gguf', Buffer.from('hello'))],
    [
      'a truncated file',
      'GGUF_INVALID',
      () => written('cut.gguf', readFileSync(MODEL).subarray(0, 300_000)),
    ],
  ])('refuses %s with %s and its path', async (_what, code, path) => {
    const file = path();
    await expect(inspectModel(file)).rejects.toMatchObject({
      name: 'CoxswainError',
      code,
      message: expect.stringContaining(file),
    });
  });
});

describe('reading metadata', () => {
  it('gives text, numbers, flags and arrays in JavaScript types', async () => {
    const metadata = await readModelMetadata(VOCABULARY);
    expect(metadata.get('general.architecture')).toBe('llama');
    expect(metadata.get('tokenizer.ggml.model')).toBe('gpt2');
    expect(metadata.get('tokenizer.ggml.add_bos_token')).toBe(false);
    const tokens = metadata.get('tokenizer.ggml.tokens');
    expect(tokens).toBeInstanceOf(Array);
    expect(tokens).toContain('<|im_start|>');
    const types = metadata.get('tokenizer.ggml.token_type');
    expect(types).toBeInstanceOf(Int32Array);
    expect(types).toHaveLength((tokens as string[]).length);
    expect(metadata.get('absent')).toBeUndefined();
  });

  it('keeps keys, large integers and bytes that JavaScript would change', async () => {
    const key = (name: string, type: number, value: Buffer) => {
      const head = Buffer.alloc(8);
      head.writeBigUInt64LE(BigInt(name.length));
      const kind = Buffer.alloc(4);
      kind.writeUInt32LE(type);
      return Buffer.concat([head, Buffer.from(name), kind, value]);
    };
    const large = Buffer.alloc(8);
    large.writeBigUInt64LE(2n ** 63n + 1n);
    const broken = Buffer.from([2, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe]);
    const head = Buffer.alloc(24);
    head.write('GGUF');
    head.writeUInt32LE(3, 4);
    head.writeBigUInt64LE(0n, 8);
    head.writeBigUInt64LE(3n, 16);
    const file = Buffer.concat([
      head,
      key('__proto__', 10, large),
      key('broken', 8, broken),
      key('small', 11, Buffer.from([0xfe, 255, 255, 255, 255, 255, 255, 255])),
    ]);
    const metadata = await readModelMetadata(written('odd.gguf', file));
    expect(metadata.get('__proto__')).toBe(2n ** 63n + 1n);
    expect(metadata.get('broken')).toEqual(Buffer.from([0xff, 0xfe]));
    expect(metadata.get('small')).toBe(-2);
  });
});

describe('planning', () => {
  it('gives each rank its share under the names of cox plan --json', async () => {
    const plan = await planModel(MODEL, topology({ split: [3, 1], pp: 2 }));
    expect(plan.refused).toBeNull();
    expect(plan.hash).toMatch(/^[0-9a-f]{64}$/);
    expect(plan.layers).toEqual([
      [0, 0],
      [1, 1],
    ]);
    expect(plan.ranks.map(({ rank, stage, heads }) => [rank, stage, heads])).toEqual([
      [0, 0, 3],
      [1, 0, 1],
      [2, 1, 3],
      [3, 1, 1],
    ]);
    expect(plan.ranks[2]).toMatchObject({
      layers: 1,
      kv_heads: 2,
      ffn_columns: 192,
      vocab_rows: 384,
      kv_bytes_per_token: 2 * 64 * 2 * 2,
      ranges: { layers: [1, 2], heads: [0, 3], vocab_rows: [0, 384] },
    });
    expect(plan.per_token.collectives).toBe(2 * 2 + 1);
    // Two layers of two all-reduces between two ranks, one boundary of two rows, and the head's end.
    expect(plan.per_token.wire_bytes).toBeGreaterThan(4 * 2 * 1024 + 2 * 1024);
    expect(plan.memory.installed).toBeGreaterThan(plan.memory.admitted);
    expect(plan.memory.largest_model).toBeGreaterThan(1_000_000);
  });

  it('gives the same hash for the same cut and another for another', async () => {
    const hash = async (parts: Partial<PlanTopology>) =>
      (await planModel(MODEL, topology(parts))).hash;
    const even = await hash({ split: [1, 1] });
    expect(await hash({ split: [5, 5] })).toBe(even);
    expect(await hash({ split: [3, 1] })).not.toBe(even);
    expect(await hash({ split: [1, 1], kvType: 'f32' })).not.toBe(even);
    expect(await hash({ split: [1, 1], exact: true })).not.toBe(even);
  });

  it('refuses an impossible topology with a sentence, not an error', async () => {
    const plan = await planModel(MODEL, topology({ pp: 3 }));
    expect(plan.refused).toBe("3 stages are more than the model's 2 layers");
    expect(plan.ranks).toEqual([]);
  });

  it('allows as many stages as the settings do', async () => {
    const { refused } = await planModel(MODEL, topology({ pp: 64 }));
    const most = Number(/at most (\d+) are supported/.exec(refused ?? '')?.[1]);
    expect(loadConfig({ flags: { pp: most } }).pp).toBe(most);
    expect(() => loadConfig({ flags: { pp: most + 1 } })).toThrow(CoxswainError);
  });

  it('rejects a model that this engine cannot run', async () => {
    await expect(planModel(VOCABULARY, topology())).rejects.toMatchObject({ code: 'GGUF_INVALID' });
  });
});
