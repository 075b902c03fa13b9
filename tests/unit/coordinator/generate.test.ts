import { expect, test } from 'vitest';
import { CoreBench, SHAPE } from '../../sim/core-bench.ts';
import { naiveGenerate, naiveLogits, naiveScore } from '../../sim/naive.ts';
import { generate, prompt, sampler, score } from '../../sim/requests.ts';

test('a single request gets the text that the naive twin computes', async () => {
  const bench = await CoreBench.ready();
  const tokens = prompt(23, 1);
  bench.submit(generate('a', tokens, 20));
  bench.run();
  const naive = naiveGenerate(SHAPE, tokens, sampler(23, 20));
  expect(bench.outcomes.tokens('a')).toEqual(naive.tokens);
  expect(bench.outcomes.get('a').choices[0]?.reason).toBe('length');
  expect(bench.outcomes.get('a').cachedTokens).toBe(0);
});

test('the stop id ends a choice and is not part of the answer', async () => {
  const bench = await CoreBench.ready();
  const tokens = prompt(9, 2);
  const free = naiveGenerate(SHAPE, tokens, sampler(9, 30)).tokens;
  const stopId = free[5] ?? 0;
  bench.submit(generate('a', tokens, 30, { sampler: { stopIds: [stopId] } }));
  bench.run();
  expect(bench.outcomes.tokens('a')).toEqual(free.slice(0, free.indexOf(stopId)));
  expect(bench.outcomes.get('a').choices[0]?.reason).toBe('stop');
});

test('a score request answers exactly the positions that were asked for, whatever the chunk', async () => {
  const tokens = prompt(30, 3);
  const wants = new Map([
    [0, { want: 'score', target: 5 }],
    [7, { want: 'logits' }],
    [29, { want: 'score', target: null }],
  ] as const);
  for (const chunk of [1, 4, 7, 100, null]) {
    const bench = await CoreBench.ready();
    bench.submit(score('s', tokens, wants, chunk));
    bench.run();
    const { scores, end } = bench.outcomes.get('s');
    expect(end).toBe('finished');
    expect([...scores.keys()]).toEqual([0, 7, 29]);
    expect(scores.get(7)).toMatchObject({ logits: naiveLogits(SHAPE, tokens)[7] });
    expect(scores.get(29)).toMatchObject({ argmax: argmaxOf(naiveScore(SHAPE, tokens, 29, null)) });
    if (chunk !== null) {
      const rows = bench.records.map(({ runs }) => lengthOf(runs[0]?.tokens));
      expect(Math.max(...rows)).toBe(Math.min(chunk, 30));
    }
  }
});

function argmaxOf(result: object): unknown {
  return 'argmax' in result ? result.argmax : null;
}

function lengthOf(tokens: unknown): number {
  return Array.isArray(tokens) ? tokens.length : 1;
}
