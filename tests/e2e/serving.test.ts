// A cluster under ordinary use and under load, by `cox up` and HTTP: disconnects, reuse, choices,
// concurrency, preemption, and a thousand clients at once.
import { Agent, request } from 'node:http';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  CoxProcess,
  clusterState,
  NO_CONTROL_TOKENS,
  postJson,
  type ReadyLine,
  residentBytes,
  streamCompletion,
  testModel,
  until,
} from './cox.ts';

interface Answer {
  readonly choices: readonly {
    readonly index: number;
    readonly text: string;
    readonly finish_reason: string;
    readonly logprobs: {
      readonly tokens: string[];
      readonly token_logprobs: number[];
      readonly top_logprobs: Record<string, number>[];
    };
    readonly message: { readonly content: string };
  }[];
  readonly usage: { readonly prompt_tokens_details: { readonly cached_tokens: number } };
}

const PROMPT = 'When a rank is lost, the survivors';
const FREE = { prompt: PROMPT, temperature: 0, logit_bias: NO_CONTROL_TOKENS };
const start = (...args: readonly string[]) =>
  new CoxProcess(['up', ...args, '--port', '0', '--json', '--threads', '1']);

describe('a cluster of two ranks', () => {
  let cox: CoxProcess;
  let ready: ReadyLine;
  const complete = async (body: object) => {
    const answer = await postJson<Answer>(ready.url, '/v1/completions', body);
    expect(answer.status).toBe(200);
    return answer.body;
  };
  beforeAll(async () => {
    cox = start(testModel('llama'), '--tp', '2');
    ready = await cox.event('ready');
  });
  afterAll(async () => {
    await cox.stop();
  });

  it('drops the work of a client that leaves', async () => {
    const leaving = new AbortController();
    const response = await fetch(`${ready.url}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ ...FREE, max_tokens: 8_000, stream: true }),
      signal: leaving.signal,
    });
    await response.body?.getReader().read();
    expect((await clusterState(ready.url)).requests.active).toBe(1);
    leaving.abort();
    const idle = async () => (await clusterState(ready.url)).requests.active === 0;
    expect(await until(idle, 10_000)).toBe(true);
  });

  it('reuses the first turn of a chat in the second', async () => {
    const ask = (messages: readonly object[]) =>
      postJson<Answer>(ready.url, '/v1/chat/completions', {
        messages,
        max_tokens: 24,
        temperature: 0,
      });
    const first = { role: 'user', content: 'Which rank holds the first layers of a model?' };
    const one = await ask([first]);
    const content = one.body.choices[0]?.message.content ?? '';
    const two = await ask([
      first,
      { role: 'assistant', content },
      { role: 'user', content: 'And the last?' },
    ]);
    expect(two.status).toBe(200);
    expect(two.body.usage.prompt_tokens_details.cached_tokens).toBeGreaterThan(10);
  });

  it('gives as many choices as asked for, differing by draw only', async () => {
    const drawn = await complete({ ...FREE, n: 2, seed: 5, temperature: 1, max_tokens: 24 });
    expect(drawn.choices.map(({ index }) => index)).toEqual([0, 1]);
    expect(drawn.choices[0]?.text).not.toBe(drawn.choices[1]?.text);
    const again = await complete({ ...FREE, n: 2, seed: 5, temperature: 1, max_tokens: 24 });
    expect(again.choices.map(({ text }) => text)).toEqual(drawn.choices.map(({ text }) => text));
    const greedy = await complete({ ...FREE, n: 2, max_tokens: 24 });
    expect(greedy.choices[0]?.text).toBe(greedy.choices[1]?.text);
  });

  it.each([{ top_p: 0 }, { top_p: 1e-60 }, { temperature: 1e-60 }, { repetition_penalty: 1e-60 }])(
    'takes extremes that clients send without losing an epoch: %o',
    async (extreme) => {
      const { epoch } = await clusterState(ready.url);
      const { choices } = await complete({ prompt: PROMPT, max_tokens: 4, seed: 1, ...extreme });
      expect(choices.length).toBe(1);
      expect((await clusterState(ready.url)).epoch).toBe(epoch);
    },
  );

  it('tells probabilities whose best is the greedy choice', async () => {
    const { choices } = await complete({
      prompt: 'hello there',
      temperature: 0,
      logprobs: 3,
      max_tokens: 12,
    });
    const logprobs = choices[0]?.logprobs;
    expect(logprobs?.token_logprobs.length).toBe(12);
    for (const [index, top] of (logprobs?.top_logprobs ?? []).entries()) {
      const best = Math.max(...Object.values(top));
      expect(logprobs?.token_logprobs[index]).toBe(best);
      expect(best).toBeLessThanOrEqual(0);
    }
  });

  it('ends before a stop string, whichever tokens spell it', async () => {
    const free = await complete({ ...FREE, max_tokens: 60 });
    const text = free.choices[0]?.text ?? '';
    const stop = text.slice(25, 31);
    const stopped = await complete({ ...FREE, max_tokens: 60, stop });
    expect(stopped.choices[0]?.finish_reason).toBe('stop');
    expect(stopped.choices[0]?.text).toBe(text.slice(0, text.indexOf(stop)));
  });

  it('gives eight streams at once the text that each gets alone', async () => {
    const bodies = Array.from({ length: 8 }, (_, index) => ({
      ...FREE,
      prompt: `${index} ${PROMPT.repeat(1 + index * 3)}`,
      max_tokens: 40,
    }));
    const alone: string[] = [];
    for (const body of bodies) alone.push((await streamCompletion(ready.url, body)).text);
    const together = await Promise.all(bodies.map((body) => streamCompletion(ready.url, body)));
    expect(together.map(({ text }) => text)).toEqual(alone);
    expect(new Set(alone).size).toBeGreaterThan(1);
  });
});

describe('a cluster with few blocks', () => {
  it('preempts sessions when blocks run out, without changing their text', async () => {
    const cox = start(testModel('llama'), '--tp', '2', '--kv-mem', '2MiB', '--ctx', '1024');
    try {
      const { url } = await cox.event('ready');
      const bodies = Array.from({ length: 12 }, (_, index) => ({
        ...FREE,
        prompt: `${index} ${PROMPT}`.repeat(8),
        max_tokens: 220,
      }));
      const together = await Promise.all(bodies.map((body) => streamCompletion(url, body)));
      expect((await clusterState(url)).preemptions).toBeGreaterThan(0);
      for (const index of [0, 5, 11]) {
        const alone = await streamCompletion(url, bodies[index] ?? {});
        expect(together[index]?.text).toBe(alone.text);
      }
    } finally {
      expect(await cox.stop()).toBe(0);
    }
  }, 120_000);
});

describe('a thousand clients at once', () => {
  const CLIENTS = 1_000;
  const MEMORY_MAX = 512 * 2 ** 20;

  it('are each answered or told to come back, in bounded memory', async () => {
    const cox = start(testModel('llama'), '--tp', '2', '--log-level', 'warn');
    try {
      const { url, pid } = await cox.event('ready');
      await postJson(url, '/v1/completions', { prompt: PROMPT, max_tokens: 4 });
      const idle = residentBytes(pid);
      let peak = idle;
      const watch = setInterval(() => {
        peak = Math.max(peak, residentBytes(pid));
      }, 50);
      const agent = new Agent({ maxSockets: CLIENTS });
      const outcomes = await Promise.all(
        Array.from({ length: CLIENTS }, (_, index) => client(url, agent, index)),
      );
      clearInterval(watch);
      agent.destroy();
      const counted = new Map<string, number>();
      for (const outcome of outcomes) counted.set(outcome, (counted.get(outcome) ?? 0) + 1);
      expect(
        [...counted.keys()].filter((outcome) => !/^(answered|429|503)$/.test(outcome)),
      ).toEqual([]);
      // 256 may wait and 32 run: at least these are answered.
      expect(counted.get('answered')).toBeGreaterThanOrEqual(256);
      expect(peak - idle).toBeLessThan(MEMORY_MAX);
      expect((await clusterState(url)).requests).toEqual({ active: 0, waiting: 0 });
    } finally {
      expect(await cox.stop()).toBe(0);
    }
  }, 180_000);
});

/** A streamed completion: 'answered' when it ended by its terminal marker, else the status. */
function client(url: string, agent: Agent, index: number): Promise<string> {
  const body = JSON.stringify({
    prompt: `Client ${index} asks`,
    max_tokens: 4,
    temperature: 0,
    stream: true,
  });
  return new Promise((resolve) => {
    const outgoing = request(`${url}/v1/completions`, {
      agent,
      method: 'POST',
      headers: { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) },
    });
    outgoing.once('error', (error) => resolve(error.message));
    outgoing.once('response', (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (part: string) => {
        text += part;
      });
      response.once('end', () => resolve(outcomeOf(response.statusCode ?? 0, text)));
      response.once('error', (error) => resolve(error.message));
    });
    outgoing.end(body);
  });
}

function outcomeOf(status: number, text: string): string {
  if (status === 429 || status === 503) {
    return text.includes('"code"') ? String(status) : `${status} without a code`;
  }
  // A refusal may come in-band, when the headers were sent while the request waited.
  if (status === 200 && text.includes('"error"')) {
    return /rate_limit_exceeded/.test(text) ? '429' : `in-band error: ${text.slice(-300)}`;
  }
  return status === 200 && text.endsWith('data: [DONE]\n\n') ? 'answered' : `status ${status}`;
}
