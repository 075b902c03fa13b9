// The other side: llama.cpp on the same file with the same threads, through the shared library that the npm
// package of node-llama-cpp carries. Absent: null, and the columns stay empty.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { hasTool, jsonLines, perf } from './run.mjs';

const library = join(perf, 'node_modules', '@node-llama-cpp', 'linux-x64', 'bins', 'linux-x64');

export function peerIsThere() {
  return existsSync(library) && hasTool('python3');
}

/** llama.cpp's library held to AVX2: its build for the first CPUs that had it. */
export const AVX2_CPU = 'haswell';

/** Tokens a second of all streams together, or null. `order`: the fields of llama-bench.py, and model. */
export function llama({ model, ...order }) {
  if (!peerIsThere()) return null;
  const [row] = jsonLines('python3', [join(perf, 'llama-bench.py'), model, JSON.stringify(order)]);
  return row.tokens_per_second[0];
}

/** The same through node-llama-cpp's JavaScript: {prefill, decode}, or null. */
export function llamaThroughNode(model, threads, { prefill, decode }) {
  if (!existsSync(join(perf, 'node_modules', 'node-llama-cpp'))) return null;
  const rows = jsonLines(process.execPath, [
    join(perf, 'llama-peer.mjs'),
    ...['bench', model, threads, prefill, decode, 1],
  ]);
  const rate = (test) => rows.find((row) => row.test === test).tokens_per_second.median;
  return { prefill: rate('prefill'), decode: rate('decode') };
}
