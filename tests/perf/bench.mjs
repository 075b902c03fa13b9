// The project's benchmark: our engine beside llama.cpp and beside the machine's own limits, one table a subject.
//   node tests/perf/bench.mjs [TABLE ...] [--model PATH] [--runs 5] [--quick] [--svg FILE] [--json FILE]
// Without names all tables are measured. Each is stored in the cache as soon as it is done; then (and by the name
// `report` alone, which measures nothing) all that are stored are printed, drawn and written as JSON:
// docs/performance.svg and docs/performance.json unless named or --quick. docs/PERFORMANCE.md tells how figures are made.
import { existsSync } from 'node:fs';
import { availableParallelism, homedir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { chart } from './bench/chart.mjs';
import { peerIsThere } from './bench/peer.mjs';
import {
  machine,
  missed,
  storedTables,
  storeTable,
  tableText,
  writeWhole,
} from './bench/report.mjs';
import { root } from './bench/run.mjs';

const TABLES = [
  ...['limits', 'decode', 'prefill', 'context', 'streams', 'kernels', 'large', 'avx2'],
  ...['topologies', 'allreduce', 'overheads', 'load'],
];

const { values: args, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    model: { type: 'string' },
    runs: { type: 'string', default: '5' },
    quick: { type: 'boolean', default: false },
    svg: { type: 'string' },
    json: { type: 'string' },
  },
});

const TOKENS = {
  ...{ decode: 64, prefill: 512, longPrefill: 4096, depth: 8000 },
  ...{ largeDecode: 32, largePrefill: 128, overheadSteps: 512, httpDecode: 256 },
};
/** Enough to see that everything runs; the figures mean nothing. */
const QUICK_TOKENS = {
  ...{ decode: 8, prefill: 32, longPrefill: 64, depth: 128 },
  ...{ largeDecode: 2, largePrefill: 8, overheadSteps: 32, httpDecode: 32 },
};

function openBench() {
  const userCache = join(process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'coxswain');
  const models = process.env.COX_MODELS ?? join(userCache, 'models');
  const model = args.model ?? join(models, 'SmolLM2-135M-Instruct.Q4_1.gguf');
  if (!existsSync(model))
    throw new Error(`${model} is missing: run "npx cox pull smollm2-135m-instruct"`);
  const runs = args.quick ? 1 : Number(args.runs);
  if (!Number.isInteger(runs) || runs < 1) throw new Error('--runs is a whole number from 1');
  return {
    model,
    runs,
    quick: args.quick,
    cache: process.env.COX_BENCH_CACHE ?? join(userCache, 'bench'),
    threads: availableParallelism() > 1 ? [1, 2] : [1],
    tokens: args.quick ? QUICK_TOKENS : TOKENS,
  };
}

/** Rows of a table; one that fails altogether is a row that says so. */
async function measured(bench, name) {
  const { title, run } = await import(`./tables/${name}.mjs`);
  const date = new Date().toISOString();
  let rows;
  try {
    rows = await run(bench);
  } catch (error) {
    rows = [{ what: name, note: String(error.message), failed: true }];
  }
  return { title, date, runs: bench.runs, machine: machine(), rows };
}

async function report(bench) {
  const tables = storedTables(bench, TABLES);
  const { processor, cores } = machine();
  const dates = Object.values(tables).map(({ date }) => date.slice(0, 10));
  const runs = Math.min(...Object.values(tables).map((table) => table.runs), bench.runs);
  const caption = `${dates.sort().at(-1)}, ${cores} cores of ${processor}, medians of ${runs}`;
  // Rows that failed carry messages about this machine's files.
  const kept = Object.fromEntries(
    Object.entries(tables).map(([name, table]) => [
      name,
      { ...table, rows: table.rows.filter((row) => !row.failed) },
    ]),
  );
  const whole = { model: bench.model.split('/').at(-1), machine: machine(), tables: kept };
  const json = args.json ?? (bench.quick ? undefined : join(root, 'docs', 'performance.json'));
  const svg = args.svg ?? (bench.quick ? undefined : join(root, 'docs', 'performance.svg'));
  if (json !== undefined) writeWhole(json, `${JSON.stringify(whole)}\n`);
  const drawing = svg === undefined ? null : await chart(tables, caption);
  if (drawing !== null) writeWhole(svg, `${drawing}\n`);
  return tables;
}

const onlyReport = positionals.length === 1 && positionals[0] === 'report';
const names = onlyReport ? [] : positionals.length === 0 ? TABLES : positionals;
const unknown = names.filter((name) => !TABLES.includes(name));
if (unknown.length > 0)
  throw new Error(`no table ${unknown.join(', ')}; there are ${TABLES.join(', ')}, and report`);

const bench = openBench();
const { processor, cores, system, node } = machine();
console.log(
  `${cores} cores of ${processor}, ${system}, Node ${node}; ${bench.runs} alternating runs`,
);
if (!peerIsThere())
  console.log(
    'llama.cpp is not installed (npm ci in tests/perf, and python3): its columns stay empty',
  );
const done = {};
for (const name of names) {
  done[name] = await measured(bench, name);
  storeTable(bench, name, done[name]);
  console.log(`\n${tableText(done[name])}`);
}
const tables = await report(bench);
if (onlyReport) for (const table of Object.values(tables)) console.log(`\n${tableText(table)}`);
const failures = missed(onlyReport ? tables : done);
if (failures.length > 0)
  console.log(`\nNot met:\n${failures.map((line) => `  ${line}`).join('\n')}`);
if (Object.values(done).some(({ rows }) => rows.some((row) => row.failed))) process.exitCode = 1;
