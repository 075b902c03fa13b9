// Runs llama.cpp (through node-llama-cpp's prebuilt CPU libraries) on the same file with the same
// threads, as the comparator of the benchmarks. One JSON object a line on stdout.
//   node llama-peer.mjs bench MODEL THREADS PROMPT DECODE RUNS
//   node llama-peer.mjs perplexity MODEL TEXT WINDOW
import { readFileSync } from 'node:fs';
import { getLlama, LlamaLogLevel } from 'node-llama-cpp';

const [mode, modelPath, ...rest] = process.argv.slice(2);

async function open(threads, contextSize) {
  const llama = await getLlama({
    gpu: false,
    build: 'never',
    logLevel: LlamaLogLevel.error,
    maxThreads: threads,
  });
  const model = await llama.loadModel({ modelPath, gpuLayers: 0, useMmap: true });
  const context = await model.createContext({
    contextSize,
    batchSize: 512,
    threads: { ideal: threads, min: threads },
  });
  return { llama, model, context };
}

async function bench(threads, promptTokens, decodeTokens, runs) {
  const { model, context } = await open(threads, promptTokens + decodeTokens + 64);
  const sequence = context.getSequence();
  const ids = Array.from(
    { length: promptTokens },
    (_, i) => ((i * 7919 + 13) % (model.vocabularySize ?? 40000)) % 40000,
  );
  const prefill = [];
  const decode = [];
  for (let run = 0; run < runs + 1; run++) {
    await sequence.clearHistory();
    const start = performance.now();
    await sequence.evaluateWithoutGeneratingNewTokens(ids);
    const prefillMs = performance.now() - start;
    await sequence.clearHistory();
    let count = 0;
    let first = 0;
    for await (const _token of sequence.evaluate([1], { temperature: 0, yieldEogToken: true })) {
      if (count === 0) first = performance.now();
      count++;
      if (count > decodeTokens) break;
    }
    const decodeMs = performance.now() - first;
    if (run === 0) continue; // warm-up
    prefill.push((promptTokens / prefillMs) * 1000);
    decode.push((decodeTokens / decodeMs) * 1000);
  }
  for (const [test, values] of [
    ['prefill', prefill],
    ['decode', decode],
  ]) {
    values.sort((a, b) => a - b);
    console.log(
      JSON.stringify({
        test,
        threads,
        tokens_per_second: {
          min: values[0],
          median: values[values.length >> 1],
          max: values.at(-1),
        },
      }),
    );
  }
}

/** llama.cpp's rule: whole windows, BOS first where the model adds it, second half counted but for its first token (its row is the first that counts). */
async function perplexity(textFile, window) {
  const { model, context } = await open(2, window);
  const ids = model.tokenize(readFileSync(textFile, 'utf8'));
  const bos = model.tokens.shouldPrependBosToken ? model.tokens.bos : null;
  const sequence = context.getSequence();
  let sum = 0;
  let count = 0;
  const windows = Math.floor(ids.length / window);
  for (let w = 0; w < windows; w++) {
    const part = ids.slice(w * window, (w + 1) * window);
    if (bos !== null) part[0] = bos;
    await sequence.clearHistory();
    const half = window / 2;
    const input = part.map((id, i) =>
      i >= half && i < window - 1 ? [id, { generateNext: { probabilities: true } }] : id,
    );
    const out = await sequence.controlledEvaluate(input);
    for (let i = half + 1; i < window; i++) {
      const p = out[i - 1].next.probabilities.get(part[i]);
      sum -= Math.log(p);
      count++;
    }
  }
  console.log(JSON.stringify({ perplexity: Math.exp(sum / count), tokens: count, windows }));
}

if (mode === 'bench') await bench(...rest.map(Number));
else if (mode === 'perplexity') await perplexity(rest[0], Number(rest[1]));
else throw new Error(`unknown mode ${mode}`);
process.exit(0);
