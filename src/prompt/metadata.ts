// Typed reads from GGUF metadata. The addon hands scalars as number, bigint, boolean or string, text that
// is no valid UTF-8 as bytes, and arrays as arrays or typed arrays; a value of the wrong kind is the file's
// fault (GGUF_INVALID) and is named by its key.
import { CoxswainError } from '../base/errors.ts';
import type { MetadataView } from './prompt-codec.ts';

export type MetadataSource =
  | MetadataView
  | ReadonlyMap<string, unknown>
  | Readonly<Record<string, unknown>>;

export interface Metadata {
  text(key: string): string | undefined;
  /** A non-negative integer. */
  index(key: string): number | undefined;
  flag(key: string): boolean | undefined;
  texts(key: string): readonly string[] | undefined;
  numbers(key: string): ArrayLike<number> | undefined;
}

function isView(source: MetadataSource): source is MetadataView {
  return typeof source['get'] === 'function';
}

export function readMetadata(source: MetadataSource): Metadata {
  const raw = (key: string): unknown => {
    if (isView(source)) return source.get(key) ?? undefined;
    return Object.hasOwn(source, key) ? (source[key] ?? undefined) : undefined;
  };
  return {
    text: (key) => checked(key, raw(key), isText, 'a string'),
    flag: (key) => checked(key, raw(key), isFlag, 'a boolean'),
    texts: (key) => checked(key, raw(key), isTexts, 'an array of strings')?.map(asText),
    numbers: (key) => checked(key, raw(key), isNumbers, 'an array of numbers'),
    index: (key) => {
      const value = raw(key);
      const narrow = typeof value === 'bigint' ? Number(value) : value;
      return checked(key, narrow, isIndex, 'a non-negative integer');
    },
  };
}

function checked<T>(
  key: string,
  value: unknown,
  accepts: (value: unknown) => value is T,
  wanted: string,
): T | undefined {
  if (value === undefined) return undefined;
  if (accepts(value)) return value;
  throw new CoxswainError('GGUF_INVALID', `metadata key ${key} is not ${wanted}`);
}

const isText = (value: unknown): value is string => typeof value === 'string';
const isFlag = (value: unknown): value is boolean => typeof value === 'boolean';
const isIndex = (value: unknown): value is number =>
  Number.isSafeInteger(value) && Number(value) >= 0;
const isTexts = (value: unknown): value is (string | Uint8Array)[] =>
  Array.isArray(value) &&
  value.every((item) => typeof item === 'string' || item instanceof Uint8Array);
/** A token whose text is no valid UTF-8 keeps its id; no text matches it. */
const asText = (value: string | Uint8Array) =>
  typeof value === 'string' ? value : Buffer.from(value).toString('utf8');
const isNumbers = (value: unknown): value is ArrayLike<number> =>
  (ArrayBuffer.isView(value) && !(value instanceof DataView)) ||
  (Array.isArray(value) && value.every((item) => typeof item === 'number'));
