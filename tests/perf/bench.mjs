// The project's benchmark: our engine and llama.cpp on the same file with the same threads, alternating,
// medians of RUNS; then our own topologies as ratios of one rank. Prints a table, writes docs/performance.svg.
//   node tests/perf/bench.mjs [--model PATH] [--runs 5] [--svg FILE] [--quick]
// llama.cpp needs `npm ci` in tests/perf; without it only our columns are filled.
import { spawnSync } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { cpus, homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, '..', '..');
const { values: args } = parseArgs({
  options: {
    model: { type: 'string' },
    runs: { type: 'string', default: '5' },
    svg: { type: 'string', default: join(root, 'docs', 'performance.svg') },
    quick: { type: 'boolean', default: false },
  },
});
const cache = process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache');
const models = process.env.COX_MODELS ?? join(cache, 'coxswain', 'models');
const model = args.model ?? join(models, 'SmolLM2-135M-Instruct.Q4_1.gguf');
if (!existsSync(model))
  throw new Error(`${model} is missing: run "npx cox pull smollm2-135m-instruct"`);
const runs = args.quick ? 1 : Number(args.runs);
const peerThere = existsSync(join(here, 'node_modules', 'node-llama-cpp'));
const PREFILL = 512;
const DECODE = 64;

function lines(command, parameters) {
  const done = spawnSync(command, parameters, { maxBuffer: 1 << 26, cwd: root });
  if (done.status !== 0)
    throw new Error(`${parameters.join(' ')}: ${done.stderr.toString('utf8').slice(-2000)}`);
  return done.stdout
    .toString('utf8')
    .trim()
    .split('\n')
    .filter((line) => /^[[{]/.test(line))
    .flatMap((line) => JSON.parse(line));
}
const cox = (...topology) =>
  lines(
    process.execPath,
    [
      'dist/cli/main.js',
      'bench',
      model,
      '-p',
      PREFILL,
      '-n',
      DECODE,
      '--runs',
      1,
      '--json',
      ...topology,
    ].map(String),
  );
const peer = (threads) =>
  lines(
    process.execPath,
    [join(here, 'llama-peer.mjs'), 'bench', model, threads, PREFILL, DECODE, 1].map(String),
  );
const rate = (rows, test) => rows.find((row) => row.test === test).tokens_per_second.median;
const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];

/** Alternates the given measurements RUNS times, so that a slow minute hits all of them. */
function alternate(measures) {
  const samples = Object.fromEntries(
    Object.keys(measures).map((name) => [name, { prefill: [], decode: [] }]),
  );
  for (let run = 0; run < runs; run++) {
    for (const [name, measure] of Object.entries(measures)) {
      const rows = measure();
      for (const test of ['prefill', 'decode']) samples[name][test].push(rate(rows, test));
    }
  }
  return Object.fromEntries(
    Object.entries(samples).map(([name, tests]) => [
      name,
      { prefill: median(tests.prefill), decode: median(tests.decode) },
    ]),
  );
}

const result = alternate({
  'one rank, 1 thread': () => cox('--threads', 1),
  ...(peerThere ? { 'llama.cpp, 1 thread': () => peer(1) } : {}),
  'one rank, 2 threads': () => cox('--threads', 2),
  ...(peerThere ? { 'llama.cpp, 2 threads': () => peer(2) } : {}),
  'TP 2 over shm, 1 thread each': () => cox('--tp', 2, '--threads', 1, '--transport', 'shm'),
  'TP 2 over tcp, 1 thread each': () => cox('--tp', 2, '--threads', 1, '--transport', 'tcp'),
  'TP 3 over shm, 1 thread each': () => cox('--tp', 3, '--threads', 1, '--transport', 'shm'),
  'PP 2 over shm, 1 thread each': () => cox('--pp', 2, '--threads', 1, '--transport', 'shm'),
});

const ratio = (name, base, test) =>
  result[name] && result[base] ? (result[name][test] / result[base][test]).toFixed(2) : '-';
const rows = [['what', 'decode tok/s', 'ratio', 'prefill tok/s', 'ratio', 'ratio to']];
for (const name of Object.keys(result)) {
  const threads = name.includes('1 thread') && !name.includes('each') ? '1 thread' : '2 threads';
  const base = name.startsWith('one rank')
    ? `llama.cpp, ${threads}`
    : name.startsWith('llama')
      ? null
      : 'one rank, 2 threads';
  const cells = (test) => [
    result[name][test].toFixed(0),
    base === null ? '' : ratio(name, base, test),
  ];
  rows.push([name, ...cells('decode'), ...cells('prefill'), base ?? '']);
}
const widths = rows[0].map((_, column) => Math.max(...rows.map((row) => row[column].length)));
console.log(
  `${new Date().toISOString().slice(0, 10)}, ${cpus().length} x ${cpus()[0]?.model}, ${runs} alternating runs, prefill ${PREFILL}, decode ${DECODE}`,
);
for (const row of rows)
  console.log(
    row
      .map((cell, column) =>
        column === 0 ? cell.padEnd(widths[0]) : cell.padStart(widths[column]),
      )
      .join('  '),
  );

if (peerThere) {
  const { parse, View } = await import('vega');
  const { compile } = await import('vega-lite');
  const values = Object.entries(result).flatMap(([name, tests]) =>
    Object.entries(tests).map(([test, tokens]) => ({ name, test, tokens })),
  );
  const chart = {
    $schema: 'https://vega.github.io/schema/vega-lite/v5.json',
    data: { values },
    facet: { column: { field: 'test', title: null } },
    resolve: { scale: { x: 'independent' } },
    spec: {
      width: 320,
      mark: 'bar',
      encoding: {
        y: { field: 'name', type: 'nominal', sort: null, title: null, axis: { labelLimit: 320 } },
        x: { field: 'tokens', type: 'quantitative', title: 'tokens per second' },
        color: {
          condition: { test: "indexof(datum.name, 'llama') === 0", value: '#b0b0b0' },
          value: '#2b6cb0',
        },
      },
    },
  };
  const svg = await new View(parse(compile(chart).spec), { renderer: 'none' }).toSVG();
  writeFileSync(args.svg, `${svg}\n`);
}
