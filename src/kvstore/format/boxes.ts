// Boxes in files: 12 bytes each, {pool u16, layers [u16, u16), heads [u16, u16), zero u16}.
import type { Box, SegmentKind } from '../core/model.ts';
import type { ByteReader, ByteWriter } from './bytes.ts';

export const BOX_BYTES = 12;
export const BOXES_MAX = 4096;

const KINDS: readonly SegmentKind[] = ['pool', 'boundary', 'text', 'tail'];

export function writeKind(out: ByteWriter, kind: SegmentKind): void {
  out.u8(1 + KINDS.indexOf(kind));
}

export function readKind(input: ByteReader): SegmentKind {
  const code = input.u8();
  return KINDS[code - 1] ?? input.fail(`segment kind ${code} does not exist`);
}

export function writeBoxes(out: ByteWriter, boxes: readonly Box[]): void {
  for (const box of boxes) {
    out.u16(box.pool);
    out.u16(box.layerBegin);
    out.u16(box.layerEnd);
    out.u16(box.headBegin);
    out.u16(box.headEnd);
    out.zeros(2);
  }
}

export function readBoxes(input: ByteReader, count: number): Box[] {
  input.atMost(count, BOXES_MAX, 'the number of boxes');
  if (count * BOX_BYTES > input.left) input.fail('the boxes are cut off');
  return Array.from({ length: count }, () => {
    const box = {
      pool: input.u16(),
      layerBegin: input.u16(),
      layerEnd: input.u16(),
      headBegin: input.u16(),
      headEnd: input.u16(),
    };
    input.zeros(2);
    if (box.layerBegin >= box.layerEnd || box.headBegin >= box.headEnd) input.fail('an empty box');
    return box;
  });
}
