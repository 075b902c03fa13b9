// Holds tests/vectors/own/*.json against llama.cpp (through node-llama-cpp): the log-probabilities of
// the best tokens after every recorded position of both prompts. F32 keys and values.
//   npm ci --omit=optional --ignore-scripts && node check-own-vectors.mjs [NAME ...]
// Prints one line a model and exits 1 when a difference exceeds 1e-3.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { getLlama, LlamaLogLevel } from 'node-llama-cpp';
import { buildOwn, OWN_NAMES } from '../vectors/own-models.mjs';

const TOLERANCE = 1e-3;
// llama.cpp refuses partial RoPE in these families, and rounds activations for 16-bit weights.
const COMPARABLE = OWN_NAMES.filter((name) => name !== 'own-partial-rope' && !name.includes('.'));
const llama = await getLlama({
  gpu: false,
  build: 'never',
  logLevel: LlamaLogLevel.error,
  maxThreads: 1,
});

async function probabilitiesAfter(sequence, prompt) {
  await sequence.clearHistory();
  const input = prompt.map((id) => [id, { generateNext: { probabilities: true } }]);
  const out = await sequence.controlledEvaluate(input);
  return out.map((entry) => entry.next.probabilities);
}

/** Largest difference over the tokens that have at least a thousandth of the probability. */
function worstDifference(reference, probabilities) {
  let worst = 0;
  for (const { pos, top, logsumexp } of reference.positions) {
    for (const [id, logit] of top) {
      const wanted = logit - logsumexp;
      if (wanted > Math.log(1e-3))
        worst = Math.max(worst, Math.abs(Math.log(probabilities[pos].get(id)) - wanted));
    }
  }
  return worst;
}

async function check(name, folder) {
  const vectors = JSON.parse(
    readFileSync(new URL(`../vectors/own/${name}.json`, import.meta.url), 'utf8'),
  );
  const { file } = buildOwn(name).save(folder);
  const model = await llama.loadModel({ modelPath: file, gpuLayers: 0 });
  const context = await model.createContext({
    contextSize: 1024,
    batchSize: 512,
    flashAttention: false,
    experimentalKvCacheKeyType: 'F32',
    experimentalKvCacheValueType: 'F32',
  });
  const sequence = context.getSequence();
  let worst = 0;
  for (const reference of vectors.references.native.cases) {
    worst = Math.max(
      worst,
      worstDifference(reference, await probabilitiesAfter(sequence, reference.prompt)),
    );
  }
  await context.dispose();
  await model.dispose();
  console.log(
    `${worst <= TOLERANCE ? 'ok ' : 'BAD'} ${name}: largest difference ${worst.toExponential(2)}`,
  );
  return worst <= TOLERANCE;
}

const folder = mkdtempSync(join(tmpdir(), 'coxswain-own-'));
const names = process.argv.length > 2 ? process.argv.slice(2) : COMPARABLE;
let ok = true;
for (const name of names) ok = (await check(name, folder)) && ok;
rmSync(folder, { recursive: true });
process.exit(ok ? 0 : 1);
