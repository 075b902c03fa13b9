// Records llama.cpp's logits for the models of PEER_MODELS (tests/vectors/own-models.mjs: RoPE scalings,
// vocabularies) in tests/vectors/logits/NAME.json, in the format of the oracle's vectors.
//   npm ci --omit=optional --ignore-scripts && node make-logit-vectors.mjs [NAME ...]
// CPU, one thread, F32 keys and values, no flash attention, F32 weights: nothing is rounded to fewer bits, so
// that the oracle's tolerance holds. node-llama-cpp gives raw logits; it cannot switch off weight repacking,
// which F32 weights do not have.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { getLlama, LlamaLogLevel } from 'node-llama-cpp';
import { prng } from '../vectors/oracle/make-tiny.mjs';
import { buildOwn, PEER_MODELS, vocabularySize } from '../vectors/own-models.mjs';

const PROMPT = 600;
const POSITIONS = 12;
const round = (x) => Number(x.toPrecision(9));

function randomIds(label, count, vocab) {
  const random = prng(label);
  return Array.from({ length: count }, () => random.u32() % vocab);
}

function logSumExp(logits) {
  const max = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  return max + Math.log(logits.reduce((sum, x) => sum + Math.exp(x - max), 0));
}

/** All logits after every token of the prompt, by id. */
async function logitsAfter(sequence, prompt, vocab) {
  const input = prompt.map((id) => [id, { generateNext: { logits: true } }]);
  const out = await sequence.controlledEvaluate(input);
  return out.map(({ next }) =>
    Float64Array.from({ length: vocab }, (_, id) => next.logits.get(id)),
  );
}

/** Twelve positions in detail, the last of each KV block of 256 among them; argmax everywhere. */
function caseOf(prompt, rows, sampleIds) {
  const recorded = new Set([0, 1, 255, 256, 511, 512, prompt.length - 1]);
  for (let i = 1; recorded.size < POSITIONS; i++) recorded.add(i * 97);
  const ranked = rows.map((row) => [...row.keys()].sort((a, b) => row[b] - row[a] || a - b));
  const positions = [...recorded]
    .sort((a, b) => a - b)
    .map((pos) => ({
      pos,
      top: ranked[pos].slice(0, 40).map((id) => [id, round(rows[pos][id])]),
      sampled: sampleIds.map((id) => round(rows[pos][id])),
      logsumexp: round(logSumExp(rows[pos])),
    }));
  const last = prompt.length - 1;
  return {
    name: 'long',
    prompt,
    n_prompt: prompt.length,
    positions,
    argmax_all: ranked.map((ids) => ids[0]),
    gap_all: ranked.map((ids, pos) => round(rows[pos][ids[0]] - rows[pos][ids[1]])),
    full: { pos: last, data: Buffer.from(Float32Array.from(rows[last]).buffer).toString('base64') },
  };
}

async function record(llama, name, folder) {
  const { file, sha256 } = buildOwn(name).save(folder);
  const vocab = vocabularySize(name);
  const model = await llama.loadModel({ modelPath: file, gpuLayers: 0 });
  const context = await model.createContext({
    contextSize: 1024,
    batchSize: 512,
    threads: 1,
    flashAttention: false,
    experimentalKvCacheKeyType: 'F32',
    experimentalKvCacheValueType: 'F32',
  });
  const prompt = randomIds(`logits/prompt/${vocab}`, PROMPT, vocab);
  const rows = await logitsAfter(context.getSequence(), prompt, vocab);
  await context.dispose();
  await model.dispose();
  const sampleIds = randomIds('logits/sample', 32, vocab);
  const oracle =
    'llama.cpp 0.5.0 (node-llama-cpp 3.22.1): CPU, 1 thread, F32 keys and values, no flash attention';
  return {
    format: 'coxswain-logits/1',
    model: { name, sha256 },
    oracle,
    sample_ids: sampleIds,
    references: { native: { cases: [caseOf(prompt, rows, sampleIds)] } },
  };
}

const llama = await getLlama({
  gpu: false,
  build: 'never',
  logLevel: LlamaLogLevel.error,
  maxThreads: 1,
});
const folder = mkdtempSync(join(tmpdir(), 'coxswain-logits-'));
const target = fileURLToPath(new URL('../vectors/logits', import.meta.url));
mkdirSync(target, { recursive: true });
const names = process.argv.length > 2 ? process.argv.slice(2) : Object.keys(PEER_MODELS);
try {
  for (const name of names) {
    const text = JSON.stringify(await record(llama, name, folder));
    writeFileSync(join(target, `${name}.json`), `${text}\n`);
    console.log(`${name}: ${text.length} bytes`);
  }
} finally {
  rmSync(folder, { recursive: true });
}
process.exit(0);
