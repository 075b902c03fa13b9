import { describe, expect, test } from 'vitest';
import type { StepRecord } from '../../../src/base/step-record.ts';
import { CoreBench, SHAPE } from '../../sim/core-bench.ts';
import { naiveGenerate } from '../../sim/naive.ts';
import { generate, prompt, sampler, score } from '../../sim/requests.ts';

function rowsOf({ runs }: StepRecord): number {
  return runs.reduce((sum, { tokens }) => sum + ('step' in tokens ? 1 : tokens.length), 0);
}

function text(tokens: readonly number[], maxTokens: number): readonly number[] {
  return naiveGenerate(SHAPE, tokens, sampler(tokens.length, maxTokens)).tokens;
}

describe('batching', () => {
  test('a long prompt does not hold up who is decoding', async () => {
    const bench = await CoreBench.ready({
      blockTokens: 16,
      limits: { context: 4_000, kvBlocks: 300, stepRowsMax: 2_048 },
      stepUs: (rows) => 1_000 * rows,
    });
    bench.submit(generate('a', prompt(20, 1), 60));
    bench.run(40);
    const before = bench.outcomes.tokens('a').length;
    expect(before).toBeGreaterThan(0);
    bench.submit(generate('b', prompt(1_000, 2), 1));
    const from = bench.records.length;
    for (let count = 0; bench.outcomes.get('a').end === null && count < 1_000; count += 1)
      bench.run(1);
    const mixed = bench.records.slice(from).filter((record) => rowsOf(record) > 1);
    expect(mixed.length).toBeGreaterThan(5);
    for (const record of mixed) {
      expect(rowsOf(record)).toBeLessThanOrEqual(51);
      // Decode rows come first in the step.
      expect(record.runs[0]).toMatchObject({ slot: 0 });
    }
  });

  test('two long prompts take turns', async () => {
    const bench = await CoreBench.ready({
      blockTokens: 16,
      limits: { context: 4_000, kvBlocks: 300, stepRowsMax: 2_048 },
      stepUs: (rows) => 1_000 * rows,
    });
    bench.submit(generate('a', prompt(1_500, 1), 1));
    bench.submit(generate('b', prompt(1_500, 2), 1));
    bench.run();
    const slots = bench.records.map(({ runs }) => runs[0]?.slot);
    // Once both are there, neither gets two chunks in a row.
    const both = slots.slice(slots.indexOf(1));
    const untilOneEnds = both.slice(0, 8);
    for (const [index, slot] of untilOneEnds.entries()) {
      if (index > 0) expect(slot).not.toBe(untilOneEnds[index - 1]);
    }
  });

  test('a short prompt is answered long before a long one that came first', async () => {
    const bench = await CoreBench.ready({
      blockTokens: 16,
      limits: { context: 4_000, kvBlocks: 300, stepRowsMax: 2_048 },
      stepUs: (rows) => 1_000 * rows,
    });
    bench.submit(generate('long', prompt(3_000, 1), 1));
    bench.run(6);
    bench.submit(generate('short', prompt(30, 2), 1));
    while (bench.outcomes.get('short').end === null) bench.run(1);
    expect(bench.outcomes.get('long').end).toBeNull();
    expect(bench.clock.now).toBeLessThan(1_500);
  });

  test('all sessions decode in one step', async () => {
    const bench = await CoreBench.ready();
    for (let index = 0; index < 6; index += 1) {
      bench.submit(generate(`r${index}`, prompt(5, index), 12));
    }
    bench.run();
    expect(Math.max(...bench.records.map(({ runs }) => runs.length))).toBe(6);
    for (let index = 0; index < 6; index += 1) {
      expect(bench.outcomes.tokens(`r${index}`)).toEqual(text(prompt(5, index), 12));
    }
  });

  test('with two stages the sessions are dealt out over the steps', async () => {
    const bench = await CoreBench.ready({ pp: 2 });
    for (let index = 0; index < 4; index += 1) {
      bench.submit(generate(`r${index}`, prompt(5, index), 20));
    }
    bench.run();
    const widths = bench.records.slice(12, 30).map(({ runs }) => runs.length);
    expect(Math.max(...widths)).toBe(2);
    expect(Math.min(...widths)).toBeGreaterThan(0);
  });

  test('with two stages a lone prompt is cut, so that both have a chunk to work on', async () => {
    const bench = await CoreBench.ready({
      pp: 2,
      blockTokens: 16,
      limits: { context: 4_000, kvBlocks: 300, stepRowsMax: 2_048 },
      stepUs: (rows) => 100 * rows,
    });
    bench.submit(generate('a', prompt(1_200, 1), 1));
    while (bench.outcomes.get('a').end === null) bench.run(1);
    const alone = bench.clock.now;
    // One stage after the other would take twice the compute time of one.
    expect(alone).toBeLessThan(1.5 * 120);
    expect(bench.outcomes.tokens('a')).toEqual(text(prompt(1_200, 1), 1));
  });

  test('the chunk of a score request is kept even while others decode', async () => {
    const bench = await CoreBench.ready();
    bench.submit(generate('a', prompt(5, 1), 30));
    bench.submit(score('s', prompt(21, 2), new Map([[20, { want: 'score', target: 1 }]]), 5));
    bench.run();
    const lengths = bench.records.flatMap(({ runs }) =>
      runs.flatMap(({ slot, tokens }) =>
        slot === 1 && !('step' in tokens) ? [tokens.length] : [],
      ),
    );
    expect(lengths).toEqual([5, 5, 5, 5, 1]);
  });
});

describe('reuse', () => {
  test('a second turn computes only what is new', async () => {
    const bench = await CoreBench.ready();
    const first = prompt(21, 1);
    bench.submit(generate('a', first, 8));
    bench.run();
    const second = [...first, ...bench.outcomes.tokens('a'), ...prompt(5, 9)];
    bench.submit(generate('b', second, 8));
    bench.run();
    // The last token of the first answer was never a row.
    expect(bench.outcomes.get('b').cachedTokens).toBe(21 + 7);
    expect(bench.outcomes.tokens('b')).toEqual(text(second, 8));
  });

  test('a request that joins a running one shares its prompt', async () => {
    const bench = await CoreBench.ready();
    const shared = prompt(20, 1);
    bench.submit(generate('a', [...shared, 1, 2, 3], 20));
    bench.run(8);
    bench.submit(generate('b', [...shared, 4, 5, 6], 5));
    bench.run();
    expect(bench.outcomes.get('b').cachedTokens).toBe(20);
    expect(bench.outcomes.tokens('b')).toEqual(text([...shared, 4, 5, 6], 5));
  });

  test('the same prompt again computes its last token only', async () => {
    const bench = await CoreBench.ready();
    bench.submit(generate('a', prompt(12, 1), 3));
    bench.run();
    bench.submit(generate('b', prompt(12, 1), 3));
    bench.run();
    expect(bench.outcomes.get('b').cachedTokens).toBe(11);
    expect(bench.outcomes.tokens('b')).toEqual(bench.outcomes.tokens('a'));
  });

  test('without reuse a later request starts from nothing, but choices still share', async () => {
    const bench = await CoreBench.ready({ limits: { liveReuse: false } });
    bench.submit(generate('a', prompt(12, 1), 3));
    bench.run();
    bench.submit(generate('b', prompt(12, 1), 3, { choices: 3, sampler: { temperature: 1 } }));
    bench.run();
    expect(bench.outcomes.get('b').cachedTokens).toBe(0);
    const created = bench.records.flatMap(({ slotOps }) =>
      slotOps.flatMap((op) => (op.kind === 'create' ? [op.tokens.length] : [])),
    );
    expect(created).toEqual([0, 0, 11, 11]);
    expect(bench.core.status.kvBlocks).toMatchObject({ used: 0, cached: 0 });
  });

  test('cancelled work stays for an identical retry', async () => {
    const bench = await CoreBench.ready({ limits: { stepRowsMax: 16 } });
    bench.submit(generate('a', prompt(60, 1), 3));
    bench.run(8);
    bench.event({ type: 'request-cancelled', id: 'a' });
    expect(bench.outcomes.get('a').code).toBe('REQUEST_CANCELLED');
    bench.submit(generate('b', prompt(60, 1), 3));
    bench.run();
    expect(bench.outcomes.get('b').cachedTokens).toBeGreaterThanOrEqual(32);
    expect(bench.outcomes.tokens('b')).toEqual(text(prompt(60, 1), 3));
  });
});

describe('recovery', () => {
  test('a new epoch rebuilds every running request and shares their prefix', async () => {
    const bench = await CoreBench.ready();
    const shared = prompt(16, 1);
    bench.submit(generate('a', [...shared, 1], 20));
    bench.run(8);
    bench.submit(generate('b', [...shared, 2], 20));
    bench.run(12);
    const seen = bench.outcomes.tokens('a').length;
    expect(seen).toBeGreaterThan(2);
    const failed = {
      type: 'rank-failed',
      epoch: 1,
      rank: 0,
      code: 'RANK_LOST',
      message: '',
    } as const;
    expect(bench.event(failed).at(-1)).toMatchObject({ type: 'open-epoch' });
    const cachedBefore = bench.outcomes.get('b').cachedTokens;
    await bench.openEpoch(2);
    bench.run();
    expect(bench.outcomes.tokens('a')).toEqual(text([...shared, 1], 20));
    expect(bench.outcomes.tokens('b')).toEqual(text([...shared, 2], 20));
    expect(bench.outcomes.get('b').cachedTokens).toBe(cachedBefore);
  });

  test('suspects run one at a time, each until it is cleared, and all of them end well', async () => {
    const bench = await CoreBench.ready();
    for (const [id, salt] of [
      ['a', 1],
      ['b', 2],
      ['c', 3],
    ] as const) {
      bench.submit(generate(id, prompt(9, salt), 50));
    }
    for (const epoch of [1, 2]) {
      bench.run(14);
      const failed = {
        type: 'rank-failed',
        epoch,
        rank: 0,
        code: 'RANK_LOST',
        message: '',
      } as const;
      bench.event(failed);
      await bench.openEpoch(epoch + 1);
    }
    const from = bench.records.length;
    const seenBefore = ['a', 'b', 'c'].map((id) => bench.outcomes.tokens(id).length);
    bench.run();
    const widths = bench.records.slice(from).map(({ runs }) => runs.length);
    // Three probations of 32 tokens, then whoever is left runs with the others.
    expect(widths.slice(0, 90).filter((width) => width > 1)).toEqual([]);
    expect(Math.max(...widths)).toBe(3);
    for (const [index, id] of ['a', 'b', 'c'].entries()) {
      expect(seenBefore[index]).toBeLessThan(18);
      expect(bench.outcomes.tokens(id)).toEqual(text(prompt(9, index + 1), 50));
    }
  });

  test('a request that came while no epoch was ready is served by the next', async () => {
    const bench = new CoreBench();
    bench.submit(generate('a', prompt(9, 1), 4));
    expect(bench.outcomes.get('a').cachedTokens).toBeNull();
    await bench.openEpoch(3);
    bench.run();
    expect(bench.outcomes.tokens('a')).toEqual(text(prompt(9, 1), 4));
  });

  test('a smaller cluster fails what no longer fits and goes on with the rest', async () => {
    const bench = await CoreBench.ready();
    bench.submit(generate('big', prompt(60, 1), 20));
    bench.submit(generate('small', prompt(6, 2), 6));
    const failed = {
      type: 'rank-failed',
      epoch: 1,
      rank: 0,
      code: 'RANK_LOST',
      message: '',
    } as const;
    bench.event(failed);
    const limits = { ...bench.limits, kvBlocks: 8 };
    bench.event({ type: 'epoch-ready', epoch: 2, firstStep: 1, limits });
    expect(bench.outcomes.get('big').code).toBe('CONTEXT_EXCEEDED');
    expect(bench.outcomes.get('small').end).toBeNull();
    expect(bench.core.status.requests).toBe(1);
  });
});
