// Properties of the tokenizers, for every vocabulary at hand: what is encoded decodes to the same bytes,
// a stream gives the text of the whole, and cost stays linear on runs that invite backtracking.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createPreTokenizer } from '../../src/prompt/pre-tokenizers.ts';
import { createPromptCodec } from '../../src/prompt/prompt.ts';
import { metadataOf, recordedIds } from '../unit/prompt/vectors.ts';

const recorded = recordedIds();
const vocabularies = [
  ...['llama', 'qwen', 'qwen35', 'deepseek', 'deepseek4', 'glm'].map((name) => ({
    name,
    metadata: metadataOf(`oracle/models/tok-${name}.gguf`),
  })),
  ...Object.entries(recorded.families).map(([name, { model, pre }]) => {
    const metadata = metadataOf(`${model}.gguf`);
    if (pre === null) metadata.delete('tokenizer.ggml.pre');
    else if (pre !== undefined) metadata.set('tokenizer.ggml.pre', pre);
    return { name, metadata };
  }),
];

/** Mixtures of what tokenizers care about; spellings of special tokens are left to the chat tests. */
const mixedText = fc
  .array(
    fc.oneof(
      fc.constantFrom(
        ...[' ', '  ', '\n', '\r\n', '\t', '\u00a0', '\u3000', "'s", '12', '你好', '😀'],
      ),
      fc.constantFrom(...['é', '\u0301', '\u200d', '\ufeff', '\u0085', '▁', '{"a": 1}', 'Ω', '()']),
      fc.string({ unit: 'grapheme', maxLength: 8 }),
    ),
    { maxLength: 24 },
  )
  .map((parts) => parts.join(''));

describe.each(vocabularies)('with the $name vocabulary', ({ metadata }) => {
  const codec = createPromptCodec(metadata);
  const isSpm = metadata.get('tokenizer.ggml.model') === 'llama';
  /** What the vocabulary can hold: SentencePiece takes U+2581 for a space, some lack certain bytes. */
  const holds = (bytes: Uint8Array) =>
    bytes.every((byte) =>
      codec.encode(Uint8Array.of(byte)).some((id) => codec.decode([id])[0] === byte),
    ) && !(isSpm && Buffer.from(bytes).includes('▁'));
  const decoded = (ids: readonly number[]) => Buffer.from(codec.decode(ids)).toString('latin1');

  it('decodes what it encoded to the same bytes, whatever the bytes', () => {
    fc.assert(
      fc.property(fc.oneof(fc.uint8Array({ maxLength: 48 }), mixedText), (input) => {
        const bytes = Buffer.from(input);
        fc.pre(holds(bytes));
        expect(decoded(codec.encode(bytes))).toBe(bytes.toString('latin1'));
      }),
      { numRuns: 300 },
    );
  });

  it('encodes a string as its bytes', () => {
    fc.assert(
      fc.property(mixedText, (text) => {
        expect(codec.encode(text)).toEqual(codec.encode(Buffer.from(text)));
      }),
    );
  });

  it('streams the text of the whole, and never a part of a character', () => {
    fc.assert(
      fc.property(fc.array(fc.nat(codec.vocabSize - 1), { maxLength: 40 }), (ids) => {
        const decoder = codec.decoder();
        const pieces = ids.map((id) => {
          const piece = decoder.push(id);
          expect(decoder.pendingBytes).toBeLessThan(4);
          return piece;
        });
        pieces.push(decoder.flush());
        const bytes = codec.decode(ids, { continuation: true });
        const whole = new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes);
        expect(pieces.join('')).toBe(whole);
      }),
      { numRuns: 300 },
    );
  });

  it('shows no replacement character in a stream of well-formed text', () => {
    fc.assert(
      fc.property(mixedText, (text) => {
        fc.pre(holds(Buffer.from(text)));
        const decoder = codec.decoder({ continuation: false });
        const pieces = codec.encode(text).map((id) => decoder.push(id));
        expect(pieces.join('')).toBe(text);
        expect(decoder.flush()).toBe('');
      }),
    );
  });
});

describe('cost', () => {
  const runs: Readonly<Record<string, (length: number) => string>> = {
    spaces: (length) => ' '.repeat(length),
    'spaces before a word': (length) => `${' '.repeat(length)}x`,
    'a newline, then spaces before a word': (length) => `\n${' '.repeat(length)}x`,
    newlines: (length) => '\n'.repeat(length),
    'one letter': (length) => 'a'.repeat(length),
    digits: (length) => '7'.repeat(length),
    brackets: (length) => '<'.repeat(length),
    'words and spaces': (length) => 'ab   '.repeat(length / 5),
    'control characters': (length) => '\u0001'.repeat(length),
    'special tokens': (length) => '<|im_end|>'.repeat(length / 10),
  };
  const codecs = vocabularies.map(({ name, metadata }) => ({
    name,
    codec: createPromptCodec(metadata),
  }));

  it.each(Object.entries(runs))('stays linear on a run of %s', (_, run) => {
    for (const { name, codec } of codecs) {
      const before = process.cpuUsage();
      codec.encode(run(100_000));
      const { user, system } = process.cpuUsage(before);
      // Linear cost is below 0.2 s of processor time; quadratic cost would be many seconds.
      expect([name, user + system < 4_000_000]).toEqual([name, true]);
    }
  });

  it.each(['llama-bpe', 'qwen35', 'gpt-2', 'smollm', 'deepseek-v3', 'deepseek-llm', 'default'])(
    'cuts a run of spaces longer than a regular expression could go back over (%s)',
    (pre) => {
      const ends: number[] = [];
      createPreTokenizer(pre).split(`${' '.repeat(20_000_000)}x`, ends);
      expect(ends.at(-1)).toBe(20_000_001);
      expect(ends.length).toBeLessThan(4);
    },
  );
});
