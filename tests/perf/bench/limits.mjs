// The machine's limits as native/limits measures them, once a number of threads for arithmetic; reading is
// measured again beside each figure that is held to it, since neighbours on the memory bus come and go.
import { nativeProgram } from './native.mjs';
import { jsonLines } from './run.mjs';

const known = new Map();

/** All limits with that many threads, or null where the program cannot be built. */
export function limitsOf(bench, threads) {
  if (!known.has(threads)) {
    const program = nativeProgram(bench, 'limits_machine_bench');
    known.set(threads, program === null ? null : jsonLines(program, [threads])[0]);
  }
  return known.get(threads);
}

/** Bytes a second read right now, or null. */
export function readNow(bench, threads) {
  const program = nativeProgram(bench, 'limits_machine_bench');
  return program === null ? null : jsonLines(program, ['--read', threads])[0].read_bytes_per_second;
}

/**
 * Median share of the read bandwidth over the rounds. A round in which the measured work read faster than the
 * limit's own loops counts as 1: the limit is never below what was reached.
 */
export function readShare(bytesPerSecond, limits) {
  if (!bytesPerSecond?.length || !limits?.length) return null;
  const shares = bytesPerSecond.map((value, round) => Math.min(1, value / limits[round]));
  return shares.toSorted((a, b) => a - b)[shares.length >> 1];
}
