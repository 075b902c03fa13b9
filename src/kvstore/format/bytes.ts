// Little-endian reading and writing of file structures. A reader never goes past its end and knows the
// file's name for its sentences; whatever does not fit throws KV_DAMAGED (or KV_UNSUPPORTED for a later
// version), before anything is allocated for it.
import { CoxswainError } from '../../base/errors.ts';

export function damaged(what: string, why: string): CoxswainError {
  return new CoxswainError('KV_DAMAGED', `${what}: ${why}`);
}

export class ByteWriter {
  private buffer = new Uint8Array(1024);
  private view = new DataView(this.buffer.buffer);
  private size = 0;

  get length(): number {
    return this.size;
  }

  u8(value: number): void {
    const at = this.claim(1);
    this.view.setUint8(at, value);
  }

  u16(value: number): void {
    const at = this.claim(2);
    this.view.setUint16(at, value, true);
  }

  u32(value: number): void {
    const at = this.claim(4);
    this.view.setUint32(at, value, true);
  }

  /** Up to 2^53. */
  u64(value: number): void {
    const at = this.claim(8);
    this.view.setBigUint64(at, BigInt(value), true);
  }

  bytes(bytes: Uint8Array): void {
    const at = this.claim(bytes.length);
    this.buffer.set(bytes, at);
  }

  hex(text: string): void {
    this.bytes(Buffer.from(text, 'hex'));
  }

  zeros(count: number): void {
    this.claim(count);
  }

  finish(): Uint8Array {
    return this.buffer.subarray(0, this.size);
  }

  /** May exchange buffer and view: take the offset first, then them. */
  private claim(count: number): number {
    const at = this.size;
    if (at + count > this.buffer.length) {
      const grown = new Uint8Array(Math.max(at + count, this.buffer.length * 2));
      grown.set(this.buffer.subarray(0, at));
      this.buffer = grown;
      this.view = new DataView(grown.buffer);
    }
    this.size += count;
    return at;
  }
}

export class ByteReader {
  readonly what: string;
  private readonly source: Uint8Array;
  private readonly view: DataView;
  private at = 0;

  constructor(what: string, source: Uint8Array) {
    this.what = what;
    this.source = source;
    this.view = new DataView(source.buffer, source.byteOffset, source.byteLength);
  }

  get offset(): number {
    return this.at;
  }

  get left(): number {
    return this.source.length - this.at;
  }

  u8(): number {
    return this.view.getUint8(this.claim(1));
  }

  u16(): number {
    return this.view.getUint16(this.claim(2), true);
  }

  u32(): number {
    return this.view.getUint32(this.claim(4), true);
  }

  u64(): number {
    const value = this.view.getBigUint64(this.claim(8), true);
    if (value > BigInt(Number.MAX_SAFE_INTEGER)) this.fail('a number is beyond 2^53');
    return Number(value);
  }

  /** A view. */
  bytes(count: number): Uint8Array {
    const at = this.claim(count);
    return this.source.subarray(at, at + count);
  }

  hex(count: number): string {
    return Buffer.from(this.bytes(count)).toString('hex');
  }

  zeros(count: number): void {
    if (this.bytes(count).some((byte) => byte !== 0)) this.fail('reserved bytes are not zero');
  }

  magic(expected: string): void {
    if (Buffer.from(this.bytes(expected.length)).toString('latin1') !== expected) {
      this.fail(`does not begin with ${expected}`);
    }
  }

  /** Throws KV_UNSUPPORTED for a later major version; later minor ones are readable. */
  version(major: number): void {
    const found = this.u16();
    const minor = this.u16();
    if (found > major) {
      throw new CoxswainError(
        'KV_UNSUPPORTED',
        `${this.what}: format ${found}.${minor} is later than ${major}: use a newer version`,
      );
    }
    if (found !== major || minor !== 0) this.fail(`format ${found}.${minor} was never written`);
  }

  atMost(value: number, limit: number, name: string): number {
    if (value > limit) this.fail(`${name} is ${value}, more than ${limit}`);
    return value;
  }

  end(): void {
    if (this.left !== 0) this.fail(`${this.left} bytes too many`);
  }

  fail(why: string): never {
    throw damaged(this.what, why);
  }

  private claim(count: number): number {
    if (count > this.left) this.fail(`ends after ${this.source.length} bytes`);
    const at = this.at;
    this.at += count;
    return at;
  }
}
