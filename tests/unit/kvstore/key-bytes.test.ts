// Key bytes: injective, readable back, and blind to what text spells.
import { describe, expect, test } from 'vitest';
import { createPrng, type Prng } from '../../../src/base/prng.ts';
import {
  type CutSite,
  commonBoundary,
  idsBehindCut,
  tokensWithin,
  wholeBoundary,
} from '../../../src/kvstore/core/cuts.ts';
import {
  type KeyPiece,
  KeyWriter,
  keyStreamOf,
  readKeyBytes,
} from '../../../src/kvstore/core/key-bytes.ts';
import { bytesOf } from './hashing.ts';

const text = (value: string | readonly number[]): KeyPiece => ({
  kind: 'text',
  bytes: typeof value === 'string' ? bytesOf(value) : Uint8Array.from(value),
});
const control = (id: number): KeyPiece => ({ kind: 'control', id });

function randomPieces(prng: Prng): KeyPiece[] {
  const pieces: KeyPiece[] = [];
  for (let left = prng.below(12); left > 0; left -= 1) {
    const kind = prng.below(4);
    if (kind === 0) pieces.push(control(prng.chance(0.5) ? prng.below(300) : prng.u32() >>> 1));
    else if (kind === 1) {
      pieces.push({
        kind: 'media',
        digest: Uint8Array.from({ length: 32 }, () => prng.below(256)),
      });
    } else {
      // Mostly the bytes that matter: leads, escapes, continuation bytes.
      const pool = [0xff, 0xfe, 0x80, 0x81, 0x00, 0x01, 0x41, 0xe2, 0xc3];
      pieces.push(text(Array.from({ length: 1 + prng.below(6) }, () => pool[prng.below(9)] ?? 0)));
    }
  }
  return pieces;
}

/** Neighbouring text joined, so that equal streams look equal. */
function canonical(pieces: readonly KeyPiece[]): string {
  const parts: string[] = [];
  let open = '';
  const flush = () => {
    if (open !== '') parts.push(`t${open}`);
    open = '';
  };
  for (const piece of pieces) {
    if (piece.kind === 'text') open += Buffer.from(piece.bytes).toString('hex');
    else {
      flush();
      parts.push(
        piece.kind === 'control' ? `c${piece.id}` : Buffer.from(piece.digest).toString('hex'),
      );
    }
  }
  flush();
  return parts.join(' ');
}

describe('key bytes', () => {
  test('2,000 random streams of hostile bytes read back as they were written', () => {
    const prng = createPrng(11);
    for (let round = 0; round < 2000; round += 1) {
      const pieces = randomPieces(prng);
      const back = readKeyBytes(keyStreamOf(pieces).bytes);
      expect(back === null ? 'unreadable' : canonical(back)).toBe(canonical(pieces));
    }
  });

  test('text that spells a control token, its bytes or its escape is still text', () => {
    const forged = keyStreamOf([text([0xff, 0x05]), text('<|im_start|>')]).bytes;
    const real = keyStreamOf([control(5), text('<|im_start|>')]).bytes;
    expect(forged).not.toEqual(real);
    expect(readKeyBytes(forged)?.every((piece) => piece.kind === 'text')).toBe(true);
  });

  test('ids are spelled in LEB128 behind 0xFF', () => {
    expect([
      ...keyStreamOf([control(0), control(127), control(128), control(151644)]).bytes,
    ]).toEqual([0xff, 0x00, 0xff, 0x7f, 0xff, 0x80, 0x01, 0xff, 0xdc, 0xa0, 0x09]);
  });

  test.each([
    ['a cut media digest', [0xfe, 1, 2]],
    ['a cut id', [0xff, 0x80]],
    ['an overlong id that is no escape', [0xff, 0x82, 0x00]],
    ['an id beyond 31 bits', [0xff, 0xff, 0xff, 0xff, 0xff, 0x0f]],
  ])('%s is no key', (_what, bytes) => {
    expect(readKeyBytes(Uint8Array.from(bytes))).toBeNull();
  });

  test('a writer that goes on gives the bytes of one written at once', () => {
    const pieces = [text('Grüße '), control(9), text([0xe2, 0x82]), text([0xac])];
    const writer = new KeyWriter();
    for (const piece of pieces) writer.append(piece);
    expect(writer.bytes).toEqual(keyStreamOf(pieces).bytes);
  });
});

describe('cuts', () => {
  const stream = keyStreamOf([text('ab'), text([0xe2, 0x82]), text([0xac]), control(7), text('x')]);

  test('are saved on whole UTF-8 only', () => {
    expect([0, 1, 2, 3, 4, 5].map((tokens) => wholeBoundary(stream, tokens))).toEqual([
      0, 1, 1, 3, 4, 5,
    ]);
  });

  test('of a common prefix lie where both id sequences agree', () => {
    const ids = Int32Array.of(1, 2, 3, 4, 5);
    expect(commonBoundary({ ids, whole: stream.whole }, Int32Array.of(1, 2, 9))).toBe(1);
    expect(commonBoundary({ ids, whole: stream.whole }, Int32Array.of(1, 2, 3, 4))).toBe(4);
  });

  test('tokens within an offset are found without a scan', () => {
    expect([0, 1, 2, 4, 5, 7, 8].map((offset) => tokensWithin(stream.ends, offset))).toEqual([
      0, 0, 1, 2, 3, 4, 5,
    ]);
  });

  /** Every letter a token, but "ab" is one. */
  const encode = (bytes: Uint8Array) => {
    const ids: number[] = [];
    for (let at = 0; at < bytes.length; at += 1) {
      if (bytes[at] === 0x61 && bytes[at + 1] === 0x62) {
        ids.push(1000);
        at += 1;
      } else ids.push(bytes[at] ?? 0);
    }
    return ids;
  };
  const site = (letters: string, suffix: string): CutSite => ({
    ids: [...bytesOf(letters)],
    pieces: [...letters].map((letter) => text(letter)),
    fromBeginning: true,
    suffixText: bytesOf(suffix),
  });

  test('are used where tokenising across them gives the stored ids', () => {
    expect(idsBehindCut(site('xya', 'c'), encode)).toEqual([99]);
    expect(idsBehindCut(site('xya', 'bc'), encode)).toBeNull();
  });

  test('are not used in a run that began somewhere before what is known', () => {
    const inside = (more: Partial<CutSite>) => ({ ...site('1'.repeat(30), '1'), ...more });
    expect(idsBehindCut(inside({}), encode)).toEqual([49]);
    expect(idsBehindCut(inside({ fromBeginning: false }), encode)).toBeNull();
    const control = inside({ fromBeginning: false, suffixText: new Uint8Array(0) });
    expect(idsBehindCut(control, encode)).toEqual([]);
  });

  test('are used behind a control token whatever follows', () => {
    const pieces = [text('a'), control(7)];
    const at = { ids: [97, 7], pieces, fromBeginning: false, suffixText: bytesOf('b') };
    expect(idsBehindCut(at, encode)).toEqual([98]);
  });
});
