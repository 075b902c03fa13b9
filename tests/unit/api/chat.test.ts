// POST /v1/chat/completions over real sockets, by the official SDK and by hand.
import OpenAI from 'openai';
import { afterEach, describe, expect, test } from 'vitest';
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

const hello = [{ role: 'user' as const, content: 'Say hello' }];

describe('the official SDK', () => {
  test('gets a whole answer with usage', async () => {
    const client = await start();
    const answer = await client.chat.completions.create({ model: 'cox-1', messages: hello });
    expect(answer.choices).toHaveLength(1);
    expect(answer.choices[0]?.message).toMatchObject({
      role: 'assistant',
      content: 'Hello there, friend.',
    });
    expect(answer.choices[0]?.finish_reason).toBe('stop');
    expect(answer.object).toBe('chat.completion');
    expect(answer.id).toMatch(/^chatcmpl-/);
    expect(answer.usage).toEqual({
      prompt_tokens: 13,
      completion_tokens: 5,
      total_tokens: 18,
      prompt_tokens_details: { cached_tokens: 6 },
    });
  });

  test('streams the same answer, one role, one finish and one usage chunk', async () => {
    const client = await start();
    const stream = await client.chat.completions.create({
      model: 'cox-1',
      messages: hello,
      stream: true,
      stream_options: { include_usage: true },
    });
    const chunks = await collect(stream);
    expect(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? '').join('')).toBe(
      'Hello there, friend.',
    );
    expect(chunks.filter((chunk) => chunk.choices[0]?.delta.role === 'assistant')).toHaveLength(1);
    const finishes = chunks.flatMap((chunk) => chunk.choices[0]?.finish_reason ?? []);
    expect(finishes).toEqual(['stop']);
    expect(chunks.at(-1)).toMatchObject({ choices: [], usage: { total_tokens: 18 } });
    expect(chunks.slice(0, -1).every((chunk) => chunk.usage === null)).toBe(true);
    expect(new Set(chunks.map((chunk) => chunk.id)).size).toBe(1);
  });
});

describe('options', () => {
  test('reach the backend as asked, max_completion_tokens before max_tokens', async () => {
    const client = await start();
    await client.chat.completions.create({
      model: 'cox-1',
      messages: [
        { role: 'developer', content: 'Be brief' },
        {
          role: 'user',
          content: [
            { type: 'text', text: 'one' },
            { type: 'text', text: 'two' },
          ],
          name: 'ann',
        },
        { role: 'assistant', content: null },
        { role: 'tool', content: 'result', tool_call_id: 'call_1' },
      ],
      temperature: 0.5,
      top_p: 0.9,
      presence_penalty: 1,
      frequency_penalty: -1,
      logit_bias: { '17': -100, '3': 5 },
      seed: 42,
      stop: ['END', '\n\n'],
      max_tokens: 99,
      max_completion_tokens: 3,
      n: 2,
      logprobs: true,
      top_logprobs: 2,
      ...{ top_k: 40, min_p: 0.1, repetition_penalty: 1.1, ignore_eos: true },
    });
    expect(fixture.backend.requests[0]).toMatchObject({
      prompt: {
        kind: 'chat',
        messages: [
          { role: 'developer', content: 'Be brief' },
          { role: 'user', content: 'one\ntwo', name: 'ann' },
          { role: 'assistant', content: '' },
          { role: 'tool', content: 'result' },
        ],
      },
      maxTokens: 3,
      temperature: 0.5,
      topP: 0.9,
      topK: 40,
      minP: 0.1,
      repetitionPenalty: 1.1,
      presencePenalty: 1,
      frequencyPenalty: -1,
      logitBias: [
        [3, 5],
        [17, -100],
      ],
      seed: 42,
      stop: ['END', '\n\n'],
      choices: 2,
      logprobs: true,
      topLogprobs: 2,
      ignoreEos: true,
    });
  });

  test('left out, or null, mean the documented defaults', async () => {
    await start();
    const nulls = { temperature: null, top_p: null, stop: null, seed: null, n: null, tools: null };
    const answer = await post(`${fixture.url}/v1/chat/completions`, {
      messages: hello,
      ...nulls,
      ...{ tools: [], tool_choice: 'none', response_format: { type: 'text' }, logit_bias: null },
    });
    expect(answer.status).toBe(200);
    expect(fixture.backend.requests[0]).toMatchObject({
      model: 'cox-1',
      maxTokens: null,
      temperature: 1,
      topP: 1,
      topK: 0,
      minP: 0,
      repetitionPenalty: 1,
      presencePenalty: 0,
      frequencyPenalty: 0,
      logitBias: [],
      seed: null,
      stop: [],
      choices: 1,
      logprobs: false,
      topLogprobs: 0,
      ignoreEos: false,
    });
  });

  test('unknown fields change nothing and are counted', async () => {
    await start();
    const body = { model: 'cox-1', messages: hello, store: true, colour: 'red', zzz: 1 };
    expect((await post(`${fixture.url}/v1/chat/completions`, body)).status).toBe(200);
    const metrics = await (await fetch(`${fixture.url}/metrics`)).text();
    expect(metrics).toContain(
      'coxswain_http_ignored_fields_total{endpoint="/v1/chat/completions"} 2',
    );
  });

  test('logprobs come with the tokens, impossible ones as -9999', async () => {
    const client = await start();
    const answer = await client.chat.completions.create({
      model: 'cox-1',
      messages: hello,
      logprobs: true,
      top_logprobs: 2,
      max_tokens: 1,
    });
    expect(answer.choices[0]?.finish_reason).toBe('length');
    expect(answer.choices[0]?.logprobs?.content).toEqual([
      {
        token: 'Hello',
        logprob: -0.5,
        bytes: [...Buffer.from('Hello')],
        top_logprobs: [
          { token: 'Hello', logprob: -0.5, bytes: [...Buffer.from('Hello')] },
          { token: 'other1', logprob: -9999, bytes: [...Buffer.from('other1')] },
        ],
      },
    ]);
  });

  test('several choices stream side by side, each with its own finish', async () => {
    const client = await start();
    const stream = await client.chat.completions.create({
      model: 'cox-1',
      messages: hello,
      n: 3,
      stream: true,
    });
    const choices = (await collect(stream)).flatMap((chunk) => chunk.choices);
    for (const index of [0, 1, 2]) {
      const own = choices.filter((choice) => choice.index === index);
      expect(own.map((choice) => choice.delta.content ?? '').join('')).toBe('Hello there, friend.');
      expect(own.flatMap((choice) => choice.finish_reason ?? [])).toEqual(['stop']);
    }
  });

  test('the scope separates users and nothing else about them is passed on', async () => {
    await start();
    const ask = (user: string | null) =>
      post(`${fixture.url}/v1/chat/completions`, { messages: hello, user });
    for (const user of ['ann', 'ann', 'bob', null]) await ask(user);
    const scopes = fixture.backend.requests.map((request) => request.scope);
    expect(scopes[0]).toBe(scopes[1]);
    expect(new Set(scopes).size).toBe(3);
    expect(scopes.join()).not.toContain('ann');
  });
});
