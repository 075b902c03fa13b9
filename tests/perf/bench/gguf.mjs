// What the benchmark needs to know of a GGUF file, through the product's own reader (dist/): bytes that a decoded
// token reads, operations that a prefilled one takes.

import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { root } from './run.mjs';

const built = (path) => import(pathToFileURL(join(root, 'dist', path)).href);

const known = new Map();

/** {stepBytes, operations}: of weights read a step, and done a prefilled token (without embeddings). */
export async function costOf(model) {
  if (!known.has(model)) {
    const { inspectModel } = await built('base/addon.js');
    const { weightBytesPerStep, operationsPerToken } = await built('cli/machine-share.js');
    const file = await inspectModel(model);
    known.set(model, {
      stepBytes: weightBytesPerStep(file),
      operations: operationsPerToken(file),
    });
  }
  return known.get(model);
}
