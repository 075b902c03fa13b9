// COX_SIM_SEEDS=N runs seeds 1 to N, or from COX_SIM_FIRST; COX_SIM_SEED=S runs one.
import { expect, test } from 'vitest';
import { simulateStore } from './store-simulation.ts';
import type { Counts } from './world.ts';

const SEEDS = Number(process.env['COX_SIM_SEEDS'] ?? 500);
const FIRST = Number(process.env['COX_SIM_FIRST'] ?? 1);
const ONLY = process.env['COX_SIM_SEED'];

async function runSeed(seed: number): Promise<Counts> {
  try {
    return await simulateStore(seed);
  } catch (cause) {
    throw new Error(`seed ${seed} (repeat with COX_SIM_SEED=${seed}): ${String(cause)}`, { cause });
  }
}

test(`no wrong answer, nothing committed lost, nothing named deleted (${SEEDS} seeds)`, {
  timeout: 7_200_000,
}, async () => {
  const totals: Record<string, number> = {};
  for (let seed = Number(ONLY ?? FIRST); seed <= Number(ONLY ?? SEEDS); seed += 1) {
    for (const [name, count] of Object.entries(await runSeed(seed))) {
      totals[name] = (totals[name] ?? 0) + count;
    }
  }
  if (process.env['COX_SIM_VERBOSE'] !== undefined) console.log(totals);
  if (ONLY !== undefined || SEEDS - FIRST < 100) return;
  // The seeds are only worth something while they reach these paths.
  for (const [name, count] of Object.entries(totals))
    expect([name, count > (SEEDS - FIRST) / 20]).toEqual([name, true]);
});

test('the same seed gives the same run', async () => {
  expect(await simulateStore(7)).toEqual(await simulateStore(7));
});
