// Routes, authentication, limits and error shapes, over real sockets.
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';
import OpenAI from 'openai';
import { afterEach, describe, expect, test } from 'vitest';
import { ERROR_CODES, type ErrorCode } from '../../../src/base/error-codes.ts';
import { CoxswainError } from '../../../src/base/errors.ts';
import { rawClient } from './raw-http.ts';
import { type FixtureOptions, post, type ServerFixture, startServer } from './server-fixture.ts';

let fixture: ServerFixture;
afterEach(() => fixture.close());

async function start(options: FixtureOptions = {}): Promise<string> {
  fixture = await startServer(options);
  return fixture.url;
}

const chat = { model: 'cox-1', messages: [{ role: 'user', content: 'hi' }] };
const sdk = (apiKey = 'any') => new OpenAI({ baseURL: `${fixture.url}/v1`, apiKey, maxRetries: 0 });

describe('routes', () => {
  test('list models and one model, whose name may hold slashes', async () => {
    await start();
    const client = sdk();
    const models = await client.models.list();
    expect(models.data.map((model) => model.id)).toEqual(['cox-1', 'family/cox-small']);
    expect(models.data[0]).toMatchObject({
      object: 'model',
      owned_by: 'coxswain',
      context_length: 4096,
    });
    expect((await client.models.retrieve('cox-1')).id).toBe('cox-1');
    const slashed = await fetch(`${fixture.url}/v1/models/family/cox-small`);
    expect(slashed.status).toBe(200);
    await expect(client.models.retrieve('nothing')).rejects.toBeInstanceOf(OpenAI.NotFoundError);
  });

  test('answer with and without /v1, and with a query', async () => {
    const url = await start();
    expect((await post(`${url}/chat/completions`, chat)).status).toBe(200);
    expect((await post(`${url}/v1/chat/completions?beta=true`, chat)).status).toBe(200);
    expect((await fetch(`${url}/models`)).status).toBe(200);
    expect((await fetch(url, { method: 'HEAD' })).status).toBe(200);
  });

  test('tell health by status and state', async () => {
    const url = await start();
    const well = await fetch(`${url}/health`);
    expect([well.status, await well.json()]).toEqual([200, { status: 'ok', state: 'serving' }]);
    fixture.backend.behaviour = { health: { ok: false, state: 'loading' } };
    const ill = await fetch(`${url}/health`);
    expect([ill.status, await ill.json()]).toEqual([
      503,
      { status: 'unavailable', state: 'loading' },
    ]);
  });

  test('give the metrics of the cluster and of HTTP, and the cluster', async () => {
    const url = await start();
    await post(`${url}/v1/chat/completions`, chat);
    const response = await fetch(`${url}/metrics`);
    expect(response.headers.get('content-type')).toContain('text/plain');
    const text = await response.text();
    expect(text).toContain('coxswain_fake 1\n');
    const labels = 'endpoint="/v1/chat/completions"';
    expect(text).toContain(`coxswain_http_requests_total{${labels},status="200"} 1`);
    expect(text).toContain(`coxswain_http_tokens_total{${labels},kind="completion"} 5`);
    expect(text).toContain(`coxswain_http_ttft_seconds_count{${labels}} 1`);
    expect(await (await fetch(`${url}/v1/cluster`)).json()).toEqual({ epoch: 1, ranks: [] });
  });

  test('answer what is not served with an OpenAI error', async () => {
    const url = await start();
    const missing = await post(`${url}/v1/responses`, {});
    expect(missing.status).toBe(404);
    expect(missing.json.error).toMatchObject({
      type: 'invalid_request_error',
      code: 'unknown_url',
    });
    const get = await fetch(`${url}/v1/chat/completions`);
    expect([get.status, get.headers.get('allow')]).toEqual([405, 'POST']);
    expect(await get.json()).toMatchObject({ error: { code: 'method_not_allowed' } });
    expect((await post(`${url}/v1/models`, {})).status).toBe(405);
    expect((await fetch(`${url}/v1/%zz`)).status).toBe(400);
    expect((await fetch(`${url}/v1/cluster`, { method: 'OPTIONS' })).status).toBe(405);
  });

  test('turn a WebSocket probe away in the way that makes clients use HTTP', async () => {
    const url = await start();
    const client = rawClient(
      url,
      'GET /v1/responses HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n',
    );
    await client.until('\r\n\r\n');
    expect(client.text()).toMatch(/^HTTP\/1\.1 426 /);
    client.socket.destroy();
  });
});

describe('API keys', () => {
  const apiKeys = ['first-key', 'second-key'];

  test('are asked for everywhere but on health', async () => {
    const url = await start({ apiKeys });
    for (const path of ['/v1/models', '/metrics', '/v1/cluster', '/nowhere']) {
      const refused = await fetch(`${url}${path}`);
      expect([path, refused.status]).toEqual([path, 401]);
      expect(await refused.json()).toMatchObject({
        error: { type: 'authentication_error', code: 'invalid_api_key' },
      });
    }
    expect((await fetch(`${url}/health`)).status).toBe(200);
    await expect(sdk('wrong').models.list()).rejects.toBeInstanceOf(OpenAI.AuthenticationError);
  });

  test('open the server, as Bearer or x-api-key, and give each key a scope of its own', async () => {
    const url = await start({ apiKeys });
    await sdk('first-key')
      .chat.completions.create({ model: 'cox-1', messages: [] as never[] })
      .catch(() => undefined);
    await post(`${url}/v1/chat/completions`, chat, { authorization: 'bearer first-key' });
    await post(`${url}/v1/chat/completions`, chat, { 'x-api-key': 'first-key' });
    await post(`${url}/v1/chat/completions`, chat, { authorization: 'Bearer second-key' });
    const scopes = fixture.backend.requests.map((request) => request.scope);
    expect(scopes).toHaveLength(3);
    expect(scopes[0]).toBe(scopes[1]);
    expect(scopes[1]).not.toBe(scopes[2]);
  });

  test('are refused before the body is read', async () => {
    const url = await start({ apiKeys, limits: { bodyBytesMax: 1000 } });
    const big = await post(`${url}/v1/chat/completions`, { pad: 'x'.repeat(5000) });
    expect(big.status).toBe(401);
  });
});

describe('bodies', () => {
  test.each([
    ['text/plain', { 'content-type': 'text/plain' }],
    ['no sensible type', { 'content-type': 'banana' }],
  ])('are read as JSON under %s', async (_name, headers) => {
    const url = await start();
    expect((await post(`${url}/v1/chat/completions`, chat, headers)).status).toBe(200);
  });

  test.each([
    ['gzip', gzipSync],
    ['deflate', deflateSync],
    ['br', brotliCompressSync],
  ])('may be compressed with %s', async (encoding, compress) => {
    const url = await start();
    const response = await fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-encoding': encoding },
      body: compress(JSON.stringify(chat)),
    });
    expect(response.status).toBe(200);
  });

  test.each([
    ['not JSON', '{"model":', {}],
    ['empty', '', {}],
    ['an array', '[]', {}],
    ['null', 'null', {}],
    ['badly compressed', JSON.stringify(chat), { 'content-encoding': 'gzip' }],
    ['in an unknown encoding', JSON.stringify(chat), { 'content-encoding': 'zstd' }],
  ])('that are %s get a 400', async (_name, body, headers) => {
    const url = await start();
    const answer = await post(`${url}/v1/chat/completions`, body, headers);
    expect(answer.status).toBe(400);
    expect(answer.json.error.type).toBe('invalid_request_error');
    expect(fixture.rawLog()).not.toContain('"level":50');
  });

  test('that are not UTF-8 get a 400', async () => {
    const url = await start();
    const body = Buffer.concat([Buffer.from('{"model":"'), Buffer.from([0xff]), Buffer.from('"}')]);
    const answer = await fetch(`${url}/v1/chat/completions`, { method: 'POST', body });
    expect(answer.status).toBe(400);
  });

  test('over the limit get a 413, also when they hide it by compression', async () => {
    const url = await start({ limits: { bodyBytesMax: 10_000 } });
    const body = JSON.stringify({ ...chat, pad: 'x'.repeat(100_000) });
    const plain = await post(`${url}/v1/chat/completions`, body);
    expect([plain.status, plain.json.error.code]).toEqual([413, 'request_too_large']);
    const packed = await fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-encoding': 'gzip' },
      body: gzipSync(body),
    });
    expect(packed.status).toBe(413);
  });

  test('together over the memory for bodies get a 429, and the memory comes back', async () => {
    const limits = { bodiesBytesMax: 30_000, bodyBytesMax: 20_000 };
    const url = await start({ limits, behaviour: { prefillDelayMs: 1000 } });
    const body = { ...chat, user: null, pad: 'x'.repeat(10_000) };
    const all = await Promise.all(
      Array.from({ length: 5 }, () => post(`${url}/v1/chat/completions`, body)),
    );
    expect(all.map((answer) => answer.status).sort()).toEqual([200, 200, 429, 429, 429]);
    expect((await post(`${url}/v1/chat/completions`, body)).status).toBe(200);
  });

  test('whose sender goes away half-way are a cancelled request, not a fault', async () => {
    const url = await start();
    const client = rawClient(
      url,
      'POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nContent-Length: 5000\r\n\r\n{"messages":',
    );
    await new Promise((resolve) => setTimeout(resolve, 100));
    client.socket.destroy();
    await expect.poll(() => fixture.rows.length).toBe(1);
    expect(fixture.rows[0]).toMatchObject({ level: 30, status: 499 });
    expect(fixture.backend.requests).toHaveLength(0);
  });

  test('of headers beyond all measure get a 431', async () => {
    const url = await start();
    const client = rawClient(url, `GET / HTTP/1.1\r\nX-Long: ${'x'.repeat(40_000)}\r\n\r\n`);
    await client.closed;
    expect(client.text()).toMatch(/^HTTP\/1\.1 431 /);
  });

  test('that are not HTTP at all get a 400 and the connection is closed', async () => {
    const url = await start();
    const client = rawClient(url, 'this is not http\r\n\r\n');
    await client.closed;
    expect(client.text()).toMatch(/^HTTP\/1\.1 400 /);
    expect(client.text()).toContain('"type":"invalid_request_error"');
  });
});

describe('errors', () => {
  test.each([
    ['temperature', { temperature: 3 }],
    ['top_p', { top_p: -0.1 }],
    ['messages', { messages: [] }],
    ['messages', { messages: 'hi' }],
    ['messages[0].role', { messages: [{ role: 'king', content: '' }] }],
    ['messages[0].content', { messages: [{ role: 'user', content: 5 }] }],
    ['messages[0].content[0].text', { messages: [{ role: 'user', content: [{ type: 'text' }] }] }],
    ['n', { n: 9 }],
    ['max_tokens', { max_tokens: 0 }],
    ['max_tokens', { max_tokens: 1.5 }],
    ['top_logprobs', { top_logprobs: 3 }],
    ['top_logprobs', { logprobs: true, top_logprobs: 21 }],
    ['stop[1]', { stop: ['a', ''] }],
    ['stop', { stop: Array(17).fill('x') }],
    ['logit_bias.x', { logit_bias: { x: 1 } }],
    ['logit_bias.5', { logit_bias: { 5: 101 } }],
    ['seed', { seed: 0.5 }],
    ['stream', { stream: 'yes' }],
    ['user', { user: 'ü'.repeat(257) }],
  ])('name the field %s', async (param, fields) => {
    const url = await start();
    const answer = await post(`${url}/v1/chat/completions`, { ...chat, ...fields });
    expect(answer.status).toBe(400);
    expect(answer.json.error).toMatchObject({ param, type: 'invalid_request_error', code: null });
    expect(answer.json.error.message).toContain(param);
  });

  test.each([
    ['tools', { tools: [{ type: 'function', function: { name: 'f' } }] }],
    ['tool_choice', { tool_choice: 'required' }],
    ['tool_choice', { tool_choice: { type: 'function', function: { name: 'f' } } }],
    ['functions', { functions: [{ name: 'f' }] }],
    ['response_format', { response_format: { type: 'json_object' } }],
    ['audio', { audio: { voice: 'x' } }],
    ['modalities', { modalities: ['text', 'audio'] }],
    ['reasoning_effort', { reasoning_effort: 'low' }],
    ['web_search_options', { web_search_options: {} }],
    [
      'messages[0].content[0].image_url',
      { messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'x' } }] }] },
    ],
    [
      'messages[1].tool_calls',
      {
        messages: [
          { role: 'user', content: 'x' },
          { role: 'assistant', content: null, tool_calls: [{ id: 'a' }] },
        ],
      },
    ],
  ])('refuse %s, which is not built yet', async (param, fields) => {
    const url = await start();
    const answer = await post(`${url}/v1/chat/completions`, { ...chat, ...fields });
    expect(answer.status).toBe(400);
    expect(answer.json.error).toMatchObject({ param, code: 'unsupported_parameter' });
  });

  test('name the models there are when asked for another', async () => {
    await start();
    const asked = sdk().chat.completions.create({
      model: 'gpt-9',
      messages: chat.messages as never,
    });
    await expect(asked).rejects.toBeInstanceOf(OpenAI.NotFoundError);
    await expect(asked).rejects.toThrow(/cox-1, family\/cox-small/);
  });

  test.each(Object.keys(ERROR_CODES) as ErrorCode[])(
    '%s of the backend has its status',
    async (code) => {
      const secret = '/home/someone/model.gguf';
      const url = await start({
        behaviour: { refuse: new CoxswainError(code, `broken ${secret}`) },
      });
      for (const stream of [false, true]) {
        const answer = await post(`${url}/v1/chat/completions`, { ...chat, stream });
        const { httpStatus } = ERROR_CODES[code];
        expect(answer.status).toBe(httpStatus);
        expect(answer.text).not.toContain(code);
        expect(answer.text).not.toContain(' at ');
        if (httpStatus >= 500) expect(answer.text).not.toMatch(/someone|gguf/);
        const isLoad = httpStatus === 429 || httpStatus === 503;
        expect(answer.headers.get('retry-after')).toBe(isLoad ? '1' : null);
        expect(answer.json.error.type === 'server_error').toBe(httpStatus >= 500);
      }
    },
  );

  test.each([
    ['cannot open /srv/models/a b.gguf: gone', 'cannot open [path] b.gguf: gone'],
    ['"/home/x/m.gguf" is cut short', '"[path]" is cut short'],
    ['it said: at file:///opt/cox/main.js:3:9', 'it said: at [path]:3:9'],
    ['see ~/models/m.gguf, ../m.gguf and models/m.gguf', 'see [path], [path] and [path]'],
    ['rank 1 (10.0.0.2:7070) waited 12 of 40 tokens/s', null],
    ['LINK_TIMEOUT in step 3, layer 7, attention (epoch 2, 0 of 64 bytes)', null],
  ])('tell no path: %s', async (sentence, told) => {
    const refuse = new CoxswainError('RECOVERY_FAILED', sentence);
    const url = await start({ behaviour: { refuse } });
    const answer = await post(`${url}/v1/chat/completions`, chat);
    expect(answer.json.error.message).toBe(told ?? sentence);
    // Written when the response is over.
    await expect.poll(() => fixture.rawLog()).toContain(JSON.stringify(sentence).slice(1, -1));
  });

  test('tell no path in a stream either, and log the whole sentence', async () => {
    const error = new CoxswainError('RANK_LOST', 'rank 0 lost /home/someone/model.gguf');
    const url = await start({ behaviour: { failAfter: { tokens: 1, error } } });
    const answer = await post(`${url}/v1/chat/completions`, { ...chat, stream: true });
    expect(answer.text).toContain('rank 0 lost [path]');
    await expect.poll(() => fixture.rawLog()).toContain('/home/someone/model.gguf');
  });

  test('keep what broke inside the server, and log it', async () => {
    const url = await start({ behaviour: { refuse: new TypeError('secret detail') as never } });
    const answer = await post(`${url}/v1/chat/completions`, chat);
    expect([answer.status, answer.headers.get('x-should-retry')]).toEqual([500, 'false']);
    expect(answer.text).not.toContain('secret detail');
    expect(answer.json.error.message).toContain(answer.headers.get('x-request-id'));
    expect(fixture.rawLog()).toContain('secret detail');
  });

  test('carry the Retry-After of the backend to the SDK', async () => {
    await start({ behaviour: { runningMax: 0 } });
    const asked = sdk().chat.completions.create({
      model: 'cox-1',
      messages: chat.messages as never,
    });
    await expect(asked).rejects.toBeInstanceOf(OpenAI.RateLimitError);
    const error = (await asked.catch((thrown: unknown) => thrown)) as InstanceType<
      typeof OpenAI.RateLimitError
    >;
    expect(error.headers.get('retry-after')).toBe('3');
    expect(error.requestID).toMatch(/^[0-9a-f]{32}$/);
  });
});

describe('request ids', () => {
  test('are taken from the client where they are plain, and made where not', async () => {
    const url = await start();
    const plain = await post(`${url}/v1/chat/completions`, chat, { 'x-request-id': 'abc-1' });
    expect(plain.headers.get('x-request-id')).toBe('abc-1');
    const odd = await post(`${url}/v1/chat/completions`, chat, { 'x-request-id': 'a b"c' });
    expect(odd.headers.get('x-request-id')).toMatch(/^[0-9a-f]{32}$/);
    const again = await post(`${url}/v1/chat/completions`, chat, { 'x-request-id': 'abc-1' });
    expect(again.json.id).not.toBe(plain.json.id);
  });
});

describe('the log', () => {
  test('has one row a request, with figures and without text', async () => {
    const url = await start({ apiKeys: ['the-key'] });
    const headers = { authorization: 'Bearer the-key' };
    const messages = [{ role: 'user', content: 'a most private question' }];
    await post(`${url}/v1/chat/completions`, { messages, user: 'ann@home' }, headers);
    await post(`${url}/v1/completions`, { prompt: 'private too', stream: true }, headers);
    await post(`${url}/v1/completions`, { prompt: 5 }, headers);
    await fetch(`${url}/health`);
    await expect.poll(() => fixture.rows.length).toBe(4);
    expect(fixture.rows[0]).toMatchObject({
      level: 30,
      msg: 'request',
      endpoint: '/v1/chat/completions',
      model: 'cox-1',
      prompt_tokens: 27,
      cached_percent: 48,
      completion_tokens: 5,
      finish: 'stop',
      status: 200,
    });
    expect(fixture.rows[1]).toMatchObject({ endpoint: '/v1/completions', finish: 'stop' });
    expect(fixture.rows[2]).toMatchObject({ finish: 'REQUEST_INVALID', status: 400 });
    expect(fixture.rows[3]).toMatchObject({ level: 20, endpoint: '/health' });
    for (const text of ['private', 'Hello', 'the-key', 'ann@home']) {
      expect(fixture.rawLog()).not.toContain(text);
    }
  });
});
