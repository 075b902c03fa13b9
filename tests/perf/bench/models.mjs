// Model files of the benchmark: the default model, its other quantisations (made by `cox quantize`), and the
// generated 1.1 B one. What is made lies in the cache and is made once.
import { existsSync, mkdirSync } from 'node:fs';
import { basename, join } from 'node:path';
import { makeLargeModel } from '../make-large-model.mjs';
import { program } from './ours.mjs';
import { output } from './run.mjs';

/** The default model in another type, e.g. "Q8_0". Its own file is the Q4_1 one. */
export function variant(bench, type) {
  if (basename(bench.model).includes(`.${type}.`)) return bench.model;
  const path = join(bench.cache, basename(bench.model).replace(/\.[^.]+\.gguf$/, `.${type}.gguf`));
  if (!existsSync(path)) {
    mkdirSync(bench.cache, { recursive: true });
    output(process.execPath, [program, 'quantize', bench.model, type, path]);
  }
  return path;
}

/** The generated model with all matrices in this type; two layers of it in a quick run. */
export function large(bench, type) {
  const layers = bench.quick ? 2 : 16;
  const path = join(bench.cache, `llama-random-${layers}-layers.${type}.gguf`);
  if (!existsSync(path)) {
    mkdirSync(bench.cache, { recursive: true });
    makeLargeModel({ type, out: path, tokenizerFrom: bench.model, layers });
  }
  return path;
}
