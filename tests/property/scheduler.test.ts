// The core against its naive twin: any interleaving of clients, over any topology, block size and pool, gives
// each of them the text that it would have got alone.
import { expect, test } from 'vitest';
import { createPrng } from '../../src/base/prng.ts';
import { CoreBench, SHAPE } from '../sim/core-bench.ts';
import { checkVisit, randomWorkload, stopsNow, type Visit } from '../sim/workload.ts';

const SEEDS = Number(process.env['COX_PROPERTY_SEEDS'] ?? 250);

interface Totals {
  preemptions: number;
  cachedTokens: number;
  steps: number;
}

async function runSeed(seed: number, totals: Totals): Promise<void> {
  const prng = createPrng(seed);
  const blockTokens = 2 + prng.below(7);
  const promptMax = 50;
  const answerMax = 25;
  const blocksForOne = Math.ceil((promptMax + answerMax) / blockTokens);
  const pp = 1 + prng.below(3);
  const bench = await CoreBench.ready({
    split: [[1], [1, 1], [2, 1], [1, 1, 1]][prng.below(4)] ?? [1],
    pp: Math.min(pp, SHAPE.layers),
    blockTokens,
    limits: {
      slots: 1 + prng.below(6),
      kvBlocks: Math.ceil(blocksForOne * (0.6 + prng.uniform() * (prng.chance(0.5) ? 0.6 : 3))),
      context: 30 + prng.below(100),
      stepRowsMax: 1 + prng.below(40),
      queueMax: 1_000,
      liveReuse: prng.chance(0.8),
    },
  });
  const visits = randomWorkload(prng, SHAPE, {
    visits: 2 + prng.below(12),
    withinMs: 60,
    promptMax,
    answerMax,
  });
  for (const visit of visits) arrive(bench, visit);
  bench.run();
  bench.settle();
  for (const visit of visits) {
    const { context, kvBlocks } = bench.limits;
    const most = Math.min(context, kvBlocks * blockTokens + 1);
    const { request } = visit;
    const bounded =
      request.kind === 'generate'
        ? { ...visit, request: { ...request, sampler: bound(request.sampler, most) } }
        : visit;
    checkVisit(SHAPE, bounded, bench.outcomes.get(request.id), ['CONTEXT_EXCEEDED']);
  }
  const { status } = bench.core;
  expect(status).toMatchObject({ requests: 0, slots: { used: 0 }, kvBlocks: { used: 0 } });
  totals.preemptions += status.preemptions;
  totals.cachedTokens += status.cachedTokens;
  totals.steps += status.stepsDone;
}

function bound<T extends { readonly lengthMax: number }>(params: T, context: number): T {
  return { ...params, lengthMax: Math.min(params.lengthMax, context) };
}

function arrive(bench: CoreBench, visit: Visit): void {
  const { request, hangsUpAfter } = visit;
  const { id } = request;
  bench.clock.after(visit.at, () => {
    bench.submit(request);
    if (hangsUpAfter === null) return;
    bench.clock.after(hangsUpAfter, () => bench.event({ type: 'request-cancelled', id }));
  });
  bench.onTokens.set(id, (choice) => {
    const seen = bench.outcomes.get(id).choices[choice];
    if (seen === undefined || !stopsNow(visit, seen)) return;
    bench.clock.after(1, () => bench.event({ type: 'choice-stopped', id, choice }));
  });
}

test(`the core answers as if every request were alone (${SEEDS} seeds)`, async () => {
  const only = process.env['COX_PROPERTY_SEED'];
  const totals = { preemptions: 0, cachedTokens: 0, steps: 0 };
  for (let seed = Number(only ?? 1); seed <= Number(only ?? SEEDS); seed += 1) {
    try {
      await runSeed(seed, totals);
    } catch (cause) {
      throw new Error(`seed ${seed} (COX_PROPERTY_SEED=${seed}): ${String(cause)}`, { cause });
    }
  }
  if (only !== undefined) return;
  // The scenarios are only worth something while they reach these paths.
  expect(totals.preemptions).toBeGreaterThan(SEEDS / 4);
  expect(totals.cachedTokens).toBeGreaterThan(SEEDS);
});
