// Further tiny random models, so that nothing is fitted to the oracle's: head counts that do not divide,
// one KV head, no grouping, widths off the powers of two, partial and scaled RoPE, odd vocabularies.
// Made with the oracle's writer, tokenizer and generator; their reference is the oracle's
// double-precision forward pass (ref.mjs), to which only RoPE scaling is added here. The models of
// PEER_MODELS have no such reference: llama.cpp's logits for them are in logits/ (make-logit-vectors.mjs).
//
//   node own-models.mjs --out DIR [NAME ...]     writes DIR/NAME.gguf
//   node own-models.mjs --vectors [NAME ...]     writes own/NAME.json (format of oracle/vectors)
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { KV } from './oracle/gguf-writer.mjs';
import { build, N_VOCAB, prng } from './oracle/make-tiny.mjs';
import { Ref } from './oracle/ref.mjs';
import { isBlockType, quantise } from './quantise.mjs';

// The oracle's model class is not exported; every model carries it.
const Model = build('llama').constructor;

/**
 * Sizes as in the oracle's catalogue. `extra`: tokens beyond the 512 (negative: merges left out); `rot`:
 * rotated dimensions; `keys`: further metadata; `long`: tokens of the long prompt.
 */
export const OWN_MODELS = {
  // the default model's head pattern
  'own-nine': { arch: 'llama', d: 192, layers: 5, heads: 9, kvHeads: 3, hd: 64, ff: 512, tied: true },
  'own-one-kv': { arch: 'llama', d: 96, layers: 3, heads: 6, kvHeads: 1, hd: 32, ff: 160 },
  'own-ungrouped': { arch: 'llama', d: 80, layers: 3, heads: 5, kvHeads: 5, hd: 16, ff: 224 },
  'own-head-96': { arch: 'llama', d: 128, layers: 2, heads: 4, kvHeads: 2, hd: 96, ff: 192 },
  'own-head-80': { arch: 'qwen3', d: 112, layers: 3, heads: 6, kvHeads: 2, hd: 80, ff: 288, tied: true },
  'own-seven': { arch: 'qwen2', d: 168, layers: 4, heads: 7, kvHeads: 1, hd: 24, ff: 200 },
  'own-one-layer': { arch: 'qwen3', d: 64, layers: 1, heads: 2, kvHeads: 2, hd: 32, ff: 32 },
  'own-partial-rope': { arch: 'llama', d: 128, layers: 3, heads: 4, kvHeads: 2, hd: 32, rot: 16, ff: 256 },
  'own-divisors': { arch: 'llama', d: 96, layers: 2, heads: 3, kvHeads: 3, hd: 32, ff: 96, divisors: true },
  'own-linear': { arch: 'llama', d: 96, layers: 3, heads: 6, kvHeads: 3, hd: 16, ff: 128, scaling: { type: 'linear', factor: 4 } },
  'own-yarn': { arch: 'qwen2', d: 128, layers: 3, heads: 4, kvHeads: 2, hd: 32, ff: 256, scaling: { type: 'yarn', factor: 4, original: 128 } },
  'own-yarn-attn': { arch: 'llama', d: 128, layers: 2, heads: 4, kvHeads: 4, hd: 32, ff: 128, base: 500000, scaling: { type: 'yarn', factor: 8, original: 64, attn: 1.25 } },
  'own-vocab-517': { arch: 'llama', d: 64, layers: 2, heads: 4, kvHeads: 2, hd: 16, ff: 96, extra: 5 },
  'own-vocab-777': { arch: 'qwen2', d: 64, layers: 2, heads: 4, kvHeads: 2, hd: 16, ff: 96, extra: 265, tied: true },
  'own-vocab-301': { arch: 'llama', d: 64, layers: 2, heads: 6, kvHeads: 3, hd: 16, ff: 224, extra: -211 },
  'own-head-8': { arch: 'llama', d: 64, layers: 2, heads: 8, kvHeads: 2, hd: 8, ff: 160 },
  'own-head-48': { arch: 'llama', d: 160, layers: 2, heads: 6, kvHeads: 2, hd: 48, ff: 352 },
  'own-head-128': { arch: 'qwen3', d: 96, layers: 2, heads: 3, kvHeads: 1, hd: 128, ff: 224 },
  // no width is a multiple of 8, and the prompt ends in the third KV block
  'own-three-blocks': { arch: 'llama', d: 52, layers: 2, heads: 5, kvHeads: 1, hd: 12, ff: 228, bias: true, long: 530 },
};
/** The same weights rounded to 16 bits, or quantised (whole groups of heads must then fill 32 columns). */
export const OWN_NAMES = [
  ...Object.keys(OWN_MODELS),
  ...['own-nine.f16', 'own-one-kv.bf16', 'own-seven.f16', 'own-three-blocks.bf16'],
  ...['own-nine.q4_1', 'own-head-48.q4_0', 'own-head-8.q8_0', 'own-one-kv.q4_1'],
];

const small = { arch: 'llama', d: 64, layers: 2, heads: 4, kvHeads: 2, hd: 32, ff: 96 };
const yarn = (factor, original, more = {}) => ({ ...more, scaling: { type: 'yarn', factor, original } });
const rope = (name, value) => [`rope.scaling.${name}`, value];
/** Keys that llama.cpp reads in other families only. */
const YARN_KEYS = [
  ...[rope('yarn_ext_factor', 0.5), rope('yarn_attn_factor', 1.3), rope('yarn_log_multiplier', 0.07)],
  ...[rope('yarn_beta_fast', 8), rope('yarn_beta_slow', 2)],
];
/** Divisors by the rule of Llama 3.1: long waves 8 times slower, short ones kept, a ramp between. */
const llama3 = (i, o) => {
  const [factor, low, high, original] = [8, 1, 4, 128];
  const wave = 2 * Math.PI * (o.base ?? 10000) ** ((2 * i) / o.hd);
  if (wave < original / high) return 1;
  if (wave > original / low) return factor;
  const smooth = (original / wave - low) / (high - low);
  return 1 / ((1 - smooth) / factor + smooth);
};
/**
 * RoPE scaling in all the ways that files ask for it, and vocabularies, as llama.cpp understands them. It wants
 * heads as wide together as the model where there are biases.
 */
export const PEER_MODELS = {
  'peer-linear': { ...small, scaling: { type: 'linear', factor: 2.5 } },
  'peer-linear-old': { ...small, keys: [['rope.scale_linear', 4]] },
  'peer-linear-qwen': { ...small, arch: 'qwen2', d: 128, scaling: { type: 'linear', factor: 8 } },
  'peer-yarn-4': { ...small, ...yarn(4, 128) },
  'peer-yarn-40': { ...small, ...yarn(40, 64), base: 150000 },
  'peer-yarn-fraction': { ...small, ...yarn(1.5, 300) },
  'peer-yarn-qwen3': { ...small, arch: 'qwen3', ...yarn(2, 256) },
  'peer-yarn-qwen2': { ...small, arch: 'qwen2', d: 128, kvHeads: 1, ...yarn(16, 32) },
  'peer-yarn-betas': { ...small, ...yarn(8, 128), keys: [rope('yarn_beta_fast', 8), rope('yarn_beta_slow', 2)] },
  'peer-yarn-extrapolate': { ...small, ...yarn(8, 128), keys: [rope('yarn_ext_factor', 0.5)] },
  'peer-yarn-interpolate': { ...small, ...yarn(8, 128), keys: [rope('yarn_ext_factor', 0)] },
  'peer-yarn-attn': { ...small, ...yarn(4, 128), keys: [rope('attn_factor', 0.8)] },
  'peer-yarn-attn-own': { ...small, ...yarn(4, 128), keys: [rope('yarn_attn_factor', 1.3)] },
  'peer-yarn-attn-both': { ...small, ...yarn(4, 128), keys: [rope('attn_factor', 0.8), rope('yarn_attn_factor', 1.3)] },
  'peer-yarn-log': { ...small, ...yarn(4, 128), keys: [rope('yarn_log_multiplier', 0.07)] },
  'peer-yarn-keys-qwen2': { ...small, arch: 'qwen2', d: 128, ...yarn(8, 128), keys: YARN_KEYS },
  'peer-yarn-keys-qwen3': { ...small, arch: 'qwen3', ...yarn(8, 128), keys: YARN_KEYS },
  'peer-attn-alone': { ...small, keys: [rope('attn_factor', 0.8)] },
  'peer-yarn-divisors': { ...small, ...yarn(4, 128), divisors: true },
  'peer-linear-divisors': { ...small, scaling: { type: 'linear', factor: 3 }, divisors: true },
  'peer-llama3': { ...small, divisors: llama3, base: 500000 },
  'peer-vocab-515': { ...small, extra: 3 },
  'peer-vocab-301': { ...small, arch: 'qwen3', extra: -211, tied: true },
  'peer-vocab-1001': { ...small, arch: 'qwen2', d: 128, extra: 489 },
  'peer-bias': { ...small, d: 96, heads: 3, kvHeads: 3, bias: true },
};

const SEED = 20270101;

function ropeKeys(model, o) {
  for (const [key, value] of o.keys ?? []) model.f32(key, value);
  if (o.rot !== undefined) model.u32('rope.dimension_count', o.rot);
  model.f32('rope.freq_base', o.base ?? (o.arch === 'llama' ? 10000 : 1000000));
  if (o.scaling === undefined) return;
  const { type, factor, original, attn } = o.scaling;
  model.str('rope.scaling.type', type).f32('rope.scaling.factor', factor);
  if (original !== undefined) model.u32('rope.scaling.original_context_length', original);
  if (attn !== undefined) model.f32('rope.scaling.attn_factor', attn);
}

const N_BYTES = 256;
const N_SPECIAL = 16;

/** Extra tokens come last; merges are left out from the last one, and the special tokens move down. */
function changeVocabulary(model, extra) {
  const entry = (key) => model.w.kvs.find((kv) => kv.key === `tokenizer.ggml.${key}`);
  const [tokens, types] = [entry('tokens'), entry('token_type')];
  if (extra >= 0) {
    const added = Array.from({ length: extra }, (_, i) => `<|extra_${i}|>`);
    tokens.value = [...tokens.value, ...added];
    types.value = [...types.value, ...added.map(() => 3)];
    return;
  }
  const kept = N_VOCAB - N_SPECIAL + extra;
  const without = (list) => [...list.slice(0, kept), ...list.slice(-N_SPECIAL)];
  tokens.value = without(tokens.value);
  types.value = without(types.value);
  entry('merges').value = entry('merges').value.slice(0, kept - N_BYTES);
  for (const name of ['bos', 'eos', 'eot', 'padding']) {
    const id = entry(`${name}_token_id`);
    if (id !== undefined) id.value += extra;
  }
}

function addLayer(model, p, o) {
  const [q, kv] = [o.heads * o.hd, o.kvHeads * o.hd];
  model.vec(`${p}attn_norm.weight`, o.d, 1, 0.15);
  model.lin(`${p}attn_q.weight`, [o.d, q], 1.4);
  model.lin(`${p}attn_k.weight`, [o.d, kv], 1.4);
  model.lin(`${p}attn_v.weight`, [o.d, kv], 1.5);
  if (o.arch === 'qwen2' || o.bias) {
    for (const [name, n] of [['q', q], ['k', kv], ['v', kv]]) model.vec(`${p}attn_${name}.bias`, n, 0, 0.5);
  }
  if (o.arch === 'qwen3') {
    for (const name of ['q', 'k']) model.vec(`${p}attn_${name}_norm.weight`, o.hd, 1.5, 0.3);
  }
  model.lin(`${p}attn_output.weight`, [q, o.d], 1.2);
  model.vec(`${p}ffn_norm.weight`, o.d, 1, 0.15);
  model.lin(`${p}ffn_gate.weight`, [o.d, o.ff], 1.5);
  model.lin(`${p}ffn_up.weight`, [o.d, o.ff], 1.2);
  model.lin(`${p}ffn_down.weight`, [o.ff, o.d], 1.5);
}

const parts = (name) => {
  const [base, type] = name.split('.');
  const o = OWN_MODELS[base] ?? PEER_MODELS[base];
  if (o === undefined) throw new Error(`no such model ${name}`);
  return { base, type, o };
};
export const vocabularySize = (name) => N_VOCAB + (parts(name).o.extra ?? 0);

/**
 * NAME or NAME.TYPE -> the oracle's Model (save(dir), w.toBuffer()). `dequantised`: the values of the
 * quantised model as F32, for the reference.
 */
export function buildOwn(name, dequantised = false) {
  const { base, type, o } = parts(name);
  const model = new Model(base, o.arch, o.arch === 'llama' ? 'llama' : 'qwen', SEED);
  const vocab = N_VOCAB + (o.extra ?? 0);
  model.u32('vocab_size', vocab).u32('context_length', 4096).u32('embedding_length', o.d);
  model.u32('block_count', o.layers).u32('feed_forward_length', o.ff);
  model.u32('attention.head_count', o.heads).u32('attention.head_count_kv', o.kvHeads);
  model.u32('attention.key_length', o.hd).u32('attention.value_length', o.hd);
  model.f32('attention.layer_norm_rms_epsilon', 1e-5);
  ropeKeys(model, o);
  model.vocab();
  changeVocabulary(model, o.extra ?? 0);
  model.vec('token_embd.weight', [o.d, vocab], 0, o.tied ? 0.3 : 1);
  model.vec('output_norm.weight', o.d, 1, 0.15);
  if (!o.tied) model.lin('output.weight', [o.d, vocab], 3);
  if (o.divisors) model.raw('rope_freqs.weight', [o.hd / 2], (_r, i) => (o.divisors === true ? 1 + i * i * 0.25 : o.divisors(i, o)));
  for (let i = 0; i < o.layers; i++) addLayer(model, `blk.${i}.`, o);
  if (type === undefined) return model;
  if (isBlockType(type)) return quantise(model, type, dequantised);
  return model.convert(type.toUpperCase(), `.${type}`);
}

/** ref.mjs with the RoPE scaling of dense models, which it has for DeepSeek only. */
export class OwnRef extends Ref {
  rope(x, off, n, pos, base, options = {}) {
    const type = this.p('rope.scaling.type', 'none');
    const factor = this.p('rope.scaling.factor', 1);
    if (type === 'linear') return super.rope(x, off, n, pos / factor, base, options);
    super.rope(x, off, n, pos, base, { ...options, yarn: this.yarn() });
    const m = (type === 'yarn' ? 1 + 0.1 * Math.log(factor) : 1) * this.p('rope.scaling.attn_factor', 1);
    for (let i = off; i < off + n; i++) x[i] *= m;
  }
}

// --- reference vectors -------------------------------------------------------------------------------

const round = (x) => Number(x.toPrecision(9));

function ranked(logits) {
  return [...logits.keys()].sort((a, b) => logits[b] - logits[a] || a - b);
}

function logSumExp(logits) {
  const max = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  return max + Math.log(logits.reduce((sum, x) => sum + Math.exp(x - max), 0));
}

/** Every 16th position and the last one in detail; argmax everywhere; then greedy tokens. */
function referenceCase(path, name, prompt, greedyCount, sampleIds) {
  const ref = new OwnRef(path);
  const positions = [];
  const argmaxAll = [];
  const gapAll = [];
  let logits;
  prompt.forEach((token, pos) => {
    logits = ref.step(token);
    const order = ranked(logits);
    argmaxAll.push(order[0]);
    gapAll.push(round(logits[order[0]] - logits[order[1]]));
    if (pos % 16 !== 0 && pos !== prompt.length - 1) return;
    positions.push({
      pos,
      top: order.slice(0, 20).map((id) => [id, round(logits[id])]),
      sampled: sampleIds.map((id) => round(logits[id])),
      logsumexp: round(logSumExp(logits)),
    });
  });
  const full = { pos: prompt.length - 1, data: Buffer.from(Float32Array.from(logits).buffer).toString('base64') };
  const greedy = { tokens: [], logit: [], gap: [] };
  for (let i = 0; i < greedyCount; i++) {
    const order = ranked(logits);
    greedy.tokens.push(order[0]);
    greedy.logit.push(round(logits[order[0]]));
    greedy.gap.push(round(logits[order[0]] - logits[order[1]]));
    if (i + 1 < greedyCount) logits = ref.step(order[0]);
  }
  return { name, prompt, n_prompt: prompt.length, positions, argmax_all: argmaxAll, gap_all: gapAll, full, greedy };
}

function randomIds(label, count, vocab) {
  const random = prng(label);
  return Array.from({ length: count }, () => random.u32() % vocab);
}

function vectorsOf(name, folder) {
  const { type, o } = parts(name);
  const { sha256 } = buildOwn(name).save(folder);
  const { file } = buildOwn(name, true).save(folder);
  const vocab = vocabularySize(name);
  // 12 tokens, and enough to pass the first KV block of 256.
  const lengths = { short: 12, long: o.long ?? 272 };
  const sampleIds = randomIds('own/sample', 32, vocab);
  const cases = Object.entries(lengths).map(([label, count]) =>
    referenceCase(file, label, randomIds(`own/prompt/${label}`, count, vocab), 12, sampleIds),
  );
  return {
    format: 'coxswain-own/1',
    model: { name, sha256, types: (type ?? 'f32').toUpperCase(), seed: SEED },
    reference: 'own-models.mjs OwnRef (double precision)',
    sample_ids: sampleIds,
    references: { native: { cases } },
  };
}

function writeVectors(names) {
  const folder = mkdtempSync(join(tmpdir(), 'coxswain-own-'));
  try {
    for (const name of names) {
      const text = JSON.stringify(vectorsOf(name, folder));
      writeFileSync(fileURLToPath(new URL(`own/${name}.json`, import.meta.url)), `${text}\n`);
      console.log(`${name}: ${text.length} bytes`);
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const args = process.argv.slice(2);
  const vectors = args.includes('--vectors');
  const out = args.includes('--out') ? args[args.indexOf('--out') + 1] : undefined;
  const asked = args.filter((arg) => arg in PEER_MODELS || OWN_NAMES.includes(arg));
  const names = asked.length > 0 ? asked : OWN_NAMES;
  if (out !== undefined) {
    mkdirSync(out, { recursive: true });
    for (const name of names) {
      const { file, sha256 } = buildOwn(name).save(out);
      console.log(`${file} ${sha256}`);
    }
  }
  if (vectors) writeVectors(names);
  if (out === undefined && !vectors) {
    console.error('usage: own-models.mjs --out DIR | --vectors [NAME ...]');
    process.exitCode = 2;
  }
}
