// Paths and reference vectors of the models of our own making (tests/vectors/own-models.mjs), which are
// generated on first use.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { OracleVectors } from './oracle-case.ts';

const VECTORS = join(import.meta.dirname, '../vectors');
const GENERATED = join(import.meta.dirname, '../.generated');

/** Models that have double-precision reference vectors. */
export const OWN_NAMES = readdirSync(join(VECTORS, 'own'))
  .filter((file) => file.endsWith('.json'))
  .map((file) => file.slice(0, -'.json'.length))
  .sort();

/** Test files run side by side: each makes its own copy, the last rename wins, all are equal. */
export function ownModel(name: string): string {
  const path = join(GENERATED, `${name}.gguf`);
  if (existsSync(path)) return path;
  const scratch = join(GENERATED, `making-${process.pid}-${name}`);
  mkdirSync(scratch, { recursive: true });
  const script = join(VECTORS, 'own-models.mjs');
  const made = spawnSync(process.execPath, [script, '--out', scratch, name]);
  if (made.status !== 0) throw new Error(made.stderr.toString());
  renameSync(join(scratch, `${name}.gguf`), path);
  rmSync(scratch, { recursive: true });
  return path;
}

export function ownVectors(name: string): OracleVectors {
  const path = join(VECTORS, 'own', `${name}.json`);
  const { sample_ids, references } = JSON.parse(readFileSync(path, 'utf8'));
  return { sampleIds: sample_ids, cases: references.native.cases };
}
