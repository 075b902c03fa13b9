// Public workload traces of prefix reuse (Mooncake's format: JSON lines with timestamp in ms,
// input_length in tokens, hash_ids of 512-token blocks; an id names the whole prefix up to its block).
import { readFileSync } from 'node:fs';
import { CoxswainError } from '../../base/errors.ts';

export const BLOCK_TOKENS = 512;

export interface TraceRequest {
  readonly atMs: number;
  readonly inputTokens: number;
  /** Ids of the full blocks: a partial last block is nobody else's beginning. */
  readonly blocks: Int32Array;
  /** All ids, as the block caches of the literature count them. */
  readonly allBlocks: Int32Array;
}

/** FILE_UNREADABLE names file and line. */
export function readTrace(path: string): TraceRequest[] {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (cause) {
    throw new CoxswainError('FILE_UNREADABLE', `cannot read the trace ${path}`, { cause });
  }
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line, index) => readLine(line, `${path}:${index + 1}`));
}

function readLine(line: string, where: string): TraceRequest {
  const broken = (cause?: unknown) =>
    new CoxswainError('FILE_UNREADABLE', `${where} is no request of a prefix trace`, { cause });
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch (cause) {
    throw broken(cause);
  }
  if (typeof value !== 'object' || value === null) throw broken();
  const { timestamp, input_length, hash_ids } = value as Readonly<Record<string, unknown>>;
  if (typeof timestamp !== 'number' || typeof input_length !== 'number') throw broken();
  if (!Array.isArray(hash_ids)) throw broken();
  const allBlocks = Int32Array.from(hash_ids);
  const full = Math.min(allBlocks.length, Math.floor(input_length / BLOCK_TOKENS));
  return {
    atMs: timestamp,
    inputTokens: input_length,
    blocks: allBlocks.subarray(0, full),
    allBlocks,
  };
}
