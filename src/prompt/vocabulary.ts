// The vocabulary of a model as its GGUF metadata gives it: token texts, kinds, scores, merges, the ids
// with a role, and which ids end a generation. Immutable after construction.
//
// A *special* token is recognised as a whole in text before any tokenizer sees it. All of them are
// *guarded*, so that text of a client never becomes them in a chat, except user-defined ones made of
// letters, digits and white space alone (runs of spaces, say): these are ordinary vocabulary.
import { CoxswainError } from '../base/errors.ts';
import type { Metadata } from './metadata.ts';

export const TokenKind = {
  normal: 1,
  unknown: 2,
  control: 3,
  userDefined: 4,
  unused: 5,
  byte: 6,
} as const;

export type TokenizerModel = 'bpe' | 'spm';

export interface Vocabulary {
  readonly model: TokenizerModel;
  /** null: the file names none. */
  readonly pre: string | null;
  readonly texts: readonly string[];
  readonly kinds: Uint8Array;
  readonly scores: Float64Array;
  readonly merges: readonly string[];
  readonly bos: number | null;
  readonly eos: number | null;
  readonly unknown: number | null;
  readonly padding: number | null;
  /** undefined: the file does not say. */
  readonly addBos: boolean | undefined;
  readonly addEos: boolean | undefined;
  readonly addSpacePrefix: boolean;
  readonly endOfGeneration: ReadonlySet<number>;
  readonly chatTemplate: string | null;
}

/** More than any vocabulary in use; ids must also stay far below 2^31. */
const VOCABULARY_TOKENS_MAX = 4_000_000;
const MODELS: Readonly<Record<string, TokenizerModel>> = { gpt2: 'bpe', llama: 'spm' };
const KEY = 'tokenizer.ggml';

export function readVocabulary(metadata: Metadata): Vocabulary {
  const model = readModel(metadata);
  const texts = readTexts(metadata);
  const size = texts.length;
  const id = (role: string) => readId(metadata, role, size);
  // llama.cpp's defaults for SentencePiece files that name no ids.
  const spmId = (role: string, value: number) =>
    id(role) ?? (model === 'spm' && size > value ? value : null);
  const eos = spmId('eos', 2);
  const ends = [eos, ...['eot', 'eom', 'fim_pad', 'fim_rep', 'fim_sep'].map(id)];
  return {
    model,
    pre: metadata.text(`${KEY}.pre`) ?? null,
    texts,
    kinds: readKinds(metadata, texts),
    scores: readScores(metadata, model, size),
    merges: model === 'bpe' ? (metadata.texts(`${KEY}.merges`) ?? missing('merges')) : [],
    bos: spmId('bos', 1),
    eos,
    unknown: spmId('unknown', 0),
    padding: id('padding'),
    addBos: metadata.flag(`${KEY}.add_bos_token`),
    addEos: metadata.flag(`${KEY}.add_eos_token`),
    addSpacePrefix: metadata.flag(`${KEY}.add_space_prefix`) ?? model === 'spm',
    endOfGeneration: endOfGeneration(texts, ends),
    chatTemplate: metadata.text('tokenizer.chat_template') ?? null,
  };
}

function readModel(metadata: Metadata): TokenizerModel {
  const name = metadata.text(`${KEY}.model`);
  const model = name === undefined || !Object.hasOwn(MODELS, name) ? undefined : MODELS[name];
  if (model !== undefined) return model;
  throw new CoxswainError(
    'TOKENIZER_UNSUPPORTED',
    `tokenizer.ggml.model is ${name === undefined ? 'absent' : `'${name}'`}; supported: gpt2 (byte-level BPE), llama (SentencePiece)`,
  );
}

function readTexts(metadata: Metadata): readonly string[] {
  const texts = metadata.texts(`${KEY}.tokens`) ?? missing('tokens');
  if (texts.length > 0 && texts.length <= VOCABULARY_TOKENS_MAX) return texts;
  throw new CoxswainError(
    'GGUF_INVALID',
    `tokenizer.ggml.tokens holds ${texts.length} tokens, not 1 to ${VOCABULARY_TOKENS_MAX}`,
  );
}

function missing(what: string): never {
  throw new CoxswainError(
    'GGUF_INVALID',
    `tokenizer.ggml.${what} is absent; this tokenizer needs it`,
  );
}

function readId(metadata: Metadata, role: string, size: number): number | null {
  const key = `${KEY}.${role}_token_id`;
  const id = metadata.index(key);
  if (id === undefined) return null;
  // Converters write 2^32-1 for "none".
  if (id === 0xffffffff) return null;
  if (id < size) return id;
  throw new CoxswainError(
    'GGUF_INVALID',
    `${key} is ${id}, but the vocabulary ends at ${size - 1}`,
  );
}

function readKinds(metadata: Metadata, texts: readonly string[]): Uint8Array {
  const kinds = new Uint8Array(texts.length).fill(TokenKind.normal);
  const values = metadata.numbers(`${KEY}.token_type`);
  if (values !== undefined) {
    expectLength('token_type', values.length, texts.length);
    for (let id = 0; id < kinds.length; id += 1) kinds[id] = readKind(values[id] ?? 0, id);
  }
  // Some converters forget to mark these; as plain text they could be forged, and would be shown.
  texts.forEach((text, id) => {
    if (END_TEXTS.has(text)) kinds[id] = TokenKind.control;
  });
  return kinds;
}

function readKind(value: number, id: number): number {
  // 0 is "undefined", which llama.cpp treats as plain text.
  if (value === 0) return TokenKind.normal;
  if (Number.isInteger(value) && value > 0 && value <= TokenKind.byte) return value;
  throw new CoxswainError(
    'GGUF_INVALID',
    `tokenizer.ggml.token_type[${id}] is ${value}, not 0 to ${TokenKind.byte}`,
  );
}

function readScores(metadata: Metadata, model: TokenizerModel, size: number): Float64Array {
  if (model === 'bpe') return new Float64Array(0);
  const values = metadata.numbers(`${KEY}.scores`) ?? missing('scores');
  expectLength('scores', values.length, size);
  return Float64Array.from(values);
}

function expectLength(what: string, length: number, size: number): void {
  if (length === size) return;
  throw new CoxswainError(
    'GGUF_INVALID',
    `tokenizer.ggml.${what} has ${length} entries for ${size} tokens`,
  );
}

/** Tokens that end a turn by their text, whatever the id keys and kinds say (as llama.cpp detects them). */
const END_TEXTS: ReadonlySet<string> = new Set([
  '<|eot_id|>',
  '<|im_end|>',
  '<|end|>',
  '<|end_of_text|>',
  '<|endoftext|>',
  '<|eom_id|>',
  '</s>',
  '<end_of_turn>',
  '<EOT>',
  '_<EOT>',
  '[EOT]',
  '[EOS]',
  '<｜end▁of▁sentence｜>',
  '<end_of_utterance>',
  // Padding and separators of fill-in-the-middle: a chat that comes to one has gone astray.
  '<|fim_pad|>',
  '<fim-pad>',
  '<fim_pad>',
  '<PAD>',
  '[PAD]',
  '<|fim_repo|>',
  '<|repo_name|>',
  '<fim-repo>',
  '<REPO>',
  '<reponame>',
  '<|file_sep|>',
]);

function endOfGeneration(
  texts: readonly string[],
  named: readonly (number | null)[],
): ReadonlySet<number> {
  const ids = new Set<number>();
  for (const id of named) if (id !== null) ids.add(id);
  texts.forEach((text, id) => {
    if (END_TEXTS.has(text)) ids.add(id);
  });
  return ids;
}

const ORDINARY = /^[\p{L}\p{M}\p{N}\p{White_Space}\u2581]+$/u;

export function isSpecial(kind: number | undefined): boolean {
  return kind === TokenKind.control || kind === TokenKind.userDefined || kind === TokenKind.unknown;
}

/** Text of a client never becomes this token in a rendered chat. */
export function isGuarded(kind: number | undefined, text: string): boolean {
  if (kind === TokenKind.control || kind === TokenKind.unknown) return true;
  return kind === TokenKind.userDefined && !ORDINARY.test(text);
}
