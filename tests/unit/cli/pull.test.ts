import { createHash } from 'node:crypto';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { pull } from '../../../src/cli/pull/pull.ts';
import { hubUrl, parseTarget } from '../../../src/cli/pull/target.ts';

const payload = Buffer.from(Array.from({ length: 300_000 }, (_, i) => (i * 31) & 0xff));
const digest = createHash('sha256').update(payload).digest('hex');

let directory: string;
let close: () => void = () => undefined;
const ranges: string[] = [];

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'cox-pull-'));
  ranges.length = 0;
});
afterEach(() => {
  close();
  rmSync(directory, { recursive: true, force: true });
});

async function serve(
  handler: (request: IncomingMessage, response: ServerResponse) => void,
): Promise<URL> {
  const server = createServer(handler);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  close = () => server.close();
  return new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/model.gguf`);
}

const answerRanges = (request: IncomingMessage, response: ServerResponse) => {
  const range = request.headers.range ?? '';
  ranges.push(range);
  const from = Number(/bytes=(\d+)-/.exec(range)?.[1] ?? 0);
  const body = payload.subarray(from);
  response.writeHead(from > 0 ? 206 : 200, { 'content-length': body.length });
  response.end(body);
};

const options = (sha256: string | null) => ({
  directory,
  progress: () => undefined,
  say: () => undefined,
  sha256,
  verify: true,
});

describe('pull', () => {
  it('downloads, checks the digest and leaves only the finished file', async () => {
    const url = await serve(answerRanges);
    const pulled = await pull({ kind: 'url', url, file: 'model.gguf' }, options(digest));
    expect(pulled).toEqual({ path: join(directory, 'model.gguf'), sha256: digest, present: false });
    expect(readFileSync(pulled.path).equals(payload)).toBe(true);
    expect(readdirSync(directory)).toEqual(['model.gguf']);
  });

  it('resumes from what is already there', async () => {
    const url = await serve(answerRanges);
    writeFileSync(join(directory, 'model.gguf.part'), payload.subarray(0, 100_000));
    await pull({ kind: 'url', url, file: 'model.gguf' }, options(digest));
    expect(ranges).toEqual(['bytes=100000-']);
  });

  it('starts again when the server ignores the range', async () => {
    const url = await serve((_request, response) => {
      response.writeHead(200, { 'content-length': payload.length });
      response.end(payload);
    });
    writeFileSync(join(directory, 'model.gguf.part'), Buffer.alloc(400_000, 7));
    const pulled = await pull({ kind: 'url', url, file: 'model.gguf' }, options(digest));
    expect(readFileSync(pulled.path).equals(payload)).toBe(true);
  });

  describe('from a server that says which file it has', () => {
    const target = (url: URL) => ({ kind: 'url', url, file: 'model.gguf' }) as const;
    const broken = { code: 'PULL_FAILED' };
    let etag: string;
    let content: Buffer;
    let breakAfter: number;
    let hangUp: () => void = () => undefined;
    const breaking = {
      ...options(null),
      // The bytes are on disk by then, not on their way.
      progress: (done: number) => (done === breakAfter ? hangUp() : undefined),
    };
    const conditions: string[] = [];
    const answer = (request: IncomingMessage, response: ServerResponse) => {
      const condition = request.headers['if-range']?.toString() ?? '';
      conditions.push(condition);
      const range = /bytes=(\d+)-/.exec(request.headers.range ?? '');
      const from = range !== null && condition === etag ? Number(range[1]) : 0;
      const body = content.subarray(from);
      response.writeHead(from > 0 ? 206 : 200, { 'content-length': body.length, etag });
      if (breakAfter >= body.length) response.end(body);
      else response.write(body.subarray(0, breakAfter));
      hangUp = () => response.destroy();
    };

    beforeEach(() => {
      etag = '"one"';
      content = payload;
      breakAfter = 50_000;
      conditions.length = 0;
    });

    it('goes on with the same file after a break, and tidies up', async () => {
      const url = await serve(answer);
      await expect(pull(target(url), { ...breaking, directory })).rejects.toMatchObject(broken);
      breakAfter = Number.POSITIVE_INFINITY;
      const pulled = await pull(target(url), options(null));
      expect(conditions).toEqual(['', '"one"']);
      expect(pulled.sha256).toBe(digest);
      expect(readdirSync(directory)).toEqual(['model.gguf']);
    });

    it('starts over when the file on the server is another one by then', async () => {
      const url = await serve(answer);
      await expect(pull(target(url), { ...breaking, directory })).rejects.toMatchObject(broken);
      etag = '"two"';
      content = Buffer.from(payload).reverse();
      breakAfter = Number.POSITIVE_INFINITY;
      const { path } = await pull(target(url), options(null));
      expect(conditions).toEqual(['', '"one"']);
      expect(readFileSync(path).equals(content)).toBe(true);
    });

    it('starts over when nothing says where the part came from and no digest would tell', async () => {
      const url = await serve(answer);
      breakAfter = Number.POSITIVE_INFINITY;
      writeFileSync(join(directory, 'model.gguf.part'), Buffer.alloc(1000, 9));
      expect((await pull(target(url), options(null))).sha256).toBe(digest);
      expect(conditions).toEqual(['']);
    });
  });

  it('keeps what arrived when the connection breaks, and says how to go on', async () => {
    const url = await serve((_request, response) => {
      response.writeHead(200, { 'content-length': payload.length });
      response.write(payload.subarray(0, 50_000), () => response.destroy());
    });
    await expect(
      pull({ kind: 'url', url, file: 'model.gguf' }, options(digest)),
    ).rejects.toMatchObject({ code: 'PULL_FAILED' });
    expect(readdirSync(directory)).toEqual(['model.gguf.part']);
  });

  it('deletes a file with the wrong digest and names both digests', async () => {
    const url = await serve(answerRanges);
    const wanted = 'f'.repeat(64);
    await expect(pull({ kind: 'url', url, file: 'model.gguf' }, options(wanted))).rejects.toThrow(
      new RegExp(`${digest}.*${wanted}`),
    );
    expect(readdirSync(directory)).toEqual([]);
  });

  it('fetches a catalogue file of the right size but the wrong digest again', async () => {
    const entry = {
      name: 'test',
      file: 'test.gguf',
      bytes: payload.length,
      sha256: digest,
      about: '',
      sources: [],
    };
    writeFileSync(join(directory, 'test.gguf'), Buffer.alloc(payload.length, 1));
    // Without a source, having to fetch is a failure that says where the file should go.
    await expect(pull({ kind: 'entry', entry }, options(null))).rejects.toThrow(/put the file at/);
    writeFileSync(join(directory, 'test.gguf'), payload);
    expect((await pull({ kind: 'entry', entry }, options(null))).present).toBe(true);
  });

  it('says which status a refusing server gave', async () => {
    const url = await serve((_request, response) => response.writeHead(404).end());
    await expect(pull({ kind: 'url', url, file: 'model.gguf' }, options(null))).rejects.toThrow(
      /answered 404/,
    );
  });

  it('copies a path and does not fetch again what is there', async () => {
    const source = join(directory, 'source.bin');
    writeFileSync(source, payload);
    const target = { kind: 'path', path: source, file: 'copy.gguf' } as const;
    expect((await pull(target, options(digest))).present).toBe(false);
    expect((await pull(target, options(digest))).present).toBe(true);
  });
});

describe('what to pull', () => {
  it('knows names, hub references, URLs and paths', () => {
    expect(parseTarget('SmolLM2-135M-Instruct').kind).toBe('entry');
    expect(parseTarget('hf:owner/repo/dir/file.gguf')).toMatchObject({
      kind: 'url',
      file: 'file.gguf',
    });
    expect(parseTarget('https://example.org/a/b.gguf?x=1')).toMatchObject({
      kind: 'url',
      file: 'b.gguf',
    });
    expect(parseTarget('./b.gguf')).toMatchObject({ kind: 'path', file: 'b.gguf' });
  });

  it('refuses what it does not know with the names it does', () => {
    expect(() => parseTarget('gpt-9')).toThrow(/smollm2-135m-instruct/);
    expect(() => parseTarget('hf:owner')).toThrow(/hf:OWNER\/REPO\/FILE/);
    expect(() => parseTarget('https://example.org/..')).toThrow();
  });

  it('escapes every part of a hub address', () => {
    expect(hubUrl({ repo: 'a/b', revision: 'main', file: 'x y#.gguf' }).pathname).toBe(
      '/a/b/resolve/main/x%20y%23.gguf',
    );
  });
});
