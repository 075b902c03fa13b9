// Reads the vocabularies and id vectors that the prompt tests share. Metadata comes from the vectors'
// own GGUF reader, so that these tests need no addon.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

interface GgufReader {
  readGguf(path: string): {
    readonly kv: ReadonlyMap<string, { readonly value: unknown }>;
  };
}

const VECTORS = new URL('../../vectors/', import.meta.url);
const reader: GgufReader = await import(new URL('oracle/gguf-writer.mjs', VECTORS).href);

/** Metadata by key of a GGUF under tests/vectors. */
export function metadataOf(path: string): Map<string, unknown> {
  const { kv } = reader.readGguf(fileURLToPath(new URL(path, VECTORS)));
  return new Map([...kv].map(([key, entry]) => [key, entry.value]));
}

export interface TokenizerVectors {
  readonly strings: readonly string[];
  readonly families: Readonly<
    Record<
      string,
      {
        readonly model: string;
        readonly pre: string;
        readonly plain: readonly (readonly number[])[];
        /** null where equal to plain. */
        readonly special: readonly (readonly number[] | null)[];
      }
    >
  >;
}

export function tokenizerVectors(path: string): TokenizerVectors {
  return JSON.parse(readFileSync(new URL(path, VECTORS), 'utf8'));
}

export interface RecordedIds {
  readonly strings: readonly string[];
  readonly families: Readonly<
    Record<
      string,
      {
        readonly model: string;
        /** Replaces the file's own; null: removed from it. */
        readonly pre?: string | null;
        readonly ends: readonly number[];
        readonly plain: readonly (readonly number[])[];
        readonly special: readonly (readonly number[] | null)[];
      }
    >
  >;
}

export function recordedIds(): RecordedIds {
  return JSON.parse(readFileSync(new URL('tokenizer/ids.json', VECTORS), 'utf8'));
}
