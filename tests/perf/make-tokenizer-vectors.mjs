// Records llama.cpp's ids for tests/vectors/tokenizer/ids.json: the smollm vocabulary, the synthetic
// SentencePiece ones, and the oracle's qwen vocabulary under pre-tokenizers that the oracle lacks.
//   npm ci --omit=optional --ignore-scripts && node make-tokenizer-vectors.mjs
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { getLlama, LlamaLogLevel } from 'node-llama-cpp';
import { GgufWriter, readGguf } from '../vectors/oracle/gguf-writer.mjs';

const vectors = (name) => fileURLToPath(new URL(`../vectors/${name}`, import.meta.url));

/** Names as the tests look them up. pre: replaces the file's own; null removes it. */
const FAMILIES = {
  smollm: { model: 'tokenizer/smollm' },
  'spm-words': { model: 'tokenizer/spm-words' },
  'spm-cross': { model: 'tokenizer/spm-cross' },
  'gpt-2': { model: 'oracle/models/tok-qwen', pre: 'gpt-2' },
  smaug: { model: 'oracle/models/tok-llama', pre: 'smaug-bpe' },
  starcoder: { model: 'oracle/models/tok-qwen', pre: 'starcoder' },
  'deepseek-llm': { model: 'oracle/models/tok-qwen', pre: 'deepseek-llm' },
  'deepseek-coder': { model: 'oracle/models/tok-qwen', pre: 'deepseek-coder' },
  default: { model: 'oracle/models/tok-qwen', pre: 'default' },
  absent: { model: 'oracle/models/tok-qwen', pre: null },
};

const PARTS = [
  ' ',
  '  ',
  '   ',
  '    ',
  '\n',
  '\n\n',
  '\r\n',
  '\t',
  ' \n',
  '\u00a0',
  '\u3000',
  '\u2009',
  '\u0085',
  'the',
  'The',
  ' and',
  'token',
  'ization',
  'cluster',
  "'s",
  "n't",
  "'LL",
  'x',
  'A',
  '_',
  '__',
  '-',
  '--',
  '->',
  '1',
  '12',
  '123',
  '4096',
  '3.14',
  '1e-5',
  '٣',
  '½',
  'Ⅳ',
  '.',
  ',',
  '...',
  '!?',
  '(',
  ')',
  '{}',
  '[0]',
  '"',
  '`',
  '\\',
  '/',
  '//',
  '$',
  '€',
  '+',
  '=',
  '<',
  '>',
  '|',
  '~',
  '^',
  '©',
  '你好',
  '世界',
  '한국',
  'か',
  'カ',
  'Привет',
  'é',
  'e\u0301',
  'ß',
  'İ',
  'ǅ',
  'हिन्दी',
  'ไทย',
  'שלום',
  '😀',
  '👨‍👩‍👧',
  '🇫🇷',
  '\u200b',
  '\u200d',
  '\ufeff',
  '\u00ad',
  '\u0001',
  '\u007f',
  '\ue000',
  '\ufffd',
  '𐐀',
  '𝒳',
  '༳',
  '▁',
  '▁▁',
  '<s>',
  '</s>',
  '<unk>',
  '<0x41>',
  '<|im_start|>',
  '<|im_end|>',
  '<|endoftext|>',
  '<think>',
  '</think>',
  '<tool>',
  '[PAD]',
  '<pad>',
];

/** A small generator (mulberry32): the strings must be the same on every machine. */
function generator(seed) {
  let state = seed;
  return (bound) => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) % bound;
  };
}

function strings() {
  const oracle = JSON.parse(readFileSync(vectors('oracle/vectors/tokenizer.json'), 'utf8'));
  const below = generator(2026);
  const mixed = Array.from({ length: 100 }, () =>
    Array.from({ length: 2 + below(14) }, () => PARTS[below(PARTS.length)]).join(''),
  );
  return [...oracle.strings, ...mixed];
}

function variant(family, folder) {
  const source = vectors(`${family.model}.gguf`);
  if (family.pre === undefined) return source;
  const writer = new GgufWriter();
  for (const [key, { type, value, elemType }] of readGguf(source).kv) {
    const isPre = key === 'tokenizer.ggml.pre';
    if (!isPre) writer.kv(key, type, value, elemType);
    else if (family.pre !== null) writer.kv(key, type, family.pre);
  }
  const path = join(folder, `${family.pre ?? 'absent'}.gguf`);
  writer.write(path);
  return path;
}

const folder = mkdtempSync(join(tmpdir(), 'vocabularies-'));
const llama = await getLlama({ gpu: false, build: 'never', logLevel: LlamaLogLevel.disabled });
const texts = strings();
const families = {};
for (const [name, family] of Object.entries(FAMILIES)) {
  const model = await llama.loadModel({
    modelPath: variant(family, folder),
    vocabOnly: true,
    gpuLayers: 0,
  });
  const plain = texts.map((text) => model.tokenize(text, false));
  const special = texts.map((text, i) => {
    const ids = model.tokenize(text, true);
    return JSON.stringify(ids) === JSON.stringify(plain[i]) ? null : ids;
  });
  const ends = Array.from(model.iterateAllTokens()).filter((id) => model.isEogToken(id));
  families[name] = { ...family, ends, plain, special };
  await model.dispose();
}
rmSync(folder, { recursive: true });
const note =
  'ids from llama.cpp 0.5.0 (node-llama-cpp 3.22.1), add_special=false; special: parse_special=true, null where it equals plain';
const lines = Object.entries(families).map(
  ([name, family]) => `${JSON.stringify(name)}:${JSON.stringify(family)}`,
);
writeFileSync(
  vectors('tokenizer/ids.json'),
  `{"note":${JSON.stringify(note)},\n"strings":${JSON.stringify(texts)},\n"families":{\n${lines.join(',\n')}\n}}\n`,
);
await llama.dispose();
