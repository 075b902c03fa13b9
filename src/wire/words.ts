// Little-endian u32 words: the alphabet of step records and results (native/engine/step_record.h).
// WordWriter owns one growing buffer that is reused, so that encoding a step allocates nothing in the
// steady state. WordReader checks every read, and every count before anything is allocated for it;
// its errors are STEP_INVALID and name the word.
import { assert } from '../base/assert.ts';
import { CoxswainError } from '../base/errors.ts';

const TWO_32 = 4294967296;
/** Epochs and steps are exact JavaScript integers: the high word stays below 2^21. */
const HIGH_WORD_LIMIT = 1 << 21;

export class WordWriter {
  private bytes: Uint8Array;
  private view: DataView;
  private length = 0;

  constructor(capacityBytes = 4096) {
    this.bytes = new Uint8Array(capacityBytes);
    this.view = new DataView(this.bytes.buffer);
  }

  clear(): void {
    this.length = 0;
  }

  u32(value: number): void {
    // The sentence is built only for the failure: this runs once for every token of every step.
    if (value >>> 0 !== value) {
      assert(false, `a word of a step record is an unsigned 32-bit integer, not ${value}`);
    }
    this.reserve(4);
    this.view.setUint32(this.length, value, true);
    this.length += 4;
  }

  f32(value: number): void {
    this.reserve(4);
    this.view.setFloat32(this.length, value, true);
    this.length += 4;
  }

  /** Two words, low first, of an exact integer below 2^53. */
  integer(value: number): void {
    if (!Number.isSafeInteger(value) || value < 0) {
      assert(false, `${value} is not a safe unsigned integer`);
    }
    this.u32(value % TWO_32);
    this.u32(Math.floor(value / TWO_32));
  }

  u64(value: bigint): void {
    this.reserve(8);
    this.view.setBigUint64(this.length, BigInt.asUintN(64, value), true);
    this.length += 8;
  }

  u32List(values: readonly number[]): void {
    this.reserve(values.length * 4);
    for (const value of values) this.u32(value);
  }

  f32List(values: Float32Array): void {
    this.reserve(values.length * 4);
    for (const value of values) {
      this.view.setFloat32(this.length, value, true);
      this.length += 4;
    }
  }

  /** A view of what was written, valid until the next clear(). */
  written(): Uint8Array {
    return this.bytes.subarray(0, this.length);
  }

  private reserve(bytes: number): void {
    const needed = this.length + bytes;
    if (needed <= this.bytes.length) return;
    const grown = new Uint8Array(Math.max(needed, this.bytes.length * 2));
    grown.set(this.bytes.subarray(0, this.length));
    this.bytes = grown;
    this.view = new DataView(grown.buffer);
  }
}

export class WordReader {
  private readonly view: DataView;
  private readonly what: string;
  private offset = 0;

  /** @param what "step record" or "step result", for error sentences. */
  constructor(bytes: Uint8Array, what: string) {
    this.what = what;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    if (bytes.byteLength % 4 !== 0) {
      throw this.invalid(`has ${bytes.byteLength} bytes, which are not whole words`);
    }
  }

  /** Index of the next word. */
  get word(): number {
    return this.offset / 4;
  }

  get wordsLeft(): number {
    return (this.view.byteLength - this.offset) / 4;
  }

  u32(name: string): number {
    if (this.wordsLeft < 1)
      throw this.invalid(`ends at word ${this.word}, where ${name} should be`);
    const value = this.view.getUint32(this.offset, true);
    this.offset += 4;
    return value;
  }

  f32(name: string): number {
    if (this.wordsLeft < 1)
      throw this.invalid(`ends at word ${this.word}, where ${name} should be`);
    const value = this.view.getFloat32(this.offset, true);
    this.offset += 4;
    return value;
  }

  integer(name: string): number {
    const low = this.u32(name);
    const high = this.u32(name);
    if (high >= HIGH_WORD_LIMIT) {
      throw this.invalid(`has ${name} above 2^53 at word ${this.word - 1}`);
    }
    return high * TWO_32 + low;
  }

  u64(name: string): bigint {
    const low = BigInt(this.u32(name));
    return (BigInt(this.u32(name)) << 32n) | low;
  }

  /** A count of items of at least `wordsEach` words, which must still be there. */
  count(name: string, wordsEach: number): number {
    const at = this.word;
    const count = this.u32(name);
    this.require(name, count * wordsEach, at);
    return count;
  }

  /** Fails unless `words` more words follow; `at` is the word that asked for them. */
  require(name: string, words: number, at: number): void {
    if (words > this.wordsLeft) {
      throw this.invalid(
        `wants ${words} words for ${name} (word ${at}), but ${this.wordsLeft} are left`,
      );
    }
  }

  u32List(name: string, count: number): number[] {
    this.require(name, count, this.word);
    const values = new Array<number>(count);
    for (let index = 0; index < count; index += 1) {
      values[index] = this.view.getUint32(this.offset + index * 4, true);
    }
    this.offset += count * 4;
    return values;
  }

  f32List(name: string, count: number): Float32Array {
    this.require(name, count, this.word);
    const values = new Float32Array(count);
    for (let index = 0; index < count; index += 1) {
      values[index] = this.view.getFloat32(this.offset + index * 4, true);
    }
    this.offset += count * 4;
    return values;
  }

  end(): void {
    if (this.wordsLeft > 0) {
      throw this.invalid(`has ${this.wordsLeft} words too many from word ${this.word} on`);
    }
  }

  invalid(sentence: string): CoxswainError {
    return new CoxswainError('STEP_INVALID', `The ${this.what} ${sentence}.`);
  }
}
