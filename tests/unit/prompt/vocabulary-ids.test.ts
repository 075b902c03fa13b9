// Ids equal to llama.cpp's for the default model's vocabulary, for SentencePiece, and for pre-tokenizers
// that the oracle lacks, on the oracle's strings and 100 mixed ones.
import { describe, expect, it } from 'vitest';
import { createPromptCodec } from '../../../src/prompt/prompt.ts';
import { metadataOf, recordedIds } from './vectors.ts';

const vectors = recordedIds();

describe.each(Object.entries(vectors.families))('the %s vocabulary', (_, family) => {
  const metadata = metadataOf(`${family.model}.gguf`);
  if (family.pre === null) metadata.delete('tokenizer.ggml.pre');
  else if (family.pre !== undefined) metadata.set('tokenizer.ggml.pre', family.pre);
  const codec = createPromptCodec(metadata);

  it('gives the ids of every string while control tokens are plain text', () => {
    expect(vectors.strings.map((text) => codec.encode(text))).toEqual(family.plain);
  });

  it('gives the ids of every string while control tokens are recognised', () => {
    const ids = vectors.strings.map((text) => codec.encode(text, { parseSpecial: true }));
    expect(ids).toEqual(family.special.map((expected, i) => expected ?? family.plain[i]));
  });

  it('ends a generation at the same ids', () => {
    expect([...codec.endOfGeneration].sort((a, b) => a - b)).toEqual(family.ends);
  });
});
