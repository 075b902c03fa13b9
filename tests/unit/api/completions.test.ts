// POST /v1/completions over real sockets: prompt forms, echo, integer logprobs, streaming.
import OpenAI from 'openai';
import { afterEach, expect, test } from 'vitest';
import {
  collect,
  type FixtureOptions,
  post,
  type ServerFixture,
  startServer,
} from './server-fixture.ts';

let fixture: ServerFixture;
afterEach(() => fixture.close());

async function start(options: FixtureOptions = {}): Promise<OpenAI> {
  fixture = await startServer(options);
  return new OpenAI({ baseURL: `${fixture.url}/v1`, apiKey: 'any', maxRetries: 0 });
}

const TEXT = 'Hello there, friend.';

test('the SDK gets a whole text completion', async () => {
  const client = await start();
  const answer = await client.completions.create({ model: 'cox-1', prompt: 'Once' });
  expect(answer.object).toBe('text_completion');
  expect(answer.choices).toEqual([{ index: 0, text: TEXT, logprobs: null, finish_reason: 'stop' }]);
  expect(answer.usage).toMatchObject({ prompt_tokens: 4, completion_tokens: 5, total_tokens: 9 });
  expect(fixture.backend.requests[0]).toMatchObject({ maxTokens: 16, logprobs: false });
});

test('the SDK streams a text completion with usage last', async () => {
  const client = await start();
  const stream = await client.completions.create({
    model: 'cox-1',
    prompt: 'Once',
    stream: true,
    stream_options: { include_usage: true },
  });
  const chunks = await collect(stream);
  expect(chunks.map((chunk) => chunk.choices[0]?.text ?? '').join('')).toBe(TEXT);
  expect(chunks.flatMap((chunk) => chunk.choices[0]?.finish_reason ?? [])).toEqual(['stop']);
  expect(chunks.at(-1)).toMatchObject({ choices: [], usage: { total_tokens: 9 } });
});

test.each([
  ['text', 'ab', [{ kind: 'text', text: 'ab' }]],
  ['empty text', '', [{ kind: 'text', text: '' }]],
  [
    'texts',
    ['ab', 'c'],
    [
      { kind: 'text', text: 'ab' },
      { kind: 'text', text: 'c' },
    ],
  ],
  ['token ids', [1, 2, 3], [{ kind: 'tokens', tokens: [1, 2, 3] }]],
  [
    'lists of token ids',
    [[1, 2], [3]],
    [
      { kind: 'tokens', tokens: [1, 2] },
      { kind: 'tokens', tokens: [3] },
    ],
  ],
])('a prompt may be %s', async (_name, prompt, prompts) => {
  await start();
  const answer = await post(`${fixture.url}/v1/completions`, { prompt });
  expect(answer.status).toBe(200);
  expect(fixture.backend.requests.map((request) => request.prompt)).toEqual(prompts);
  expect(answer.json.choices).toHaveLength(prompts.length);
});

test('many prompts run a few at a time and keep their indexes, with n choices each', async () => {
  const client = await start({ behaviour: { tokenDelayMs: 1 } });
  const prompt = Array.from({ length: 11 }, (_, index) => `prompt ${index} `);
  const whole = await client.completions.create({ model: 'cox-1', prompt, n: 2, echo: true });
  expect(whole.choices.map((choice) => choice.index)).toEqual([...Array(22).keys()]);
  whole.choices.forEach((choice, index) => {
    expect(choice.text).toBe(`prompt ${Math.floor(index / 2)} ${TEXT}`);
  });
  expect(whole.usage?.completion_tokens).toBe(11 * 2 * 5);
  expect(new Set(fixture.backend.requests.map((request) => request.id)).size).toBe(11);

  const stream = await client.completions.create({
    model: 'cox-1',
    prompt,
    n: 2,
    echo: true,
    stream: true,
  });
  const texts = new Map<number, string>();
  for await (const chunk of stream) {
    for (const { index, text } of chunk.choices) {
      texts.set(index, (texts.get(index) ?? '') + text);
    }
  }
  expect(texts.size).toBe(22);
  for (const [index, text] of texts) expect(text).toBe(whole.choices[index]?.text);
});

test('one failing prompt fails the call and stops the others', async () => {
  await start({ behaviour: { tokenDelayMs: 50, failAfter: { tokens: 1, error: new Error('x') } } });
  const answer = await post(`${fixture.url}/v1/completions`, { prompt: ['a', 'b', 'c', 'd', 'e'] });
  expect(answer.status).toBe(500);
  await expect.poll(() => fixture.backend.running).toBe(0);
  expect(fixture.backend.requests).toHaveLength(4);
});

test('integer logprobs have offsets into the text, streamed or not', async () => {
  const client = await start();
  const request = { model: 'cox-1', prompt: 'Once', logprobs: 1 };
  const whole = await client.completions.create(request);
  expect(whole.choices[0]?.logprobs).toEqual({
    tokens: ['Hello', ' there', ',', ' friend', '.'],
    token_logprobs: [-0.5, -0.5, -0.5, -0.5, -0.5],
    top_logprobs: ['Hello', ' there', ',', ' friend', '.'].map((token) => ({ [token]: -0.5 })),
    text_offset: [0, 5, 11, 12, 19],
  });
  const chunks = await collect(await client.completions.create({ ...request, stream: true }));
  const offsets = chunks.flatMap((chunk) => chunk.choices[0]?.logprobs?.text_offset ?? []);
  expect(offsets).toEqual([0, 5, 11, 12, 19]);
});

test('logprobs 0 gives the sampled tokens only', async () => {
  await start();
  const answer = await post(`${fixture.url}/v1/completions`, { prompt: 'a', logprobs: 0 });
  expect(answer.json.choices[0].logprobs).toMatchObject({ top_logprobs: null });
  expect(answer.json.choices[0].logprobs.tokens).toHaveLength(5);
});

test.each([
  ['suffix', { suffix: ' end' }, 'suffix'],
  ['best_of other than n', { best_of: 3, n: 2 }, 'best_of'],
  ['echo with logprobs', { echo: true, logprobs: 1 }, 'echo'],
  ['echo of token ids', { echo: true, prompt: [1, 2] }, 'echo'],
])('refuses %s by name', async (_name, fields, param) => {
  await start();
  const answer = await post(`${fixture.url}/v1/completions`, { prompt: 'a', ...fields });
  expect(answer.status).toBe(400);
  expect(answer.json.error).toMatchObject({ param, code: 'unsupported_parameter' });
});

test.each([
  ['no prompt', {}, 'prompt'],
  ['an empty list', { prompt: [] }, 'prompt'],
  ['mixed lists', { prompt: ['a', 1] }, /^prompt/],
  ['a negative id', { prompt: [-1] }, 'prompt[0]'],
  ['an empty token list', { prompt: [[]] }, 'prompt[0]'],
  ['best_of beside n', { prompt: 'a', best_of: 0 }, 'best_of'],
])('refuses %s and names the field', async (_name, body, param) => {
  await start();
  const answer = await post(`${fixture.url}/v1/completions`, body);
  expect(answer.status).toBe(400);
  expect(answer.json.error.param).toMatch(param);
  expect(answer.json.error.type).toBe('invalid_request_error');
});

test('best_of equal to n is the default and accepted', async () => {
  await start();
  const body = { prompt: 'a', best_of: 2, n: 2 };
  expect((await post(`${fixture.url}/v1/completions`, body)).status).toBe(200);
});
