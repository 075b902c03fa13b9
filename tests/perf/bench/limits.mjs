// The machine's limits as native/limits measures them, once a number of threads for arithmetic; reading is
// measured again beside each figure that is held to it, since neighbours on the memory bus come and go.
import { nativeProgram } from './native.mjs';
import { jsonLines } from './run.mjs';

const known = new Map();

const TRIES = 3;
const better = (a, b) => ((b?.ops_per_second ?? 0) > (a?.ops_per_second ?? 0) ? b : a);

/** Whatever disturbs one measurement makes a limit look lower: the best of several counts. */
function best(found) {
  return found.reduce((a, b) => {
    const reading = b.read_bytes_per_second > a.read_bytes_per_second ? b : a;
    const peaks = {
      int8: better(a.int8, b.int8),
      bf16: better(a.bf16, b.bf16),
      f32: better(a.f32, b.f32),
    };
    return { ...reading, ...peaks };
  });
}

/** All limits with that many threads, or null where the program cannot be built. */
export function limitsOf(bench, threads) {
  if (!known.has(threads)) {
    const program = nativeProgram(bench, 'limits_machine_bench');
    const tries = Array(bench.quick ? 1 : TRIES).fill(threads);
    known.set(threads, program === null ? null : best(jsonLines(program, tries)));
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
