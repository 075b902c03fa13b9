// A thousand clients at once: every one is answered or told to come back, in bounded memory.
import { Agent, request } from 'node:http';
import { expect, test } from 'vitest';
import { startServer } from './server-fixture.ts';

const CLIENTS = 1000;

interface Outcome {
  readonly status: number;
  readonly text: string;
  readonly retryAfter: string | undefined;
}

function ask(url: string, agent: Agent, stream: boolean): Promise<Outcome> {
  const body = JSON.stringify({ messages: [{ role: 'user', content: 'x'.repeat(2000) }], stream });
  return new Promise((resolve, reject) => {
    const outgoing = request(
      `${url}/v1/chat/completions`,
      { method: 'POST', agent, headers: { 'content-length': body.length } },
      (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('error', reject);
        response.on('end', () =>
          resolve({
            status: response.statusCode ?? 0,
            text: Buffer.concat(chunks).toString(),
            retryAfter: response.headers['retry-after'],
          }),
        );
      },
    );
    outgoing.on('error', reject);
    outgoing.end(body);
  });
}

test('a thousand concurrent clients are each answered or told 429 with Retry-After', async () => {
  const words = Array.from({ length: 50 }, (_, index) => ` word${index}`);
  const fixture = await startServer({
    behaviour: { words, tokenDelayMs: 10, runningMax: 600 },
  });
  const agent = new Agent({ maxSockets: CLIENTS });
  const idleBytes = process.memoryUsage().rss;
  let peakBytes = idleBytes;
  const watch = setInterval(() => {
    peakBytes = Math.max(peakBytes, process.memoryUsage().rss);
  }, 20);
  const outcomes = await Promise.all(
    Array.from({ length: CLIENTS }, (_, index) => ask(fixture.url, agent, index % 2 === 0)),
  );
  clearInterval(watch);
  agent.destroy();
  await fixture.close();

  const answered = outcomes.filter((outcome) => outcome.status === 200);
  const refused = outcomes.filter((outcome) => outcome.status === 429);
  expect(answered.length + refused.length).toBe(CLIENTS);
  expect(answered.length).toBeGreaterThanOrEqual(600);
  expect(refused.every((outcome) => outcome.retryAfter === '3')).toBe(true);
  for (const { text } of answered) {
    expect(text).toContain('word49');
    expect(text.endsWith('data: [DONE]\n\n') || text.endsWith('}')).toBe(true);
  }
  expect(fixture.backend.running).toBe(0);
  // Server and clients share this process; the server alone is allowed 512 MiB.
  expect(peakBytes - idleBytes).toBeLessThan(512 * 2 ** 20);
});
