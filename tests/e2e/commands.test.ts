// The commands as a user runs them: forms that outside checks rely on, and
// errors that say what to do.
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { entry, runCox, testModel } from './cox.ts';

interface Vectors {
  readonly references: {
    readonly native: {
      readonly cases: readonly {
        readonly prompt: readonly number[];
        readonly argmax_all: readonly number[];
        readonly gap_all: readonly number[];
        readonly positions: readonly {
          readonly pos: number;
          readonly logsumexp: number;
          readonly top: readonly [number, number][];
        }[];
      }[];
    };
  };
}

const TOLERANCE = 1e-3;
const vectors = JSON.parse(
  readFileSync(new URL('../vectors/oracle/vectors/llama.json', import.meta.url), 'utf8'),
) as Vectors;
const [short] = vectors.references.native.cases;
let directory: string;

beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'cox-commands-'));
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

const file = (name: string, text: string) => {
  const path = join(directory, name);
  writeFileSync(path, text);
  return path;
};
const json = (bytes: Buffer) => JSON.parse(bytes.toString('utf8'));

describe('logits', () => {
  const exact = ['--exact', '--kv-type', 'f32', '--threads', '1', '--ctx', '1024'];

  it.each([
    { topology: ['--tp', '2', '--transport', 'shm'] },
    { topology: ['--split', '3,2,1', '--transport', 'tcp'] },
    { topology: ['--pp', '2', '--transport', 'grpc'] },
  ])('agree with the oracle over $topology', ({ topology }) => {
    if (short === undefined) throw new Error('the vectors have a short case');
    const tokens = file('tokens.json', JSON.stringify(short.prompt));
    const done = runCox(['logits', testModel('llama'), '--tokens', tokens, ...exact, ...topology]);
    expect(done.stderr).toBe('');
    const lines = done.stdout
      .toString('utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(lines.map((line) => line.pos)).toEqual(short.prompt.map((_, pos) => pos));
    for (const position of short.positions) {
      const line = lines[position.pos];
      expect(Math.abs(line.logsumexp - position.logsumexp)).toBeLessThan(TOLERANCE);
      const ours = new Map<number, number>(line.top);
      for (const [id, logit] of position.top.slice(0, 30))
        expect(Math.abs((ours.get(id) ?? 0) - logit)).toBeLessThan(TOLERANCE);
    }
  });

  it('writes all of them as floats, equal to the lines', () => {
    const tokens = file('few.json', '[1, 2, 3]');
    const out = join(directory, 'logits.bin');
    const done = runCox(['logits', testModel('llama'), '--tokens', tokens, '--out', out, ...exact]);
    expect(done.code).toBe(0);
    const floats = new Float32Array(new Uint8Array(readFileSync(out)).buffer);
    expect(floats.length).toBe(3 * 512);
    const lines = done.stdout
      .toString('utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    const first = lines[0];
    expect(floats[first.argmax]).toBe(first.top[0][1]);
  });

  it('names the element of a token file that is no id', () => {
    const done = runCox(['logits', testModel('llama'), '--tokens', file('bad.json', '[1, 512]')]);
    expect(done.code).toBe(2);
    expect(done.stderr).toMatch(/element 1 of .*bad\.json is no token id \(0 to 511\)/);
  });
});

describe('tokenize and detokenize', () => {
  it('return bytes as they came, special tokens as text unless asked', () => {
    const text = 'naïve <|eot_id|> 你好\n';
    const plain = runCox(['tokenize', testModel('llama')], text);
    const special = runCox(['tokenize', testModel('llama'), '--special'], text);
    expect(json(special.stdout).length).toBeLessThan(json(plain.stdout).length);
    expect(runCox(['detokenize', testModel('llama')], plain.stdout).stdout.toString('utf8')).toBe(
      text,
    );
    expect(
      runCox(['detokenize', testModel('llama'), '--special'], special.stdout).stdout.toString(
        'utf8',
      ),
    ).toBe(text);
  });
});

describe('plan', () => {
  it('says who holds what, as JSON in the promised form', () => {
    const plan = json(
      runCox(['plan', testModel('llama'), '--split', '3,1', '--pp', '2', '--json']).stdout,
    );
    expect(plan.ranks.length).toBe(4);
    expect(Object.keys(plan.ranks[0])).toEqual(
      expect.arrayContaining([
        'rank',
        'stage',
        'layers',
        'heads',
        'kv_heads',
        'ffn_columns',
        'vocab_rows',
        'weight_bytes',
        'kv_bytes_per_token',
      ]),
    );
    expect(plan.per_token).toEqual({
      collectives: expect.any(Number),
      wire_bytes: expect.any(Number),
    });
    expect(plan.refused).toBeNull();
  });

  it('refuses the impossible with a sentence and fails', () => {
    const done = runCox(['plan', testModel('llama'), '--pp', '5', '--json']);
    expect(done.code).toBe(1);
    expect(json(done.stdout).refused).toMatch(/5 stages are more/);
  });
});

describe('perplexity and bench', () => {
  it('measure on any topology', () => {
    const text = file(
      'text.txt',
      'The ranks keep the weights, and the coordinator keeps every session. '.repeat(40),
    );
    const one = json(
      runCox([
        'perplexity',
        testModel('llama'),
        '--file',
        text,
        '--window',
        '128',
        '--json',
        '--exact',
        '--threads',
        '1',
      ]).stdout,
    );
    const two = json(
      runCox([
        'perplexity',
        testModel('llama'),
        '--file',
        text,
        '--window',
        '128',
        '--json',
        '--exact',
        '--threads',
        '1',
        '--tp',
        '2',
      ]).stdout,
    );
    expect(one.windows).toBeGreaterThan(2);
    expect(one.tokens).toBe(one.windows * 63);
    expect(Math.abs(two.perplexity / one.perplexity - 1)).toBeLessThan(5e-4);
  });

  it('print a row for prefill and a row for decode', () => {
    const rows = json(
      runCox([
        'bench',
        testModel('llama'),
        '-p',
        '32',
        '-n',
        '8',
        '--streams',
        '2',
        '--runs',
        '1',
        '--json',
        '--threads',
        '1',
      ]).stdout,
    );
    expect(rows.map((row: { test: string }) => row.test)).toEqual(['prefill', 'decode']);
    for (const row of rows) expect(row.tokens_per_second.min).toBeGreaterThan(0);
  });
});

describe('mistakes', () => {
  it.each([
    { args: ['frobnicate'], says: /Unknown/ },
    { args: ['up', 'no-such-model'], says: /no file and no catalogue name "no-such-model"/ },
    { args: ['up', '--tp', '0', 'x'], says: /tp/ },
    { args: ['up', '--no-such-flag', 'x'], says: /no-such-flag/ },
    { args: ['rank', '--join', 'example.org:1', '--model', 'x'], says: /cluster token/ },
  ])('$args says what is wrong', ({ args, says }) => {
    const done = runCox(args);
    expect(done.code).not.toBe(0);
    expect(done.stderr).toMatch(says);
  });

  it('a port that is taken is told before the model is loaded', async () => {
    const other = createServer().listen(0, '127.0.0.1');
    await once(other, 'listening');
    const { port } = other.address() as AddressInfo;
    const done = runCox(['up', testModel('llama'), '--port', String(port)]);
    other.close();
    expect(done.code).toBe(2);
    expect(done.stderr).toMatch(/cannot listen on 127\.0\.0\.1:\d+ .*EADDRINUSE/);
    expect(done.stderr).not.toMatch(/rank joined/);
  });

  it('a rank whose state directory cannot be read says so and ends', () => {
    const done = runCox(['rank', '--join', '127.0.0.1:1', '--model', testModel('llama')], '', {
      COX_CLUSTER_TOKEN: 'a-token-that-is-long-enough',
      XDG_STATE_HOME: file('no-directory', ''),
    });
    expect(done.code).toBe(1);
    expect(done.stderr).toMatch(/FILE_UNREADABLE/);
  }, 30_000);

  it('a reader that has had enough is no failure', () => {
    const script = `node "${entry}" tokenize "${testModel('llama')}" | head -c 5`;
    const done = spawnSync('sh', ['-c', script], { input: 'hello '.repeat(50_000) });
    expect(done.stdout.length).toBe(5);
    expect(done.stderr.toString('utf8')).toBe('');
  });

  it('a file that is no model is refused with the reason', () => {
    const done = runCox(['plan', file('junk.gguf', 'this is no model')]);
    expect(done.code).toBe(1);
    expect(done.stderr).toMatch(/GGUF_INVALID/);
  });
});
