// Quality of `cox quantize` beside llama.cpp's own quantiser: both make the same types from the same F16 file, and
// `cox perplexity` reads a text with each. Fails where ours is more than 0.5 % worse.
//   node tests/perf/quantize-quality.mjs [--model PATH] [--file TEXT] [--bytes N] [TYPE ...]
// Needs `npm ci` in tests/perf (llama.cpp v0.5.0) and python3. The default model is published as Q4_1 only, so its F16 file
// is an expansion of that: types that can follow its grid look better than they would on the original weights.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { readGguf } from '../vectors/oracle/gguf-writer.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, '..', '..');
const { values: args, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    model: { type: 'string' },
    file: { type: 'string' },
    bytes: { type: 'string', default: '80000' },
  },
});
const cache = process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache');
const models = process.env.COX_MODELS ?? join(cache, 'coxswain', 'models');
const model = args.model ?? join(models, 'SmolLM2-135M-Instruct.Q4_1.gguf');
const THREADS = 2;
const WORSE_BOUND = 5e-3;
/** Our type -> general.file_type, and whether all matrices have it. */
const TYPES = {
  Q8_0: [7, false],
  Q6_K: [18, true],
  Q5_K: [16, true],
  Q4_K_M: [15, false],
  Q4_K: [14, true],
  Q5_1: [9, false],
  Q5_0: [8, false],
  Q4_1: [3, false],
  Q4_0: [2, false],
};
const wanted = positionals.length > 0 ? positionals : Object.keys(TYPES);

function run(command, parameters) {
  const start = performance.now();
  const done = spawnSync(command, parameters.map(String), { maxBuffer: 1 << 26, cwd: root });
  if (done.status !== 0)
    throw new Error(`${parameters.join(' ')}: ${done.stderr.toString('utf8').slice(-2000)}`);
  return { text: done.stdout.toString('utf8'), seconds: (performance.now() - start) / 1000 };
}
const cox = (...parameters) => run(process.execPath, ['dist/cli/main.js', ...parameters]);

const folder = mkdtempSync(join(tmpdir(), 'cox-quantize-'));

/** The beginning of the licence texts, or of the file given. */
function text() {
  const licences = '/usr/share/common-licenses';
  const sources =
    args.file === undefined
      ? ['Apache-2.0', 'Artistic', 'GPL-3', 'LGPL-2.1', 'MPL-2.0', 'GFDL-1.3', 'GPL-2']
          .map((name) => join(licences, name))
          .filter(existsSync)
      : [args.file];
  const path = join(folder, 'text.txt');
  const whole = Buffer.concat(sources.map((source) => readFileSync(source)));
  writeFileSync(path, whole.subarray(0, Number(args.bytes)));
  return path;
}

function sameTensors(one, other) {
  const theirs = new Map(readGguf(other).tensors.map((tensor) => [tensor.name, tensor]));
  const bytes = ({ data }) => Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  return readGguf(one).tensors.every((tensor) => {
    const twin = theirs.get(tensor.name);
    return twin?.type === tensor.type && bytes(tensor).equals(bytes(twin));
  });
}

try {
  const source = join(folder, 'F16.gguf');
  cox('quantize', model, 'F16', source);
  const file = text();
  const perplexity = (path) =>
    JSON.parse(
      cox('perplexity', path, '--file', file, '--window', 512, '--threads', THREADS, '--json').text,
    ).perplexity;
  console.log(`F16: ${perplexity(source).toFixed(4)}`);
  for (const type of wanted) {
    const [fileType, pure] = TYPES[type];
    const ours = join(folder, `ours.${type}.gguf`);
    const theirs = join(folder, `theirs.${type}.gguf`);
    const threads = ['--threads', THREADS];
    const { seconds } = cox(
      'quantize',
      source,
      type,
      ours,
      ...threads,
      ...(pure ? ['--pure'] : []),
    );
    const peer = run('python3', [
      join(here, 'llama-quantize.py'),
      source,
      theirs,
      fileType,
      THREADS,
      Number(pure),
    ]);
    const value = perplexity(ours);
    const equal = sameTensors(ours, theirs);
    const theirValue = equal ? value : perplexity(theirs);
    const difference = value / theirValue - 1;
    const verdict = equal ? 'every tensor equal' : `${(100 * difference).toFixed(3)} %`;
    console.log(
      `${type}${pure ? ' (pure)' : ''}: ours ${value.toFixed(4)}, llama.cpp ${theirValue.toFixed(4)} (${verdict}); ${seconds.toFixed(1)} s, ${peer.seconds.toFixed(1)} s`,
    );
    if (difference > WORSE_BOUND) process.exitCode = 1;
    for (const path of [ours, theirs]) rmSync(path);
  }
} finally {
  rmSync(folder, { recursive: true });
}
