// COX_SIM_SEEDS=N runs N seeds, COX_SIM_SEED=S runs one.
import { expect, test } from 'vitest';
import { type SimReport, simulate } from './simulation.ts';

const SEEDS = Number(process.env['COX_SIM_SEEDS'] ?? 300);
const ONLY = process.env['COX_SIM_SEED'];

async function runSeed(seed: number): Promise<SimReport> {
  try {
    return await simulate(seed);
  } catch (cause) {
    throw new Error(`seed ${seed} (repeat with COX_SIM_SEED=${seed}): ${String(cause)}`, { cause });
  }
}

test(`the cluster keeps its promises under faults (${SEEDS} seeds)`, {
  timeout: 7_200_000,
}, async () => {
  const codes: Record<string, number> = {};
  const totals = { finished: 0, epochsLost: 0, steps: 0, preemptions: 0, staleRefused: 0 };
  const first = Number(ONLY ?? 1);
  const last = Number(ONLY ?? SEEDS);
  for (let seed = first; seed <= last; seed += 1) {
    const report = await runSeed(seed);
    totals.finished += report.finished;
    totals.epochsLost += report.epochsLost;
    totals.steps += report.steps;
    totals.preemptions += report.preemptions;
    totals.staleRefused += report.staleRefused;
    for (const [code, count] of Object.entries(report.failed))
      codes[code] = (codes[code] ?? 0) + count;
  }
  if (process.env['COX_SIM_VERBOSE'] !== undefined) console.log({ ...totals, codes });
  if (ONLY !== undefined || SEEDS < 100) return;
  // The seeds are only worth something while they reach these paths.
  expect(totals.epochsLost).toBeGreaterThan(SEEDS / 2);
  expect(totals.preemptions).toBeGreaterThan(SEEDS / 10);
  expect(totals.staleRefused).toBeGreaterThan(SEEDS / 10);
  expect(codes['REQUEST_POISONOUS']).toBeGreaterThan(SEEDS / 20);
});

test('the same seed gives the same run', async () => {
  expect(await simulate(7)).toEqual(await simulate(7));
});
