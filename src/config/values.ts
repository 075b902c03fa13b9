// Parsers of single settings. Each takes what a flag, an environment variable (text) or a JSON file
// (text, numbers, lists) gives, and returns the value or throws a sentence that completes "NAME ...".

export type Parser<T> = (value: unknown) => T;
export type LayerRange = readonly [first: number, last: number];

export interface HostPort {
  readonly host: string;
  readonly port: number;
}

/** A value that does not fit; load.ts adds the option's name and where the value came from. */
export class UnfitValue extends Error {}

export function nullable<T>(parse: Parser<T>): Parser<T | null> {
  return (value) => (value === null ? null : parse(value));
}

export function text(charsMax: number): Parser<string> {
  return (value) => {
    if (typeof value !== 'string' || value === '' || value.length > charsMax) {
      throw new UnfitValue(`must be text of 1 to ${charsMax} characters`);
    }
    if (value.includes('\0')) throw new UnfitValue('must not hold a zero byte');
    return value;
  };
}

export function integer(least: number, most: number): Parser<number> {
  return (value) => {
    const number = typeof value === 'string' && /^\d{1,15}$/.test(value) ? Number(value) : value;
    if (!isInteger(number) || number < least || number > most) {
      throw new UnfitValue(`must be a whole number from ${least} to ${most}`);
    }
    return number;
  };
}

export function yesNo(): Parser<boolean> {
  return (value) => {
    if (value === true || value === 'true' || value === '1') return true;
    if (value === false || value === 'false' || value === '0') return false;
    throw new UnfitValue('must be true or false');
  };
}

export function oneOf<const T extends string>(choices: readonly T[]): Parser<T> {
  return (value) => {
    const found = choices.find((choice) => choice === value);
    if (found === undefined) throw new UnfitValue(`must be one of ${choices.join(', ')}`);
    return found;
  };
}

const UNITS: Readonly<Record<string, number>> = {
  '': 1,
  b: 1,
  kb: 1e3,
  mb: 1e6,
  gb: 1e9,
  tb: 1e12,
  k: 2 ** 10,
  m: 2 ** 20,
  g: 2 ** 30,
  t: 2 ** 40,
  kib: 2 ** 10,
  mib: 2 ** 20,
  gib: 2 ** 30,
  tib: 2 ** 40,
};

/** Bytes: 8GB is 8e9, 8GiB and 8G are 8 x 2^30. */
export function size(bytesMin: number): Parser<number> {
  return (value) => {
    const [, digits, unit] = /^(\d{1,15}(?:\.\d{1,6})?) ?([a-z]{0,3})$/i.exec(String(value)) ?? [];
    const factor = unit === undefined ? undefined : UNITS[unit.toLowerCase()];
    if (digits === undefined || factor === undefined) {
      throw new UnfitValue('must be a size such as 8GB, 512MiB or a number of bytes');
    }
    const bytes = Math.floor(Number(digits) * factor);
    if (!Number.isSafeInteger(bytes) || bytes < bytesMin) {
      throw new UnfitValue(`must be a size of at least ${bytesMin} bytes`);
    }
    return bytes;
  };
}

/** "2,1" or [2, 1]. */
export function weights(countMax: number): Parser<readonly number[]> {
  return (value) => {
    const parts = listOf(value);
    const numbers = parts.map((part) => (typeof part === 'number' ? part : decimal(part)));
    const fit = numbers.every((number) => Number.isFinite(number) && number > 0 && number <= 1e6);
    if (numbers.length === 0 || numbers.length > countMax || !fit) {
      throw new UnfitValue(`must be 1 to ${countMax} positive weights such as 2,1`);
    }
    return Object.freeze(numbers);
  };
}

/** "0-14,15-29", ["0-14", "15-29"] or [[0, 14], [15, 29]]: ascending, without gaps, from 0. */
export function layerRanges(countMax: number): Parser<readonly LayerRange[]> {
  return (value) => {
    const ranges = listOf(value).map(layerRange);
    if (ranges.length === 0 || ranges.length > countMax) {
      throw new UnfitValue(`must be 1 to ${countMax} ranges such as 0-14,15-29`);
    }
    let next = 0;
    for (const [first, last] of ranges) {
      if (first !== next || last < first) {
        throw new UnfitValue(`must cover the layers in order: a range must start at ${next}`);
      }
      next = last + 1;
    }
    return Object.freeze(ranges);
  };
}

export function hostPort(): Parser<HostPort> {
  return (value) => {
    const pattern = /^(?:\[([0-9a-f:.]+)\]|([^\s:[\]]{1,255})):(\d{1,5})$/i;
    const [, six, plain, port] = (typeof value === 'string' && pattern.exec(value)) || [];
    const host = six ?? plain;
    if (host === undefined || Number(port) > 65_535) {
      throw new UnfitValue('must be HOST:PORT, such as 10.0.0.1:7070 or [::1]:7070');
    }
    return Object.freeze({ host, port: Number(port) });
  };
}

function listOf(value: unknown): readonly unknown[] {
  if (Array.isArray(value)) return value;
  // A command line parser may have turned "2" into a number.
  return typeof value === 'string' || typeof value === 'number' ? String(value).split(',') : [];
}

function decimal(value: unknown): number {
  return typeof value === 'string' && /^ *\d{1,9}(\.\d{1,9})? *$/.test(value)
    ? Number(value)
    : Number.NaN;
}

function layerRange(value: unknown): LayerRange {
  const [, first, last] =
    (typeof value === 'string' && /^ *(\d{1,5})-(\d{1,5}) *$/.exec(value)) || [];
  const pair: readonly unknown[] = Array.isArray(value) ? value : [Number(first), Number(last)];
  const [from, to] = pair;
  if (pair.length !== 2 || !isInteger(from) || !isInteger(to) || from < 0) {
    throw new UnfitValue('must be ranges such as 0-14,15-29');
  }
  return Object.freeze([from, to] as const);
}

function isInteger(value: unknown): value is number {
  return Number.isSafeInteger(value);
}
