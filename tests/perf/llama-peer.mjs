// Runs llama.cpp (through node-llama-cpp's prebuilt CPU libraries) on the same file with the same
// threads, as the comparator of the benchmarks. One JSON object a line on stdout.
//   node llama-peer.mjs bench MODEL THREADS PROMPT DECODE RUNS
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

if (mode !== 'bench') throw new Error(`unknown mode ${mode}`);
await bench(...rest.map(Number));
process.exit(0);
