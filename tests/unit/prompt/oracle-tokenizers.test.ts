// Ids equal to llama.cpp's on the oracle's strings: six vocabularies whose merges cross word
// boundaries on purpose, so that a wrong or missing pre-tokenizer shows.
import { describe, expect, it } from 'vitest';
import { readMetadata } from '../../../src/prompt/metadata.ts';
import { TextCodec } from '../../../src/prompt/text-codec.ts';
import { readVocabulary } from '../../../src/prompt/vocabulary.ts';
import { metadataOf, tokenizerVectors } from './vectors.ts';

const vectors = tokenizerVectors('oracle/vectors/tokenizer.json');

describe.each(Object.entries(vectors.families))('the %s vocabulary', (_, family) => {
  const vocabulary = readVocabulary(readMetadata(metadataOf(`oracle/models/${family.model}.gguf`)));
  const codec = new TextCodec(vocabulary);

  it('names the pre-tokenizer that the vectors were made with', () => {
    expect(vocabulary.pre).toBe(family.pre);
  });

  it('gives the ids of every string while control tokens are plain text', () => {
    const ids = vectors.strings.map((text) => codec.encode(text, {}));
    expect(ids).toEqual(family.plain);
  });

  it('gives the ids of every string while control tokens are recognised', () => {
    const ids = vectors.strings.map((text) => codec.encode(text, { parseSpecial: true }));
    expect(ids).toEqual(family.special.map((expected, i) => expected ?? family.plain[i]));
  });
});
