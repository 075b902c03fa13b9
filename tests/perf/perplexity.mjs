// Perplexity of the default model on an English text: llama.cpp's on the same file, ours on one rank and on
// other topologies. Prints a line each and fails outside the promised bounds (0.5 % and 0.05 %).
//   node tests/perf/perplexity.mjs [--model PATH] [--file TEXT] [--no-peer]
// Without --file: the licence texts under /usr/share/common-licenses.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, '..', '..');
const { values: args } = parseArgs({
  options: {
    model: { type: 'string' },
    file: { type: 'string' },
    'no-peer': { type: 'boolean', default: false },
  },
});
const cache = process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache');
const models = process.env.COX_MODELS ?? join(cache, 'coxswain', 'models');
const model = args.model ?? join(models, 'SmolLM2-135M-Instruct.Q4_1.gguf');
const WINDOW = 512;
const PEER_BOUND = 5e-3;
const TOPOLOGY_BOUND = 5e-4;

function licences() {
  const directory = '/usr/share/common-licenses';
  const names = readdirSync(directory).filter((name) =>
    /^(Apache|Artistic|BSD|CC0|GFDL-|GPL-|LGPL-|MPL-)/.test(name),
  );
  const path = join(mkdtempSync(join(tmpdir(), 'cox-perplexity-')), 'licences.txt');
  writeFileSync(
    path,
    names
      .sort()
      .map((name) => readFileSync(join(directory, name), 'utf8'))
      .join('\n'),
  );
  return path;
}

function last(command, parameters) {
  const done = spawnSync(command, parameters.map(String), { maxBuffer: 1 << 26, cwd: root });
  if (done.status !== 0)
    throw new Error(`${parameters.join(' ')}: ${done.stderr.toString('utf8').slice(-2000)}`);
  return JSON.parse(done.stdout.toString('utf8').trim().split('\n').at(-1));
}

const file = args.file ?? licences();
const ours = (...topology) =>
  last(process.execPath, [
    'dist/cli/main.js',
    'perplexity',
    model,
    '--file',
    file,
    '--window',
    WINDOW,
    '--json',
    ...topology,
  ]);

const base = ours('--threads', 2);
console.log(
  `one rank: ${base.perplexity.toFixed(4)} (${base.tokens} tokens counted in ${base.windows} windows)`,
);
let failed = false;
function compare(name, perplexity, bound) {
  const difference = perplexity / base.perplexity - 1;
  const bad = Math.abs(difference) > bound;
  failed ||= bad;
  console.log(
    `${name}: ${perplexity.toFixed(4)} (${(100 * difference).toFixed(3)} %${bad ? `, more than ${100 * bound} %` : ''})`,
  );
}
for (const topology of [
  ['--pp', 2],
  ['--tp', 2],
  ['--tp', 3],
  ['--tp', 2, '--pp', 2],
]) {
  compare(topology.join(' '), ours(...topology, '--threads', 1).perplexity, TOPOLOGY_BOUND);
}
if (!args['no-peer'] && existsSync(join(here, 'node_modules', 'node-llama-cpp'))) {
  compare(
    'llama.cpp',
    last('python3', [join(here, 'llama-perplexity.py'), model, file, WINDOW, 2]).perplexity,
    PEER_BOUND,
  );
}
process.exitCode = failed ? 1 : 0;
