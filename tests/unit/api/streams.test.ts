// Streams as clients meet them: terminal markers, keepalives, failures, hang-ups, slow readers, shutdown.
import OpenAI from 'openai';
import { afterEach, describe, expect, test } from 'vitest';
import { CoxswainError } from '../../../src/base/errors.ts';
import { rawClient, rawPost } from './raw-http.ts';
import { type FixtureOptions, post, type ServerFixture, startServer } from './server-fixture.ts';

let fixture: ServerFixture;
afterEach(() => fixture.close());

async function start(options: FixtureOptions = {}): Promise<string> {
  fixture = await startServer(options);
  return fixture.url;
}

const PATH = '/v1/chat/completions';
const chat = { model: 'cox-1', messages: [{ role: 'user', content: 'hi' }], stream: true };
const many = Array.from({ length: 100_000 }, (_, index) => ` word${index}`);

/** The data payloads of an SSE body, by a parser that is fed `step` bytes at a time. */
function frames(body: Buffer, step: number): string[] {
  const decoder = new TextDecoder();
  const found: string[] = [];
  let rest = '';
  for (let at = 0; at < body.length; at += step) {
    rest += decoder.decode(body.subarray(at, at + step), { stream: true });
    for (let end = rest.indexOf('\n\n'); end >= 0; end = rest.indexOf('\n\n')) {
      const frame = rest.slice(0, end);
      rest = rest.slice(end + 2);
      if (!frame.startsWith(':')) found.push(frame.replace(/^data: /, ''));
    }
  }
  expect(rest).toBe('');
  return found;
}

describe('a stream', () => {
  test('says the same however its bytes are cut, with whole characters', async () => {
    const words = ['Grüße', ' 日本', '語 ', '👩‍🚀', ' end\n\ndata: x'];
    const url = await start({ behaviour: { words } });
    const response = await fetch(url + PATH, { method: 'POST', body: JSON.stringify(chat) });
    expect(response.headers.get('content-type')).toBe('text/event-stream; charset=utf-8');
    expect(response.headers.get('cache-control')).toBe('no-cache');
    expect(response.headers.get('x-accel-buffering')).toBe('no');
    const body = Buffer.from(await response.arrayBuffer());
    const whole = frames(body, body.length);
    expect(frames(body, 1)).toEqual(whole);
    expect(frames(body, 7)).toEqual(whole);
    expect(whole.at(-1)).toBe('[DONE]');
    expect(whole).not.toContain('');
    const chunks = whole.slice(0, -1).map((frame) => JSON.parse(frame));
    const text = chunks.map((chunk) => chunk.choices[0]?.delta.content ?? '').join('');
    expect(text).toBe(words.join(''));
    expect(chunks.filter((chunk) => chunk.choices[0]?.finish_reason !== null)).toHaveLength(1);
  });

  test('has its headers at once and keepalive comments while the prompt is computed', async () => {
    const url = await start({
      behaviour: { prefillDelayMs: 1500 },
      limits: { keepaliveMs: 50 },
    });
    const begun = performance.now();
    const response = await fetch(url + PATH, { method: 'POST', body: JSON.stringify(chat) });
    expect(performance.now() - begun).toBeLessThan(1000);
    const text = await response.text();
    expect(text.match(/^: keepalive$/gm)?.length).toBeGreaterThanOrEqual(3);
    expect(text.endsWith('data: [DONE]\n\n')).toBe(true);
  });

  test('has its headers soon even while it is queued; a late refusal comes in-band', async () => {
    const url = await start({
      behaviour: { admissionDelayMs: 1500, words: [], endEarly: true },
      limits: { headersAfterMs: 50, keepaliveMs: 60 },
    });
    const begun = performance.now();
    const response = await fetch(url + PATH, { method: 'POST', body: JSON.stringify(chat) });
    expect(performance.now() - begun).toBeLessThan(1000);
    expect(response.status).toBe(200);
    const text = await response.text();
    expect(text).toContain(': keepalive');
    expect(text).toContain('"error":{');
    expect(text.endsWith('data: [DONE]\n\n')).toBe(true);
  });

  test('goes on after a recovery, told by a comment', async () => {
    const url = await start({
      behaviour: { recoverAfter: { tokens: 2, pauseMs: 400 } },
      limits: { keepaliveMs: 40 },
    });
    const answer = await post(url + PATH, chat);
    expect(answer.text).toContain(': recovering\n\n');
    expect(answer.text).toContain(': keepalive\n\n');
    const text = frames(Buffer.from(answer.text), 100)
      .slice(0, -1)
      .map((frame) => JSON.parse(frame).choices[0]?.delta.content ?? '')
      .join('');
    expect(text).toBe('Hello there, friend.');
  });

  test.each([
    ['a lost rank', new CoxswainError('RANK_LOST', 'rank 1 was lost'), 'rank 1 was lost'],
    ['a bug', new TypeError('secret detail'), 'The server failed'],
  ])('ends in-band after %s, and the SDK throws', async (_name, error, message) => {
    const url = await start({ behaviour: { failAfter: { tokens: 2, error } } });
    const answer = await post(url + PATH, chat);
    expect(answer.status).toBe(200);
    const all = frames(Buffer.from(answer.text), 100);
    expect(all.at(-1)).toBe('[DONE]');
    const { error: body } = JSON.parse(all.at(-2) ?? '');
    expect(body).toMatchObject({ type: 'server_error', param: null });
    expect(body.message).toContain(message);
    expect(answer.text).not.toContain('secret');
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'x', maxRetries: 0 });
    const consume = async () => {
      const request = { model: 'cox-1', messages: chat.messages as never, stream: true as const };
      for await (const _chunk of await client.chat.completions.create(request));
    };
    await expect(consume()).rejects.toBeInstanceOf(OpenAI.APIError);
  });

  test('that the backend leaves without an end is told as an error, never just closed', async () => {
    const url = await start({ behaviour: { endEarly: true } });
    const streamed = await post(url + PATH, chat);
    expect(streamed.text).toMatch(/"error":\{.*\n\ndata: \[DONE\]\n\n$/);
    expect((await post(url + PATH, { ...chat, stream: false })).status).toBe(500);
  });
});

describe('a client that goes away', () => {
  test.each([
    ['in mid-stream', true, { words: many, tokenDelayMs: 5 }],
    ['while its prompt is computed', true, { prefillDelayMs: 60_000 }],
    ['while it waits for a whole answer', false, { prefillDelayMs: 60_000 }],
    ['while it is queued', true, { admissionDelayMs: 60_000 }],
  ])('%s stops the work within 100 ms', async (_name, stream, behaviour) => {
    const url = await start({ behaviour });
    const client = rawClient(url, rawPost(PATH, { ...chat, stream }));
    await expect.poll(() => fixture.backend.running, { interval: 5 }).toBe(1);
    await new Promise((resolve) => setTimeout(resolve, 50));
    const left = performance.now();
    client.socket.destroy();
    await expect.poll(() => fixture.backend.running, { interval: 2 }).toBe(0);
    expect((fixture.backend.abortedAtMs[0] ?? Number.NaN) - left).toBeLessThan(100);
    await expect.poll(() => fixture.rows.length).toBe(1);
    expect(fixture.rows[0]).toMatchObject({ status: 499 });
  });

  test("by the SDK's abort stops the work too", async () => {
    const url = await start({ behaviour: { words: many, tokenDelayMs: 2 } });
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'x', maxRetries: 0 });
    const stream = await client.chat.completions.create({
      model: 'cox-1',
      messages: chat.messages as never,
      stream: true,
    });
    let seen = 0;
    for await (const _chunk of stream) {
      seen += 1;
      if (seen === 5) stream.controller.abort();
    }
    await expect.poll(() => fixture.backend.running).toBe(0);
    expect(fixture.backend.produced).toBeLessThan(200);
  });
});

describe('a slow reader', () => {
  test('holds a bounded part of its answer, and gets all of it when it reads on', async () => {
    const words = many.slice(0, 60_000);
    const url = await start({ behaviour: { words } });
    const client = rawClient(url, rawPost(PATH, chat), { paused: true });
    await expect.poll(() => fixture.backend.produced).toBeGreaterThan(100);
    let before = -1;
    while (before !== fixture.backend.produced) {
      before = fixture.backend.produced;
      await new Promise((resolve) => setTimeout(resolve, 150));
    }
    // 60,000 chunks of about 200 bytes: the sockets' buffers hold a part of them.
    expect(fixture.backend.produced).toBeLessThan(50_000);
    let received = '';
    client.socket.on('data', (chunk) => {
      received = (received + chunk.toString()).slice(-200);
    });
    client.socket.resume();
    await expect.poll(() => received, { timeout: 20_000 }).toContain('data: [DONE]');
    expect(fixture.backend.produced).toBe(60_000);
    client.socket.destroy();
  });

  test('that stops for too long is cut off and its work stopped', async () => {
    const url = await start({ behaviour: { words: many }, limits: { drainTimeoutMs: 200 } });
    const client = rawClient(url, rawPost(PATH, chat), { paused: true });
    await expect.poll(() => fixture.backend.running).toBe(1);
    await expect.poll(() => fixture.backend.running, { timeout: 10_000 }).toBe(0);
    expect(fixture.backend.produced).toBeLessThan(100_000);
    client.socket.destroy();
  });
});

describe('shutdown', () => {
  test('ends streams in-band, answers 503 to the rest, and closes every connection', async () => {
    const url = await start({ behaviour: { words: many, tokenDelayMs: 5 } });
    const streaming = rawClient(url, rawPost(PATH, chat));
    const waiting = post(url + PATH, { ...chat, stream: false });
    const idle = rawClient(url, 'GET /health HTTP/1.1\r\nHost: t\r\n\r\n');
    await streaming.until('word3');
    await idle.until('serving');
    const begun = performance.now();
    await fixture.close();
    expect(performance.now() - begun).toBeLessThan(3_000);
    await Promise.all([streaming.closed, idle.closed]);
    expect(streaming.text()).toContain('"type":"server_error"');
    expect(streaming.text()).toContain('data: [DONE]\n\n');
    const answer = await waiting;
    expect([answer.status, answer.headers.get('retry-after')]).toEqual([503, '5']);
    expect(fixture.backend.running).toBe(0);
    await expect(fetch(url)).rejects.toThrow();
  });

  test('does not wait for ever for a reader that stopped', async () => {
    const url = await start({ behaviour: { words: many }, limits: { closeGraceMs: 300 } });
    const stuck = rawClient(url, rawPost(PATH, chat), { paused: true });
    await expect.poll(() => fixture.backend.produced).toBeGreaterThan(1000);
    const begun = performance.now();
    await fixture.close();
    expect(performance.now() - begun).toBeLessThan(3_000);
    expect(fixture.backend.running).toBe(0);
    stuck.socket.destroy();
  });
});
