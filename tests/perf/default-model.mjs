// The default model's logits over a fixed text, held against llama.cpp's (tests/perf/default-model.json).
//   node default-model.mjs check [MODEL.gguf]     runs `cox logits` on several topologies; exits 1 on a difference
//   node default-model.mjs record [MODEL.gguf]    writes default-model.json (needs npm ci here, 600 MB in the temporary folder)
// Two references: `native` is llama.cpp on the file as it is, with 8-bit activations, to be met statistically;
// `dequantised` is llama.cpp in F32 on the same weights expanded to F32, to be met within rounding by --exact.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  closeSync,
  existsSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { GgufWriter, readGguf } from '../vectors/oracle/gguf-writer.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const recording = join(here, 'default-model.json');
const cache = process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache');
const models = process.env.COX_MODELS ?? join(cache, 'coxswain', 'models');
const [mode, model = join(models, 'SmolLM2-135M-Instruct.Q4_1.gguf')] = process.argv.slice(2);
if (!existsSync(model))
  throw new Error(`${model} is missing: run "npx cox pull smollm2-135m-instruct"`);

const TEXT = `A crew of eight rows as one because one voice keeps the time. When an oar is late by a tenth of a second the
boat checks, and everyone pays for it; so the cox watches the slowest blade, not the fastest. Machines that share
the layers of a model are much the same. Each holds a part of the weights, computes a partial sum, and waits until
the others have theirs. In 2024, a small model of 135 million parameters fitted into 90 MB; a large one did not fit
into any single desk-side computer at all.\n\nfunction add(a, b) {\n  return a + b; // nothing is simpler\n}\n\nThe list
of things that can go wrong is long: a cable is pulled, a fan fails, someone closes the lid of a laptop. What must not
happen is that an answer changes because of it. "Say it again," the passenger asks, and the same words come back, in
the same order, to the last comma. Les rameurs le savent bien: on ne gagne pas seul. 1, 2, 3, 5, 8, 13, 21, 34, 55.`;

// ---------------------------------------------------------------- recording

function halfAt(buffer, at) {
  const bits = buffer.readUInt16LE(at);
  const [exponent, mantissa] = [(bits >> 10) & 31, bits & 1023];
  const value = exponent ? (1 + mantissa / 1024) * 2 ** (exponent - 15) : mantissa * 2 ** -24;
  return bits & 0x8000 ? -value : value;
}

/** Bytes of a block, and its 32 values (GGUF layouts of the types in the default model). */
const BLOCKS = {
  Q8_0: [
    34,
    (data, at, out, to) => {
      const d = halfAt(data, at);
      for (let i = 0; i < 32; i++) out[to + i] = data.readInt8(at + 2 + i) * d;
    },
  ],
  Q4_1: [
    20,
    (data, at, out, to) => {
      const [d, m] = [halfAt(data, at), halfAt(data, at + 2)];
      for (let i = 0; i < 16; i++) {
        const byte = data[at + 4 + i];
        out[to + i] = (byte & 15) * d + m;
        out[to + 16 + i] = (byte >> 4) * d + m;
      }
    },
  ],
};

function floatsOf(tensor) {
  if (tensor.type === 'F32') return tensor.data;
  const [bytes, expand] = BLOCKS[tensor.type];
  const out = new Float32Array((tensor.nbytes / bytes) * 32);
  for (let block = 0; block * bytes < tensor.nbytes; block++)
    expand(tensor.data, block * bytes, out, block * 32);
  return out;
}

function writeDequantised(path) {
  const { kv, tensors } = readGguf(model);
  const writer = new GgufWriter();
  for (const [key, { type, value, elemType }] of kv)
    writer.kv(key, type, key === 'general.file_type' ? 0 : value, elemType);
  for (const tensor of tensors) writer.tensor(tensor.name, tensor.shape, 'F32', floatsOf(tensor));
  const file = openSync(path, 'w');
  const bytes = writer.toBuffer();
  for (let at = 0; at < bytes.length; )
    at += writeSync(file, bytes, at, Math.min(1 << 28, bytes.length - at));
  closeSync(file);
}

const round = (x) => Number(x.toPrecision(9));

function logSumExp(logits) {
  const max = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  return max + Math.log(logits.reduce((sum, x) => sum + Math.exp(x - max), 0));
}

/** Per position: best id, gap to the second, logsumexp, and every 12th position the 40 best logits. */
function summary(rows) {
  return rows.map((next, pos) => {
    const top = [...next.logits].slice(0, 40).map(([id, logit]) => [id, round(logit)]);
    const entry = {
      argmax: top[0][0],
      gap: round(top[0][1] - top[1][1]),
      logsumexp: round(logSumExp(Float64Array.from(next.logits.values()))),
    };
    return pos % 12 === 0 || pos === rows.length - 1 ? { ...entry, top } : entry;
  });
}

async function run(llama, modelPath, prompt) {
  const loaded = await llama.loadModel({ modelPath, gpuLayers: 0 });
  const context = await loaded.createContext({
    contextSize: 512,
    batchSize: 512,
    threads: 1,
    flashAttention: false,
    experimentalKvCacheKeyType: 'F32',
    experimentalKvCacheValueType: 'F32',
  });
  const ids = prompt ?? loaded.tokenize(TEXT);
  const out = await context
    .getSequence()
    .controlledEvaluate(ids.map((id) => [id, { generateNext: { logits: true } }]));
  await context.dispose();
  await loaded.dispose();
  return { ids, positions: summary(out.map(({ next }) => next)) };
}

async function record() {
  const { getLlama, LlamaLogLevel } = await import('node-llama-cpp');
  const llama = await getLlama({
    gpu: false,
    build: 'never',
    logLevel: LlamaLogLevel.error,
    maxThreads: 1,
  });
  const folder = mkdtempSync(join(tmpdir(), 'coxswain-default-'));
  const native = await run(llama, model);
  writeDequantised(join(folder, 'f32.gguf'));
  const dequantised = await run(llama, join(folder, 'f32.gguf'), native.ids);
  rmSync(folder, { recursive: true });
  const sha256 = createHash('sha256').update(readFileSync(model)).digest('hex');
  const oracle =
    'llama.cpp 0.5.0 (node-llama-cpp 3.22.1): CPU, 1 thread, F32 keys and values, no flash attention';
  writeFileSync(
    recording,
    `${JSON.stringify({ model: { sha256 }, oracle, ids: native.ids, native: native.positions, dequantised: dequantised.positions })}\n`,
  );
  console.log(`${native.ids.length} tokens recorded`);
}

// ---------------------------------------------------------------- checking

function coxLogits(ids, parameters) {
  const folder = mkdtempSync(join(tmpdir(), 'coxswain-logits-'));
  try {
    writeFileSync(join(folder, 'ids.json'), JSON.stringify(ids));
    const command = [
      join(here, '../../dist/cli/main.js'),
      'logits',
      model,
      '--tokens',
      join(folder, 'ids.json'),
      '--out',
      join(folder, 'out'),
      ...parameters,
    ];
    const done = spawnSync(process.execPath, command, { maxBuffer: 1 << 28 });
    if (done.status !== 0) throw new Error(done.stderr.toString().slice(-2000));
    const bytes = readFileSync(join(folder, 'out'));
    const all = new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
    return ids.map((_, pos) =>
      all.subarray((pos * all.length) / ids.length, ((pos + 1) * all.length) / ids.length),
    );
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Log-probabilities: largest and rms difference over the recorded best ids; share of equal best ids. */
function compare(rows, wanted, gap) {
  let [largest, sum, count, same, clear] = [0, 0, 0, 0, 0];
  wanted.forEach((position, pos) => {
    const row = rows[pos];
    const total = logSumExp(row);
    for (const [id, logit] of position.top ?? []) {
      const difference = Math.abs(row[id] - total - (logit - position.logsumexp));
      largest = Math.max(largest, difference);
      sum += difference ** 2;
      count++;
    }
    if (position.gap <= gap) return;
    clear++;
    if (row.indexOf(row.reduce((a, b) => Math.max(a, b))) === position.argmax) same++;
  });
  return { largest, rms: Math.sqrt(sum / count), agree: same / clear };
}

/** Measured: exact 2.5e-5 at most; a8 0.11 rms and 0.43 at most, where llama.cpp's own two runs are 0.09 and 0.41 apart. */
const EXACT = { reference: 'dequantised', gap: 5e-3, largest: 1e-3, rms: 1e-4, agree: 1 };
const A8 = { reference: 'native', gap: 0.5, largest: 0.8, rms: 0.15, agree: 0.99 };
const exact = ['--exact', '--kv-type', 'f32'];
const RUNS = [
  ['one rank, exact', exact, EXACT],
  ['TP 2, exact', [...exact, '--tp', '2'], EXACT],
  ['TP 3, uneven, exact', [...exact, '--split', '3,2,1'], EXACT],
  ['PP 2, exact', [...exact, '--pp', '2'], EXACT],
  ['one rank, a8, f16', [], A8],
  ['TP 2, a8, f16', ['--tp', '2'], A8],
];

function check() {
  const recorded = JSON.parse(readFileSync(recording, 'utf8'));
  const sha256 = createHash('sha256').update(readFileSync(model)).digest('hex');
  if (sha256 !== recorded.model.sha256)
    throw new Error(`${model} is another file than the recorded one`);
  for (const [name, parameters, bound] of RUNS) {
    const { largest, rms, agree } = compare(
      coxLogits(recorded.ids, [...parameters, '--threads', '1']),
      recorded[bound.reference],
      bound.gap,
    );
    const ok = largest <= bound.largest && rms <= bound.rms && agree >= bound.agree;
    console.log(
      `${ok ? 'ok ' : 'BAD'} ${name}: largest ${largest.toExponential(2)}, rms ${rms.toExponential(2)}, best id equal ${(100 * agree).toFixed(1)} %`,
    );
    if (!ok) process.exitCode = 1;
  }
}

if (mode === 'record') {
  await record();
  process.exit(0);
} else if (mode === 'check') check();
else throw new Error('usage: default-model.mjs check|record [MODEL.gguf]');
