// `cox quantize` as a user runs it: beside the files that llama.cpp made from the same weights, and what
// it leaves behind when it is refused or interrupted.
import {
  closeSync,
  existsSync,
  ftruncateSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { CoxProcess, runCox, testModel, until } from './cox.ts';

interface Tensor {
  readonly name: string;
  readonly type: string;
  readonly shape: readonly number[];
  readonly data: Buffer | Float32Array;
}
interface GgufFile {
  readonly kv: ReadonlyMap<string, { readonly value: unknown }>;
  readonly tensors: readonly Tensor[];
}

let directory: string;
let readGguf: (path: string) => GgufFile;
beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'cox-quantize-'));
  const reader = new URL('../vectors/oracle/gguf-writer.mjs', import.meta.url);
  ({ readGguf } = (await import(reader.href)) as { readGguf: (path: string) => GgufFile });
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

const path = (name: string) => join(directory, name);
const json = (bytes: Buffer) => JSON.parse(bytes.toString('utf8'));

function quantized(model: string, type: string, ...more: string[]): string {
  const out = path(`${type}.gguf`);
  const done = runCox(['quantize', model, type, out, '--force', '--threads', '2', ...more]);
  expect(done.stderr).toBe('');
  expect(done.code).toBe(0);
  return out;
}

const raw = ({ data }: Tensor) => Buffer.from(data.buffer, data.byteOffset, data.byteLength);

/** All weights of a file as floats, by tensor: the command itself expands them. */
function floats(model: string): Map<string, Float32Array> {
  const out = path('expanded.gguf');
  expect(runCox(['quantize', model, 'F32', out, '--force']).code).toBe(0);
  return new Map(
    readGguf(out).tensors.map((tensor) => [
      tensor.name,
      new Float32Array(new Uint8Array(raw(tensor)).buffer),
    ]),
  );
}

/** Squared error over all matrices, relative to their squares. */
function relativeError(model: string, original: ReadonlyMap<string, Float32Array>): number {
  let [error, power] = [0, 0];
  for (const [name, values] of floats(model)) {
    const wanted = original.get(name) ?? new Float32Array();
    expect(values.length).toBe(wanted.length);
    values.forEach((value, index) => {
      error += (value - (wanted[index] ?? 0)) ** 2;
      power += (wanted[index] ?? 0) ** 2;
    });
  }
  return error / power;
}

describe('beside llama.cpp', () => {
  it.each(['q8_0', 'q4_0', 'q4_1', 'q5_0', 'q5_1'])(
    'every tensor of %s is equal byte for byte',
    (type) => {
      const ours = readGguf(quantized(testModel('llama-q'), type, '--pure'));
      const theirs = readGguf(testModel(`llama-q.${type}`));
      expect(ours.kv.get('general.file_type')).toEqual(theirs.kv.get('general.file_type'));
      const expected = new Map(theirs.tensors.map((tensor) => [tensor.name, tensor]));
      expect(ours.tensors).toHaveLength(expected.size);
      for (const tensor of ours.tensors) {
        const twin = expected.get(tensor.name);
        expect([tensor.name, tensor.type, tensor.shape]).toEqual([
          twin?.name,
          twin?.type,
          twin?.shape,
        ]);
        expect(twin !== undefined && raw(tensor).equals(raw(twin))).toBe(true);
      }
    },
  );

  it.each([
    ['q4_k', ['--pure']],
    ['q5_k', ['--pure']],
    ['q6_k', ['--pure']],
    ['q4_k_m', []],
  ])('%s has the same types and no larger error', (type, flags) => {
    const ours = quantized(testModel('llama-q'), type, ...flags);
    const theirs = testModel(`llama-q.${type}`);
    const types = (file: string) =>
      new Map(readGguf(file).tensors.map((tensor) => [tensor.name, tensor.type]));
    expect(types(ours)).toEqual(types(theirs));
    const original = floats(testModel('llama-q'));
    expect(relativeError(ours, original)).toBeLessThanOrEqual(relativeError(theirs, original));
  });
});

describe('the quantised model', () => {
  const logits = (model: string) => {
    const out = path('logits.bin');
    writeFileSync(path('ids.json'), JSON.stringify([1, 17, 94, 203, 44, 5, 300, 256]));
    const flags = ['--exact', '--kv-type', 'f32', '--threads', '1', '--ctx', '256'];
    const done = runCox(['logits', model, '--tokens', path('ids.json'), '--out', out, ...flags]);
    expect(done.code).toBe(0);
    return new Float32Array(new Uint8Array(readFileSync(out)).buffer);
  };

  it('computes nearly the logits of the original, nearer with more bits', () => {
    const original = logits(testModel('llama-q'));
    const power = original.reduce((sum, x) => sum + x * x, 0);
    const distance = (type: string) => {
      const found = logits(quantized(testModel('llama-q'), type));
      const square = found.reduce((sum, x, index) => sum + (x - (original[index] ?? 0)) ** 2, 0);
      return Math.sqrt(square / power);
    };
    const [f16, eight, six, mixture] = ['f16', 'q8_0', 'q6_k', 'q4_k_m'].map(distance);
    expect(f16).toBeLessThan(0.002);
    expect(eight).toBeLessThan(0.03);
    expect(six).toBeLessThan(0.12);
    expect(mixture).toBeLessThan(0.4);
    expect([f16, eight, six, mixture]).toEqual(
      [f16, eight, six, mixture].sort((a = 0, b = 0) => a - b),
    );
  });
});

describe('the command', () => {
  it('names every tensor with its types, and the totals', () => {
    const done = runCox(['quantize', testModel('llama'), 'q4_k_m', path('table.gguf')]);
    expect(done.code).toBe(0);
    const lines = done.stdout.toString('utf8').trim().split('\n');
    // Rows of 128 columns: the type that was asked for does not fit.
    expect(lines).toContainEqual(
      expect.stringMatching(
        /^blk\.1\.ffn_up\.weight +\d+ x \d+ +F32 +Q5_0 +\d+ +256 does not divide \d+ columns$/,
      ),
    );
    expect(lines).toContainEqual(expect.stringMatching(/^output_norm\.weight .*F32 +F32/));
    expect(lines.at(-1)).toMatch(/table\.gguf \d+\.\d [KM]B$/);
    const size = statSync(path('table.gguf')).size;
    const planned = runCox([
      ...['quantize', testModel('llama'), 'q4_k_m', path('planned.gguf')],
      ...['--dry-run', '--json'],
    ]);
    expect(json(planned.stdout)).toMatchObject({ file_bytes: size, requantizes: false });
    expect(existsSync(path('planned.gguf'))).toBe(false);
  });

  it('warns that a quantised file is quantised again, and does it', () => {
    const done = runCox([
      ...['quantize', testModel('llama-q.q8_0'), 'Q4_0', path('twice.gguf')],
      '--json',
    ]);
    expect(done.stderr).toMatch(/quantised already/);
    expect(done.code).toBe(0);
    const result = json(done.stdout);
    expect(result.path).toBe(path('twice.gguf'));
    expect(result.tensors.find(({ name }: Tensor) => name === 'blk.0.attn_q.weight')).toEqual({
      name: 'blk.0.attn_q.weight',
      dims: [256, 256],
      from: 'Q8_0',
      to: 'Q4_0',
      from_bytes: (256 * 256 * 34) / 32,
      bytes: (256 * 256 * 18) / 32,
      note: '',
    });
  });

  it('refuses an unknown type, an existing file and the model itself', () => {
    const model = testModel('llama');
    const unknown = runCox(['quantize', model, 'q9', path('unknown.gguf')]);
    expect([unknown.code, existsSync(path('unknown.gguf'))]).toEqual([2, false]);
    expect(unknown.stderr).toMatch(/"q9" is none of F32, F16.*\(USAGE_INVALID\)/);
    writeFileSync(path('mine.txt'), 'mine');
    const existing = runCox(['quantize', model, 'q8_0', path('mine.txt')]);
    expect(existing.code).toBe(1);
    expect(existing.stderr).toMatch(/mine\.txt exists already.*--force/);
    expect(readFileSync(path('mine.txt'), 'utf8')).toBe('mine');
    const itself = runCox(['quantize', model, 'q8_0', model, '--force']);
    expect(itself.code).toBe(2);
    expect(itself.stderr).toMatch(/OUT is the model itself/);
    const threads = runCox(['quantize', model, 'q8_0', path('t.gguf'), '--threads', '0']);
    expect([threads.code, existsSync(path('t.gguf'))]).toEqual([2, false]);
  });

  it('ends at SIGINT with an error and no file', async () => {
    const folder = mkdtempSync(join(directory, 'interrupted-'));
    const model = join(folder, 'zeros.gguf');
    writeZeros(model, 1 << 20);
    const cox = new CoxProcess([
      ...['quantize', model, 'Q6_K', join(folder, 'out.gguf')],
      ...['--threads', '1'],
    ]);
    expect(await until(() => readdirSync(folder).length > 1, 60_000)).toBe(true);
    cox.signal('SIGINT');
    expect(await cox.exited).toBe(1);
    expect(cox.log).toMatch(/interrupted.*\(REQUEST_CANCELLED\)/);
    expect(readdirSync(folder)).toEqual(['zeros.gguf']);
  });
});

/** A model of one matrix of 256 columns, all zero: a file of holes that takes no room. */
function writeZeros(file: string, rows: number): void {
  const text = (value: string) => {
    const bytes = Buffer.alloc(8 + value.length);
    bytes.writeBigUInt64LE(BigInt(value.length));
    bytes.write(value, 8);
    return bytes;
  };
  const numbers = (...values: [value: number, bytes: 4 | 8][]) =>
    Buffer.concat(
      values.map(([value, size]) => {
        const bytes = Buffer.alloc(size);
        bytes.writeUInt32LE(value);
        return bytes;
      }),
    );
  const head = Buffer.concat([
    Buffer.from('GGUF'),
    numbers([3, 4], [1, 8], [1, 8]),
    ...[text('general.architecture'), numbers([8, 4]), text('llama')],
    ...[text('blk.0.ffn_up.weight'), numbers([2, 4], [256, 8], [rows, 8], [1, 4], [0, 8])],
  ]);
  const descriptor = openSync(file, 'w');
  writeSync(descriptor, head);
  ftruncateSync(descriptor, Math.ceil(head.length / 32) * 32 + rows * 256 * 2);
  closeSync(descriptor);
}
