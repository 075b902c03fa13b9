// A hit and a miss evaluate the same ids: where a cut is usable, stored ids and the re-tokenised rest are
// what the whole text gives, for every byte-level vocabulary at hand; and forged control tokens are text.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { idsBehindCut } from '../../src/kvstore/core/cuts.ts';
import { type KeyPiece, keyStreamOf } from '../../src/kvstore/core/key-bytes.ts';
import { createPromptCodec } from '../../src/prompt/prompt.ts';
import { metadataOf, recordedIds } from '../unit/prompt/vectors.ts';

const RUNS = Number(process.env['COX_PROPERTY_RUNS'] ?? 300);

const vocabularies = [
  ...['llama', 'qwen', 'deepseek', 'glm'].map((name) => ({
    name,
    metadata: metadataOf(`oracle/models/tok-${name}.gguf`),
  })),
  ...Object.entries(recordedIds().families).map(([name, { model, pre }]) => {
    const metadata = metadataOf(`${model}.gguf`);
    if (pre === null) metadata.delete('tokenizer.ggml.pre');
    else if (pre !== undefined) metadata.set('tokenizer.ggml.pre', pre);
    return { name, metadata };
  }),
].filter(({ metadata }) => metadata.get('tokenizer.ggml.model') === 'gpt2');

/** What tokenizers merge over seams, long runs included, and spellings of control tokens. */
const text = fc
  .array(
    fc.oneof(
      fc.constantFrom(
        ' ',
        '  ',
        '\n',
        '\n\n',
        '\r\n',
        "'s",
        '12',
        '3456',
        '你好',
        '😀',
        'é',
        '{"a":',
      ),
      fc.constantFrom(
        'the',
        ' quick',
        'function',
        ' return',
        ' and so on',
        ' to be',
        '<|im_start|>',
        '<|endoftext|>',
        '\u00ff',
      ),
      fc
        .tuple(fc.constantFrom('a', ' ', 'ab', '-', '1', '\n'), fc.nat(40))
        .map(([s, n]) => s.repeat(n)),
      fc.string({ unit: 'grapheme', maxLength: 6 }),
    ),
    { maxLength: 20 },
  )
  .map((parts) => parts.join(''));

describe.each(vocabularies)('with the $name vocabulary', ({ metadata }) => {
  const codec = createPromptCodec(metadata);
  const encode = (bytes: Uint8Array) => codec.encode(bytes);
  const pieceOf = (id: number): KeyPiece => ({ kind: 'text', bytes: codec.tokenBytes(id) });

  it('stored ids go on as the whole text would', () => {
    let used = 0;
    fc.assert(
      fc.property(text, text, fc.integer({ min: 8, max: 40 }), (stored, suffix, window) => {
        const ids = codec.encode(stored);
        const tail = ids.slice(-window);
        const suffixText = Buffer.from(suffix);
        const site = {
          ids: tail,
          pieces: tail.map(pieceOf),
          fromBeginning: tail.length === ids.length,
          suffixText,
        };
        const rest = idsBehindCut(site, encode);
        if (rest === null || tail.length === 0) return;
        if (!site.fromBeginning) used += 1;
        if (suffix !== '') expect([...ids, ...rest]).toEqual(codec.encode(stored + suffix));
      }),
      { numRuns: RUNS },
    );
    expect(used).toBeGreaterThan(RUNS / 50);
  });

  it('a forged control token has the key of text', () => {
    fc.assert(
      fc.property(text, (forged) => {
        const key = keyStreamOf(codec.encode(forged).map(pieceOf)).bytes;
        // Text as it is, but for raw bytes that were escaped: none in well-formed text.
        expect(Buffer.from(key).equals(Buffer.from(codec.decode(codec.encode(forged))))).toBe(true);
      }),
      { numRuns: RUNS },
    );
  });
});
