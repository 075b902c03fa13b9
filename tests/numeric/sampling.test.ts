// Sampling and scoring by real engines: numbers follow from the logits, draws from (seed, choice, position),
// and neither depends on topology, batch, or what was taken back before.
import { describe, expect, it } from 'vitest';
import { present } from '../../src/base/assert.ts';
import type { OutputResult, SamplerParams } from '../../src/base/step-record.ts';
import type { Topology } from '../../src/engine/engine.ts';
import {
  type Cluster,
  GREEDY,
  idOf,
  logitsOf,
  oracleModel,
  Session,
  withCluster,
} from './driver.ts';
import { argmax, logSumExp } from './oracle-case.ts';

const PROMPT = [12, 300, 41, 7, 99, 450, 3, 3, 218];
const LAST = 77;
const TOPOLOGIES: readonly (readonly [string, Partial<Topology>])[] = [
  ['one rank', {}],
  ['TP 2', { split: [1, 1] }],
  ['TP 3, uneven', { split: [2, 1, 1] }],
  ['PP 2', { pp: 2 }],
  ['TP 2 x PP 2', { split: [1, 1], pp: 2 }],
];
const MODEL = oracleModel('qwen3');

function token(output: OutputResult | undefined) {
  if (output === undefined || output.skipped || output.want !== 'token') {
    throw new Error('no token in this output');
  }
  return output;
}

function sampled(params: Partial<SamplerParams>): SamplerParams {
  return { ...GREEDY, promptLength: PROMPT.length + 1, ...params };
}

/** The ids drawn after PROMPT and LAST. */
async function draws(
  cluster: Cluster,
  slot: number,
  options: { sampler: SamplerParams; count?: number },
): Promise<number[]> {
  const { sampler, count = 12 } = options;
  const session = await Session.create(cluster, { slot, tokensMax: 64, sampler });
  await session.feed(PROMPT);
  return (await session.generate(LAST, count)).map(idOf);
}

describe.each(TOPOLOGIES)('on %s', (_name, topology) => {
  it('a score says what the logits say', async () => {
    await withCluster({ model: MODEL, topology }, async (cluster) => {
      await Session.create(cluster, { slot: 0, tokensMax: 64 });
      const { outputs } = await cluster.submit({
        runs: [{ slot: 0, pos0: 0, tokens: PROMPT }],
        outputs: PROMPT.flatMap((_, row) => [
          { row, want: 'logits' } as const,
          { row, want: 'score', target: row % 2 === 0 ? 33 + row : null } as const,
        ]),
      });
      for (const row of PROMPT.keys()) {
        const logits = logitsOf(present(outputs[2 * row], 'logits'));
        const score = present(outputs[2 * row + 1], 'a score');
        if (score.skipped || score.want !== 'score') throw new Error('no score');
        const ordered = [...logits.entries()].sort(([a, x], [b, y]) => y - x || a - b);
        expect(score.top).toEqual(ordered.slice(0, 40));
        expect(score.argmax).toBe(argmax(logits));
        expect(score.gap).toBeCloseTo(
          present(ordered[0], 'best')[1] - present(ordered[1], 'second')[1],
          5,
        );
        expect(score.logsumexp).toBeCloseTo(logSumExp(logits), 4);
        if (row % 2 === 0) expect(score.targetLogit).toBe(logits[33 + row]);
      }
    });
  });

  it('a logprob is the logit less the log of the sum', async () => {
    const sampler = sampled({ temperature: 0.9, seed: 5n, wantLogprob: true, topLogprobs: 7 });
    await withCluster({ model: MODEL, topology }, async (cluster) => {
      await Session.create(cluster, { slot: 0, tokensMax: 64, sampler });
      const { outputs } = await cluster.submit({
        runs: [{ slot: 0, pos0: 0, tokens: PROMPT }],
        outputs: PROMPT.flatMap((_, row) => [
          { row, want: 'logits' } as const,
          { row, want: 'token' } as const,
        ]),
      });
      for (const row of PROMPT.keys()) {
        const logits = logitsOf(present(outputs[2 * row], 'logits'));
        const { id, logprob, top } = token(outputs[2 * row + 1]);
        const sum = logSumExp(logits);
        expect(logprob).toBeCloseTo(present(logits[id], 'a logit') - sum, 4);
        const ordered = [...logits.entries()].sort(([a, x], [b, y]) => y - x || a - b);
        expect(top.map(([best]) => best)).toEqual(ordered.slice(0, 7).map(([best]) => best));
        for (const [best, value] of top) {
          expect(value).toBeCloseTo(present(logits[best], 'a logit') - sum, 4);
        }
      }
    });
  });

  it.each([
    ['temperature alone', { temperature: 1.1, seed: 3n }],
    ['top-k', { temperature: 1.4, topK: 20, seed: 3n }],
    ['top-p and min-p', { temperature: 1.2, topP: 0.9, minP: 0.02, seed: 8n }],
    ['penalties', { temperature: 1, seed: 1n, repetitionPenalty: 1.3, frequencyPenalty: 0.4 }],
    ['greedy with a presence penalty', { presencePenalty: 1.5 }],
  ])('draws with %s as one rank does', async (_title, params) => {
    const sampler = sampled(params);
    const alone = await withCluster({ model: MODEL }, (cluster) => draws(cluster, 0, { sampler }));
    const here = await withCluster({ model: MODEL, topology }, (cluster) =>
      draws(cluster, 0, { sampler }),
    );
    expect(here).toEqual(alone);
    expect(new Set(alone).size).toBeGreaterThan(2);
  });

  it('rows after a stop token are skipped, and the slot goes on when told to', async () => {
    await withCluster({ model: MODEL, topology }, async (cluster) => {
      const [first, second] = await draws(cluster, 0, { sampler: sampled({}) });
      const stop = present(second, 'a second token');
      expect(stop).not.toBe(first);
      const sampler = sampled({ stopIds: [stop] });
      const session = await Session.create(cluster, { slot: 1, tokensMax: 64, sampler });
      await session.feed(PROMPT);
      const outputs = await session.generate(LAST, 5);
      const ends = outputs.map((one) => (one.skipped ? 'skipped' : token(one).finish));
      expect(ends).toEqual(['no', 'stop', 'skipped', 'skipped', 'skipped']);
      // The slot holds the prompt, LAST and the first token.
      const length = PROMPT.length + 2;
      expect(session.tokens.length).toBe(length);
      const { outputs: more } = await cluster.submit({
        runs: [{ slot: 1, pos0: length, tokens: [5, 6] }],
        outputs: [{ row: 1, want: 'token' }],
      });
      expect(token(more[0]).finish).toBe('no');
    });
  });
});

describe('draws', () => {
  const sampler = sampled({ temperature: 1.2, seed: 11n });

  it('depend on seed and choice', async () => {
    await withCluster({ model: MODEL }, async (cluster) => {
      const base = await draws(cluster, 0, { sampler });
      expect(await draws(cluster, 1, { sampler })).toEqual(base);
      expect(await draws(cluster, 2, { sampler: { ...sampler, seed: 12n } })).not.toEqual(base);
      expect(await draws(cluster, 3, { sampler: { ...sampler, choice: 1 } })).not.toEqual(base);
    });
  });

  it('repeat after a truncation', async () => {
    await withCluster({ model: MODEL }, async (cluster) => {
      const session = await Session.create(cluster, { slot: 0, tokensMax: 64, sampler });
      await session.feed(PROMPT);
      const first = (await session.generate(LAST, 10)).map(idOf);
      await session.truncate(PROMPT.length + 4);
      const again = await session.generate(present(first[3], 'the fourth'), 6);
      expect(again.map(idOf)).toEqual(first.slice(4));
    });
  });

  it('end at the length that was allowed', async () => {
    await withCluster({ model: MODEL }, async (cluster) => {
      const params = { ...sampler, lengthMax: PROMPT.length + 1 + 3 };
      const session = await Session.create(cluster, { slot: 0, tokensMax: 64, sampler: params });
      await session.feed(PROMPT);
      const outputs = await session.generate(LAST, 3);
      expect(outputs.map((output) => token(output).finish)).toEqual(['no', 'no', 'length']);
    });
  });
});
