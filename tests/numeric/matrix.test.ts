// The topology matrix: model x topology x transport x mode x kernel set x threads x chunk size.
// `npm test` runs cells in which every pair of values meets; COX_MATRIX=all runs every cell.
import { afterAll, describe, expect, it } from 'vitest';
import { hostKernels, planModel } from '../../src/base/addon.ts';
import { present } from '../../src/base/assert.ts';
import {
  allowedPairs,
  type Cell,
  type Excludes,
  everyCell,
  pairwiseCells,
} from './covering-array.ts';
import {
  checkCell,
  type MatrixCell,
  MODES,
  modelPath,
  TOPOLOGIES,
  titleOf,
} from './matrix-cell.ts';
import { OWN_NAMES } from './own-case.ts';

const QUANTISED =
  'q8_0 q4_0 q4_1 q5_0 q5_1 q2_k q3_k q4_k q5_k q6_k iq2_xxs iq3_xxs iq4_nl iq4_xs q4_k_m';
const MODELS = [
  'llama',
  'qwen2',
  'qwen3',
  'llama-q',
  'llama-q.f16',
  'llama-q.bf16',
  ...QUANTISED.split(' ').map((type) => `llama-q.${type}`),
  ...OWN_NAMES,
];

const FACTORS = {
  topology: Object.keys(TOPOLOGIES),
  model: MODELS,
  transport: ['none', 'shm', 'tcp', 'grpc'],
  mode: Object.keys(MODES),
  isa: [...hostKernels().available],
  threads: ['1', '2', '3'],
  chunk: ['1000', '37'],
};

/** What the planner refuses: a stage without a layer, a rank without work. */
const REFUSED: Readonly<Record<string, readonly string[]>> = {
  'own-divisors': ['TP 1,1,1,1'],
  'own-one-layer': ['TP 3,2,2', 'TP 1,1,1,1', 'PP 2', 'TP 2 x PP 2'],
};

const excludes: Excludes = (a, b) => {
  const [aFactor, aValue] = a;
  const [bFactor, bValue] = b;
  if (aFactor !== 'topology') return false;
  if (bFactor === 'transport') return (aValue === 'one rank') !== (bValue === 'none');
  return bFactor === 'model' && (REFUSED[bValue] ?? []).includes(aValue);
};

const choiceOf = (cell: Cell, factor: string): string => present(cell[factor], factor);

/** All cells of the other factors; chunk sizes take turns, which halves an hour. */
function allCells(): Cell[] {
  const { chunk, ...others } = FACTORS;
  return everyCell(others, excludes).map((cell, index) => ({
    ...cell,
    // Over the rows of three threads and three kernel sets, both sizes meet every value.
    chunk: present(chunk[(index + Math.floor(index / 9)) % chunk.length], 'a chunk size'),
  }));
}

const chosen = process.env['COX_MATRIX'] === 'all' ? allCells() : pairwiseCells(FACTORS, excludes);
const cells = chosen.map(
  (cell): MatrixCell => ({
    model: choiceOf(cell, 'model'),
    topology: choiceOf(cell, 'topology'),
    transport: choiceOf(cell, 'transport'),
    mode: choiceOf(cell, 'mode'),
    isa: choiceOf(cell, 'isa'),
    threads: Number(choiceOf(cell, 'threads')),
    chunk: Number(choiceOf(cell, 'chunk')),
  }),
);

const widest: Record<string, number> = {};
const note = (name: string, value: number) => {
  widest[name] = Math.max(widest[name] ?? 0, value);
};

describe('the matrix', () => {
  afterAll(() => {
    if (process.env['COX_MATRIX_REPORT'] !== undefined) console.log(widest);
  });

  it('holds every pair of values that may meet', () => {
    const missing = allowedPairs(FACTORS, excludes).filter(
      ([[aFactor, aValue], [bFactor, bValue]]) =>
        !cells.some((cell) => {
          const values: Record<string, unknown> = { ...cell };
          return String(values[aFactor]) === aValue && String(values[bFactor]) === bValue;
        }),
    );
    expect(missing).toEqual([]);
  });

  it('leaves out exactly what the planner refuses', async () => {
    const refused: [string, string][] = [];
    for (const model of MODELS) {
      for (const [name, topology] of Object.entries(TOPOLOGIES)) {
        const mode = present(MODES['a8, f16'], 'a mode');
        const wanted = { ...topology, ...mode, layers: [], context: 0 };
        const plan = await planModel(modelPath(model), wanted);
        if (plan.refused !== null) refused.push([model, name]);
      }
    }
    expect(refused).toEqual(
      Object.entries(REFUSED).flatMap(([model, names]) => names.map((name) => [model, name])),
    );
  });

  it.each(cells.map((cell) => [titleOf(cell), cell] as const))('%s', async (_, cell) => {
    const { fromOracle, fromOneRank } = await checkCell(cell);
    const kind = `${/\.i?q\d/.test(cell.model) ? 'block' : 'float'}, ${cell.mode}`;
    note(`${kind}: from the oracle`, fromOracle);
    note(`${kind}: ${cell.topology} from one rank`, fromOneRank);
  });
});
