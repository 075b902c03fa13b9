import fc from 'fast-check';
import { expect, it } from 'vitest';
import {
  bytesFromText,
  sequenceLength,
  textFromBytes,
  wellFormed,
} from '../../../src/prompt/raw-text.ts';

it('keeps every byte through text and back', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 64 }), (bytes) => {
      expect([...bytesFromText(textFromBytes(bytes))]).toEqual([...bytes]);
    }),
  );
});

it('reads valid UTF-8 as the text it is, a byte order mark included', () => {
  const text = '\ufeffgrüße 你好 😀';
  expect(textFromBytes(new TextEncoder().encode(text))).toBe(text);
});

it('replaces lone surrogates, which could pass for raw bytes', () => {
  expect(wellFormed('a\udc80b\ud83d c 😀')).toBe('a\ufffdb\ufffd c 😀');
});

it('accepts exactly the sequences that a strict decoder accepts', () => {
  const strict = new TextDecoder('utf-8', { fatal: true });
  const accepts = (bytes: Uint8Array) => {
    try {
      return [...strict.decode(bytes)].length === 1;
    } catch {
      return false;
    }
  };
  const interesting = [0x00, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf];
  interesting.push(0xe0, 0xe1, 0xec, 0xed, 0xee, 0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xff);
  for (const a of interesting)
    for (const b of interesting)
      for (const c of interesting)
        for (const d of [0x41, 0x80, 0xbf]) {
          const bytes = Uint8Array.of(a, b, c, d);
          const length = sequenceLength(bytes, 0);
          const expected = [1, 2, 3, 4].find((n) => accepts(bytes.subarray(0, n))) ?? 0;
          expect([a, b, c, d, length]).toEqual([a, b, c, d, expected]);
        }
});

it('tells a begun sequence from a wrong one', () => {
  expect(sequenceLength(Uint8Array.of(0xf0, 0x9f), 0)).toBe(-2);
  expect(sequenceLength(Uint8Array.of(0xe4), 0)).toBe(-1);
  expect(sequenceLength(Uint8Array.of(0xed, 0xa0), 0)).toBe(0);
});
