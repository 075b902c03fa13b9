// Bytes longer than one control message travel in parts: all but the last say `more`. The joiner belongs
// to one direction of one session and keeps the parts of one message at a time.
import { CoxswainError } from '../base/errors.ts';

/** Leaves room for the fields around the bytes in a message of at most 1 MiB. */
export const PART_BYTES_MAX = 1000 * 1024;
/** A step whose result is larger was cut badly; also what a lying peer can make us hold. */
export const JOINED_BYTES_MAX = 128 * 1024 * 1024;

/** Calls `send` for each part in order; views into `bytes`. */
export function sendInParts(
  bytes: Uint8Array,
  send: (part: Uint8Array, more: boolean) => void,
): void {
  for (let offset = 0; ; offset += PART_BYTES_MAX) {
    const more = offset + PART_BYTES_MAX < bytes.length;
    send(bytes.subarray(offset, offset + PART_BYTES_MAX), more);
    if (!more) return;
  }
}

export class PartJoiner {
  private parts: Uint8Array[] = [];
  private bytes = 0;

  /** The whole bytes with the last part, null before. @throws CoxswainError CONTROL_LOST if too long. */
  add(part: Uint8Array, more: boolean): Uint8Array | null {
    this.bytes += part.length;
    if (this.bytes > JOINED_BYTES_MAX) {
      throw new CoxswainError(
        'CONTROL_LOST',
        `A message in parts exceeds ${JOINED_BYTES_MAX} bytes.`,
      );
    }
    if (!more && this.parts.length === 0) {
      this.bytes = 0;
      return part;
    }
    this.parts.push(part);
    if (more) return null;
    const whole = Buffer.concat(this.parts);
    this.parts = [];
    this.bytes = 0;
    return whole;
  }
}
