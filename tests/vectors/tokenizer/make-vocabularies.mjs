// Makes the vocabulary-only GGUF files of this folder, byte for byte the same every time:
//   node make-vocabularies.mjs                     spm-words.gguf, spm-cross.gguf
//   node make-vocabularies.mjs SMOLLM2.gguf        also smollm.gguf, from a SmolLM2 model file (see NOTICE)
// The SentencePiece vocabularies are learnt from texts of this repository and say nothing about any
// published model. spm-words has no piece with a space mark behind another character; spm-cross has such
// pieces, no space put in front, user-defined and unused tokens, an end token by default, and many equal scores.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { GgufWriter, KV, readGguf } from '../oracle/gguf-writer.mjs';

const here = (name) => fileURLToPath(new URL(name, import.meta.url));
const MARK = '\u2581';
const KIND = { normal: 1, unknown: 2, control: 3, userDefined: 4, unused: 5, byte: 6 };

function corpus() {
  const oracle = JSON.parse(readFileSync(here('../oracle/vectors/tokenizer.json'), 'utf8'));
  const files = ['README.md', 'make-tiny.mjs', 'gguf-writer.mjs'];
  const texts = files.map((name) => readFileSync(here(`../oracle/${name}`), 'utf8'));
  return [...texts, oracle.strings.join('\n')].join('\n').replaceAll(' ', MARK);
}

/** Most frequent adjacent pairs first, as long as a piece is short and `allows` it. */
function learnPieces(text, count, allows) {
  let symbols = Array.from(text);
  const pieces = [...new Set(symbols)].sort();
  while (pieces.length < count) {
    const counts = new Map();
    for (let i = 0; i + 1 < symbols.length; i++) {
      const pair = symbols[i] + symbols[i + 1];
      if (pair.length <= 16 && !/\n|<\|/u.test(pair) && allows(pair)) {
        counts.set(pair, (counts.get(pair) ?? 0) + 1);
      }
    }
    const best = [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).slice(0, 24);
    if (best.length === 0) break;
    for (const [pair] of best) if (!pieces.includes(pair)) pieces.push(pair);
    const chosen = new Set(best.map(([pair]) => pair));
    const joined = [];
    for (let i = 0; i < symbols.length; i++) {
      const pair = symbols[i] + (symbols[i + 1] ?? '');
      if (chosen.has(pair) && i + 1 < symbols.length) {
        joined.push(pair);
        i++;
      } else joined.push(symbols[i]);
    }
    symbols = joined;
  }
  return pieces.slice(0, count);
}

function writeSpm({ name, pieces, score, flags, extras = [] }) {
  const tokens = [
    ['<unk>', 0, KIND.unknown],
    ['<s>', 0, KIND.control],
    ['</s>', 0, KIND.control],
  ];
  for (let b = 0; b < 256; b++) {
    tokens.push([`<0x${b.toString(16).toUpperCase().padStart(2, '0')}>`, 0, KIND.byte]);
  }
  pieces.forEach((piece, i) => tokens.push([piece, score(i), KIND.normal]));
  tokens.push(...extras);
  const writer = new GgufWriter()
    .kv('general.architecture', KV.STR, 'llama')
    .kv('general.name', KV.STR, name)
    .kv('tokenizer.ggml.model', KV.STR, 'llama')
    .kv('tokenizer.ggml.tokens', KV.ARR, tokens.map((t) => t[0]), KV.STR)
    .kv('tokenizer.ggml.scores', KV.ARR, tokens.map((t) => t[1]), KV.F32)
    .kv('tokenizer.ggml.token_type', KV.ARR, tokens.map((t) => t[2]), KV.I32)
    .kv('tokenizer.ggml.bos_token_id', KV.U32, 1)
    .kv('tokenizer.ggml.eos_token_id', KV.U32, 2)
    .kv('tokenizer.ggml.unknown_token_id', KV.U32, 0);
  for (const [key, value] of Object.entries(flags)) writer.kv(`tokenizer.ggml.${key}`, KV.BOOL, value);
  console.log(name, tokens.length, 'tokens,', writer.write(here(`${name}.gguf`)), 'bytes');
}

const text = corpus();
writeSpm({
  name: 'spm-words',
  pieces: learnPieces(text, 3000, (pair) => !/[^\u2581]\u2581/u.test(pair)),
  score: (i) => -i,
  flags: { add_bos_token: true, add_eos_token: false },
});
writeSpm({
  name: 'spm-cross',
  pieces: learnPieces(text, 2000, () => true),
  score: (i) => -Math.floor(i / 40),
  flags: { add_bos_token: true, add_eos_token: true, add_space_prefix: false },
  extras: [
    ['<tool>', 0, KIND.userDefined],
    ['    ', 0, KIND.userDefined],
    ['[PAD]', 0, KIND.unused],
    ['<|im_start|>', 0, KIND.control],
    ['<|im_end|>', 0, KIND.control],
  ],
});

const model = process.argv[2];
if (model !== undefined) {
  const writer = new GgufWriter();
  for (const [key, { type, value, elemType }] of readGguf(model).kv) {
    if (key.startsWith('tokenizer.') || /^general\.(architecture|name|license|organization)$/.test(key)) {
      writer.kv(key, type, value, elemType);
    }
  }
  console.log('smollm', writer.write(here('smollm.gguf')), 'bytes');
}
