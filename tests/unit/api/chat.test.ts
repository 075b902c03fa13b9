// POST /v1/chat/completions over real sockets, by the official SDK and by hand.
import OpenAI from 'openai';
import { afterEach, describe, expect, test } from 'vitest';
import { collect, type FixtureOptions, type ServerFixture, startServer } from './server-fixture.ts';

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
