// A cluster over real sockets with fake engines: it opens, answers, survives lost ranks, and ends clean.

import { createServer } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { present } from '../../../../src/base/assert.ts';
import { toCoxswainError } from '../../../../src/base/errors.ts';
import { type Cluster, openClusterWith } from '../../../../src/coordinator/shell/open-cluster.ts';
import { type FakeCluster, fakeCluster, VOCAB } from './fake-cluster.ts';
import { FlakyProxy } from './flaky-proxy.ts';
import { answerOf, failureOf, request } from './requests.ts';

const open: Cluster[] = [];

afterEach(async () => {
  await Promise.all(open.splice(0).map((cluster) => cluster.close()));
});

function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const address = server.address();
      const port = typeof address === 'object' ? (address?.port ?? 0) : 0;
      server.close(() => resolve(port));
    });
  });
}

async function opened(fake: FakeCluster): Promise<Cluster> {
  const cluster = await fake.open();
  open.push(cluster);
  return cluster;
}

describe('a cluster of fake ranks', () => {
  it('answers with the same text on every topology, and reports itself', async () => {
    const texts: string[] = [];
    for (const [tp, pp] of [
      [1, 1],
      [2, 1],
      [1, 2],
      [2, 2],
    ] as const) {
      const fake = fakeCluster({ tp, pp });
      const cluster = await opened(fake);
      const { texts: got, events } = await answerOf(cluster, request());
      texts.push(got[0] ?? '');
      expect(events[0]).toEqual({ type: 'request-start', promptTokens: 11, cachedTokens: 0 });
      expect(events.at(-2)).toEqual({ type: 'choice-end', choice: 0, reason: 'length' });
      expect(events.at(-1)).toEqual({
        type: 'response-end',
        promptTokens: 11,
        cachedTokens: 0,
        completionTokens: 40,
      });
      const report = await cluster.backend.cluster();
      expect(report).toMatchObject({
        epoch: 1,
        state: 'ready',
        model: { name: 'fake', fingerprint: 'fingerprint-a' },
        plan: { tp, pp },
        slots: { total: 8 },
      });
      expect(cluster.describe().ranks.map(({ state }) => state)).toEqual(
        Array.from({ length: tp * pp }, () => 'ready'),
      );
      expect(await cluster.backend.metrics()).toMatch(/cox_epoch 1/);
      await cluster.close();
    }
    expect(new Set(texts).size).toBe(1);
    expect(texts[0]?.length).toBe(40);
  });

  it('answers many requests at once as it answers each alone', async () => {
    const cluster = await opened(fakeCluster());
    const prompts = Array.from({ length: 10 }, (_, index) => `prompt number ${index} `);
    const ask = (text: string) =>
      answerOf(cluster, request({ id: text, prompt: { kind: 'text', text }, scope: text }));
    const alone: string[] = [];
    for (const prompt of prompts) alone.push((await ask(prompt)).texts[0] ?? '');
    const together = await Promise.all(prompts.map(ask));
    expect(together.map(({ texts }) => texts[0])).toEqual(alone);
  });

  it('reuses the prefix of a finished request', async () => {
    const cluster = await opened(fakeCluster());
    const text = 'x'.repeat(600);
    await answerOf(cluster, request({ prompt: { kind: 'text', text } }));
    const { events } = await answerOf(cluster, request({ prompt: { kind: 'text', text } }));
    const start = events[0];
    expect(start?.type === 'request-start' && start.cachedTokens).toBeGreaterThan(255);
  });

  it('stops at a stop string without showing any of it', async () => {
    const cluster = await opened(fakeCluster());
    const whole = (await answerOf(cluster, request())).texts[0] ?? '';
    const stop = whole.slice(10, 13);
    const { texts, events } = await answerOf(cluster, request({ stop: [stop] }));
    expect(texts[0]).toBe(whole.slice(0, whole.indexOf(stop)));
    expect(events.at(-2)).toEqual({ type: 'choice-end', choice: 0, reason: 'stop' });
    const end = events.at(-1);
    expect(end?.type === 'response-end' && end.completionTokens).toBe(whole.indexOf(stop) + 3);
  });

  it('gives log probabilities with the text of their tokens', async () => {
    const cluster = await opened(fakeCluster());
    const { texts, events } = await answerOf(
      cluster,
      request({ logprobs: true, topLogprobs: 3, maxTokens: 12 }),
    );
    const logprobs = events.flatMap((event) => (event.type === 'text-delta' ? event.logprobs : []));
    expect(logprobs.map(({ text }) => text).join('')).toBe(texts[0]);
    expect(logprobs.length).toBe(12);
    for (const { logprob, top } of logprobs) {
      expect(logprob).toBeLessThanOrEqual(0);
      expect(top.length).toBe(3);
      expect(top[0]?.logprob).toBeCloseTo(logprob, 5);
    }
  });

  it('samples several choices, each its own, and the same again with the same seed', async () => {
    const cluster = await opened(fakeCluster());
    const wanted = request({ choices: 3, temperature: 1, maxTokens: 20 });
    const first = await answerOf(cluster, wanted);
    const second = await answerOf(cluster, wanted);
    expect(new Set(first.texts).size).toBe(3);
    expect(second.texts).toEqual(first.texts);
  });

  it('refuses what the model cannot take, before the first event', async () => {
    const cluster = await opened(fakeCluster());
    const refusals = [
      [{ prompt: { kind: 'text', text: 'y'.repeat(1100) } }, 'CONTEXT_EXCEEDED'],
      [{ prompt: { kind: 'text', text: '' } }, 'REQUEST_INVALID'],
      [{ prompt: { kind: 'tokens', tokens: [VOCAB] } }, 'REQUEST_INVALID'],
      [{ topLogprobs: 21, logprobs: true }, 'REQUEST_INVALID'],
      [{ maxTokens: 0 }, 'REQUEST_INVALID'],
      [{ maxTokens: 1.5 }, 'REQUEST_INVALID'],
      [{ seed: 1.5 }, 'REQUEST_INVALID'],
      [{ temperature: -1 }, 'REQUEST_INVALID'],
      [{ minP: Number.NaN }, 'REQUEST_INVALID'],
      [{ logitBias: [[VOCAB, 1]] }, 'REQUEST_INVALID'],
    ] as const;
    for (const [more, code] of refusals) {
      expect((await failureOf(() => answerOf(cluster, request(more)))).code).toBe(code);
    }
  });

  it('refuses with QUEUE_FULL beyond its queue, and answers everyone else', async () => {
    const cluster = await opened(fakeCluster({ cluster: { slots: 2, queueMax: 4 } }));
    const outcomes = await Promise.all(
      Array.from({ length: 20 }, (_, index) =>
        answerOf(cluster, request({ id: `q${index}`, scope: `q${index}` })).then(
          ({ texts }) => texts[0]?.length,
          (thrown: unknown) => toCoxswainError(thrown),
        ),
      ),
    );
    const refused = outcomes.filter((outcome) => typeof outcome === 'object');
    expect(refused.length).toBeGreaterThan(0);
    for (const error of refused) {
      expect(error.code).toBe('QUEUE_FULL');
      expect(error.retryAfterSeconds).toBeGreaterThan(0);
    }
    expect(outcomes.filter((outcome) => outcome === 40).length).toBe(20 - refused.length);
  });

  it('serves as many as it has slots without a queue', async () => {
    const cluster = await opened(fakeCluster({ cluster: { slots: 2, queueMax: 0 } }));
    const answers = [1, 2].map((index) => answerOf(cluster, request({ id: `s${index}` })));
    const third = await failureOf(() => answerOf(cluster, request({ id: 's3' })));
    expect(third.code).toBe('QUEUE_FULL');
    for (const { texts } of await Promise.all(answers)) expect(texts[0]?.length).toBe(40);
  });

  it('drops a request whose client went away', async () => {
    const cluster = await opened(fakeCluster({ stepUs: () => 2000 }));
    const abort = new AbortController();
    const events = cluster.backend.infer(request({ maxTokens: 900 }), abort.signal);
    let seen = 0;
    const error = await failureOf(async () => {
      for await (const event of events) {
        if (event.type === 'text-delta') seen += 1;
        if (seen === 3) abort.abort();
      }
    });
    expect(error.message).toMatch(/abort/i);
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(cluster.describe().slots.used).toBe(0);
    expect(cluster.describe().requests.active).toBe(0);
  });

  it('scores positions and generates raw tokens', async () => {
    const cluster = await opened(fakeCluster());
    const tokens = Array.from({ length: 100 }, (_, index) => index % 50);
    const wants = new Map(
      tokens.map((_, pos) => [pos, { want: 'score' as const, target: tokens[pos + 1] ?? null }]),
    );
    const positions: number[] = [];
    const argmax: number[] = [];
    for await (const { pos, result } of cluster.score({ tokens, wants, chunk: 7 })) {
      positions.push(pos);
      if (result.want === 'score' && !result.skipped) argmax.push(result.argmax);
    }
    expect(positions).toEqual(tokens.map((_, pos) => pos));
    const generated: number[] = [];
    const more = { maxTokens: 5, temperature: 0, seed: 1n, stopIds: [] };
    for await (const id of cluster.generateTokens({ tokens, ...more })) generated.push(id);
    expect(generated.length).toBe(5);
    expect(generated[0]).toBe(argmax.at(-1));
    expect(cluster.stepOverheadsUs().length).toBeGreaterThan(0);
  });
});

describe('a cluster that loses a rank', () => {
  it.each([0, 1])(
    'continues the same text when rank %i is killed in mid-answer',
    async (victim) => {
      const calm = await opened(fakeCluster());
      const undisturbed = (await answerOf(calm, request({ maxTokens: 120 }))).texts[0];
      const fake = fakeCluster({ stepUs: () => 2000 });
      const cluster = await opened(fake);
      const { texts, events } = await answerOf(cluster, request({ maxTokens: 120 }), (count) => {
        if (count === 30) fake.kill(victim);
      });
      expect(texts[0]).toBe(undisturbed);
      expect(events.some(({ type }) => type === 'recovering')).toBe(true);
      expect(cluster.describe()).toMatchObject({ epoch: 2, state: 'ready', epochs_lost: 1 });
      expect(fake.launches.length).toBe(3);
      expect(
        fake.logs.some(
          ({ message, fields }) => message === 'rank lost' && fields['rank'] === victim,
        ),
      ).toBe(true);
    },
  );

  it('tells clients and recovers later when a rank cannot be kept running', async () => {
    let deaths = 0;
    const fake = fakeCluster({
      dies: (rank) => {
        if (rank !== 1) return false;
        deaths += 1;
        queueMicrotask(() => fake.kill(1));
        return true;
      },
    });
    const cluster = await opened(fake);
    const error = await failureOf(() => answerOf(cluster, request()));
    expect(['REQUEST_POISONOUS', 'RECOVERY_FAILED', 'RANK_LOST']).toContain(error.code);
    expect(deaths).toBeGreaterThan(1);
  });
});

describe('a cluster whose control streams break', () => {
  async function throughProxies(fake: FakeCluster) {
    const proxies: FlakyProxy[] = [];
    const { launch } = fake.dependencies;
    const dependencies = {
      ...fake.dependencies,
      launch: (launched: Parameters<typeof launch>[0]) => {
        const proxy = present(proxies[launched.rank], 'a proxy for every rank');
        return launch({ ...launched, join: `127.0.0.1:${proxy.port}` });
      },
    };
    const listenPort = await freePort();
    for (const _ of fake.dependencies.plan.ranks) proxies.push(await FlakyProxy.listen(listenPort));
    const options = { ...fake.options, listenPort };
    const cluster = await openClusterWith(options, dependencies, new AbortController().signal);
    open.push(cluster);
    return { cluster, proxies };
  }

  it('goes on in the same epoch when they come back at once', async () => {
    const calm = await opened(fakeCluster());
    const undisturbed = (await answerOf(calm, request({ maxTokens: 300 }))).texts[0];
    const fake = fakeCluster({ stepUs: () => 2000 });
    const { cluster, proxies } = await throughProxies(fake);
    const { texts, events } = await answerOf(cluster, request({ maxTokens: 300 }), (count) => {
      if (count % 50 === 20) proxies[(count / 10) % 2]?.cut(false);
    });
    expect(texts[0]).toBe(undisturbed);
    const resumed = fake.logs.filter(({ message }) => message === 'control stream resumed');
    expect(resumed.length).toBeGreaterThan(3);
    expect(events.some(({ type }) => type === 'recovering')).toBe(false);
    expect(cluster.describe()).toMatchObject({ epoch: 1, epochs_lost: 0 });
    await cluster.close();
    await Promise.all(proxies.map((proxy) => proxy.close()));
  });

  it('gives the rank up when they do not, and takes it back later', async () => {
    const fake = fakeCluster({ stepUs: () => 2000 });
    const { cluster, proxies } = await throughProxies(fake);
    const undisturbed = (await answerOf(cluster, request())).texts[0];
    const { texts } = await answerOf(cluster, request({ scope: 'other' }), (count) => {
      if (count !== 10) return;
      proxies[1]?.cut(true);
      setTimeout(() => proxies[1]?.allow(), 5500);
    });
    expect(texts[0]).toBe(undisturbed);
    expect(cluster.describe()).toMatchObject({ epoch: 2, epochs_lost: 1 });
    const lost = fake.logs.find(({ message }) => message === 'rank lost');
    expect(lost?.fields['rank']).toBe(1);
    await cluster.close();
    await Promise.all(proxies.map((proxy) => proxy.close()));
  });
});

describe('opening a cluster', () => {
  it("gives the planner's sentence for an impossible topology", async () => {
    const error = await failureOf(() =>
      fakeCluster({ plan: { refused: 'Too many ranks.' } }).open(),
    );
    expect(error).toMatchObject({ code: 'PLAN_IMPOSSIBLE', message: 'Too many ranks.' });
  });

  it('refuses a start without a token where strangers could join', async () => {
    const fake = fakeCluster({ cluster: { ranks: 'remote' } });
    expect((await failureOf(() => fake.open())).code).toBe('CONFIG_INVALID');
  });

  it.each([
    ['buildId', 'build-b', /build is build-b, this cluster's is build-a/],
    ['numericsContract', 'n-2', /numerics is n-2, this cluster's is n-1/],
    ['fingerprint', 'fingerprint-b', /model fingerprint is .*-b.*same GGUF file/],
  ] as const)('refuses a rank whose %s differs, naming both', async (field, value, sentence) => {
    const fake = fakeCluster({ identity: (rank) => (rank === 1 ? { [field]: value } : {}) });
    const error = await failureOf(() => fake.open());
    expect(error.message).toMatch(sentence);
    expect(error.message).toMatch(/Rank 1/);
  });

  it('refuses a rank whose plan differs', async () => {
    const fake = fakeCluster({ plan: { hash: 'another' } });
    const error = await failureOf(() => fake.open());
    expect(error.code).toBe('HANDSHAKE_REFUSED');
    expect(error.message).toMatch(/plan/);
  });

  it('names the missing ranks when not all of them join', async () => {
    const token = 'a token that nobody else will use';
    const fake = fakeCluster({ cluster: { ranks: 'remote', token, joinTimeoutMs: 300 } });
    const error = await failureOf(() => fake.open());
    expect(error.code).toBe('JOIN_TIMEOUT');
    expect(error.message).toMatch(/rank 0 \(absent\), rank 1 \(absent\)/);
  });

  it('ends when it is aborted while ranks join', async () => {
    const token = 'a token that nobody else will use';
    const fake = fakeCluster({ cluster: { ranks: 'remote', token } });
    const abort = new AbortController();
    setTimeout(() => abort.abort(), 100);
    expect((await failureOf(() => fake.open(abort.signal))).code).toBe('SHUTTING_DOWN');
  });
});
