// Files of the store: what is written is read, and nothing else is.
import { describe, expect, test } from 'vitest';
import { createPrng } from '../../../src/base/prng.ts';
import { bytesToLoad, coverageFault, payloadBytes } from '../../../src/kvstore/core/coverage.ts';
import type { Unit } from '../../../src/kvstore/core/model.ts';
import { decodeManifest, encodeManifest } from '../../../src/kvstore/format/manifest.ts';
import {
  BLOCK_BYTES,
  blocksAround,
  checkBlocks,
  decodeSegment,
  decodeTrailer,
  encodeSegment,
  encodeSegmentHeader,
  PayloadChecksums,
} from '../../../src/kvstore/format/segment-file.ts';
import {
  decodeTail,
  decodeText,
  encodeTail,
  encodeText,
  joinText,
  textFrom,
} from '../../../src/kvstore/format/text-payload.ts';
import { decodeUsage, encodeUsage } from '../../../src/kvstore/format/usage-journal.ts';
import { boxesOf, firstWrongRow, POOLS, prefixHashes } from '../../sim/kvstore/model-state.ts';
import { buildUnit, hexOf, randomIds, STORE, textOf } from './unit-fixture.ts';

const PLANS = [1, 2, 3].flatMap((tp) => [1, 2].map((pp) => ({ tp, pp })));

/** Damage is a coded error, never a value and never another exception. */
function codeOf(work: () => unknown): string {
  try {
    work();
    return 'fine';
  } catch (error) {
    return error instanceof Error && 'code' in error ? String(error.code) : String(error);
  }
}

const header = {
  id: hexOf(5, 16),
  store: STORE,
  directory: hexOf(6, 16),
  epoch: 7,
  kind: 'pool' as const,
  tokenBegin: 256,
  tokenEnd: 300,
  boxes: boxesOf({ tp: 2, pp: 1 }, 1, 'pool'),
};

describe('segment files', () => {
  test.each([0, 1, 100, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES + 17])(
    'a payload of %i bytes reads back equal',
    (size) => {
      const prng = createPrng(size);
      const payload = Uint8Array.from({ length: size }, () => prng.below(256));
      const file = encodeSegment(header, payload);
      const back = decodeSegment('x', file);
      expect(back.header).toEqual({ ...header, payloadBytes: size });
      expect(Buffer.from(back.payload).equals(Buffer.from(payload))).toBe(true);
    },
  );

  test('a file cut after any byte is damaged', () => {
    const file = encodeSegment(
      header,
      Uint8Array.from({ length: 700 }, (_, at) => at),
    );
    for (let size = 0; size < file.length; size += 1) {
      expect(codeOf(() => decodeSegment('x', file.subarray(0, size)))).toBe('KV_DAMAGED');
    }
    expect(codeOf(() => decodeSegment('x', Buffer.concat([file, Buffer.of(0)])))).toBe(
      'KV_DAMAGED',
    );
  });

  test('a flipped bit anywhere is damage, or a version that is not known', () => {
    const file = encodeSegment(
      header,
      Uint8Array.from({ length: 300 }, (_, at) => at * 3),
    );
    for (let bit = 0; bit < file.length * 8; bit += 1) {
      const bad = Uint8Array.from(file);
      bad[bit >> 3] = (bad[bit >> 3] ?? 0) ^ (1 << (bit & 7));
      expect(codeOf(() => decodeSegment('x', bad))).toMatch(/^KV_(DAMAGED|UNSUPPORTED)$/);
    }
  });

  test('a range is checked by the blocks that it touches', () => {
    const payload = Uint8Array.from({ length: 3 * BLOCK_BYTES + 5 }, (_, at) => at % 251);
    const sums = new PayloadChecksums();
    for (let at = 0; at < payload.length; at += 1000) sums.push(payload.subarray(at, at + 1000));
    const table = decodeTrailer('x', sums.trailer(), payload.length);
    const range = { offset: BLOCK_BYTES + 10, bytes: BLOCK_BYTES };
    const around = blocksAround(payload.length, range);
    expect(around).toEqual({ first: 1, offset: BLOCK_BYTES, bytes: 2 * BLOCK_BYTES });
    const read = payload.slice(around.offset, around.offset + around.bytes);
    checkBlocks('x', table, around.first, read);
    read[BLOCK_BYTES] = 255;
    expect(() => checkBlocks('x', table, around.first, read)).toThrow(/block 2/);
  });

  test('a header that claims more than its file is refused before anything is read', () => {
    const big = encodeSegmentHeader({ ...header, payloadBytes: 2 ** 39 });
    expect(codeOf(() => decodeSegment('x', big))).toBe('KV_DAMAGED');
  });
});

describe('manifests', () => {
  const parent = buildUnit({ tp: 2, pp: 2 }, randomIds(1, 700));
  const child = buildUnit({ tp: 3, pp: 1 }, randomIds(1, 1100), parent.unit);

  test('read back equal, over a lineage that changed its plan', () => {
    for (const { unit } of [parent, child]) {
      expect(decodeManifest('m', encodeManifest({ store: STORE, unit }))).toEqual({
        store: STORE,
        unit,
      });
    }
    expect(
      child.unit.segments.filter((segment) => parent.unit.segments.includes(segment)),
    ).not.toEqual([]);
  });

  test('cut after any byte, or with any bit flipped, they are refused', () => {
    const bytes = encodeManifest({ store: STORE, unit: child.unit });
    for (let size = 0; size < bytes.length; size += 1) {
      expect(codeOf(() => decodeManifest('m', bytes.subarray(0, size)))).toBe('KV_DAMAGED');
    }
    for (let bit = 0; bit < bytes.length * 8; bit += 1) {
      const bad = Uint8Array.from(bytes);
      bad[bit >> 3] = (bad[bit >> 3] ?? 0) ^ (1 << (bit & 7));
      expect(codeOf(() => decodeManifest('m', bad))).toMatch(/^KV_(DAMAGED|UNSUPPORTED)$/);
    }
  });

  const without = (unit: Unit, index: number): Unit => ({
    ...unit,
    segments: unit.segments.filter((_, at) => at !== index),
  });

  test('a manifest that lacks any segment does not cover its unit', () => {
    for (const { unit } of [parent, child]) {
      for (const index of unit.segments.keys()) {
        const bytes = encodeManifest({ store: STORE, unit: without(unit, index) });
        expect(codeOf(() => decodeManifest('m', bytes))).toBe('KV_DAMAGED');
      }
    }
  });

  test('a row with two writers is refused', () => {
    const extra = buildUnit({ tp: 1, pp: 1 }, randomIds(1, 700)).unit.segments.slice(0, 1);
    const unit = { ...parent.unit, segments: [...parent.unit.segments, ...extra] };
    expect(coverageFault(POOLS, unit.segments, unit.tokens)).toMatch(/held twice/);
  });
});

describe('a unit of any plan serves any plan', () => {
  test.each(PLANS.flatMap((from) => PLANS.map((to) => [from, to] as const)))(
    'from %o to %o, over a parent of yet another',
    (from, to) => {
      const ids = randomIds(3, 1300);
      const first = buildUnit({ tp: 2, pp: 1 }, ids.slice(0, 530));
      const { unit, files } = buildUnit(from, ids, first.unit);
      const payloads = new Map(
        [...first.files, ...files].map(([id, file]) => [id, decodeSegment(id, file).payload]),
      );
      const read = (id: string, offset: number, bytes: number) =>
        payloads.get(id)?.subarray(offset, offset + bytes) ?? new Uint8Array(0);
      for (let rank = 0; rank < to.tp * to.pp; rank += 1) {
        for (const box of [...boxesOf(to, rank, 'pool'), ...boxesOf(to, rank, 'boundary')]) {
          expect(firstWrongRow(unit, box, prefixHashes(ids), read)).toBeNull();
        }
      }
    },
  );
});

test('what a rank reads and pulls adds up to its share of the rows', () => {
  const { unit } = buildUnit({ tp: 2, pp: 1 }, randomIds(3, 600));
  const whole = POOLS.flatMap((pool) =>
    pool.layers.map((layer) => ({
      pool: pool.id,
      layerBegin: layer,
      layerEnd: layer + 1,
      headBegin: 0,
      headEnd: pool.heads,
    })),
  );
  const own = unit.segments[0]?.directory ?? '';
  const { localBytes, remoteBytes } = bytesToLoad(unit, whole, (directory) => directory === own);
  const rows = unit.segments.filter(({ kind }) => kind === 'pool' || kind === 'boundary');
  const payload = (segments: typeof rows) =>
    segments.reduce((sum, segment) => sum + payloadBytes(POOLS, segment), 0);
  expect(localBytes).toBe(payload(rows.filter(({ directory }) => directory === own)));
  expect(localBytes + remoteBytes).toBe(payload(rows));
});

describe('text and tail', () => {
  const text = textOf(randomIds(4, 40));

  test('read back equal, and refuse to be cut', () => {
    const bytes = encodeText(text);
    expect(decodeText('t', bytes)).toEqual(text);
    for (let size = 0; size < bytes.length; size += 1) {
      expect(codeOf(() => decodeText('t', bytes.subarray(0, size)))).toBe('KV_DAMAGED');
    }
  });

  test('a unit’s text is joined from overlapping segments', () => {
    const whole = textOf(randomIds(4, 600));
    const old = { ...textOf(Int32Array.from([...whole.ids.slice(0, 256), 9, 9, 9])) };
    const parts = [
      { tokenBegin: 256, text: textFrom(whole, 256) },
      { tokenBegin: 0, text: old },
    ];
    expect(joinText('t', parts, 600)).toEqual(whole);
    expect(codeOf(() => joinText('t', parts.slice(0, 1), 600))).toBe('KV_DAMAGED');
  });

  test('logits and witness read back equal, present or not', () => {
    const logits = Float32Array.of(1.5, -Infinity, 3);
    for (const tail of [
      { logits, witness: { token: 2, logits } },
      { logits, witness: null },
      { logits: null, witness: { token: 2, logits } },
      { logits: null, witness: null },
    ]) {
      const bytes = encodeTail(tail);
      expect(decodeTail('t', bytes)).toEqual(tail);
      for (let size = 0; size < bytes.length; size += 1) {
        expect(codeOf(() => decodeTail('t', bytes.subarray(0, size)))).toBe('KV_DAMAGED');
      }
    }
  });

  test('the usage journal keeps the last word and stops at damage', () => {
    const name = hexOf(3, 20);
    const records = [1, 2, 3].map((hits) => encodeUsage({ name, hits, lastUsedMs: hits * 1e12 }));
    const bytes = Buffer.concat(records);
    expect(decodeUsage(bytes).get(name)).toEqual({ name, hits: 3, lastUsedMs: 3e12 });
    expect(decodeUsage(bytes.subarray(0, bytes.length - 1)).get(name)?.hits).toBe(2);
    bytes[40] = 77;
    expect(decodeUsage(bytes).get(name)?.hits).toBe(1);
  });
});
