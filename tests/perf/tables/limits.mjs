// What the machine can do at most: the figures that the other tables are shares of.

import { limitsOf } from '../bench/limits.mjs';
import { figure } from '../bench/measure.mjs';

export const title = "The machine's limits";

const giga = (value) => (value === undefined ? null : value / 1e9);

function describe(found) {
  const { streams, ahead_bytes: ahead, huge_pages: huge } = found.read_loop;
  return `read by ${streams} stream${streams > 1 ? 's' : ''} a thread, ${ahead / 1024} KiB ahead, ${huge ? 'huge' : 'plain'} pages; int8 by ${found.int8?.instruction ?? 'nothing'}`;
}

export function run(bench) {
  return bench.threads.map((threads) => {
    const found = limitsOf(bench, threads);
    if (found === null) return { what: `${threads} threads`, note: 'CMake is not installed' };
    return {
      what: `${threads} thread${threads > 1 ? 's' : ''}`,
      cells: {
        'read GB/s': figure(giga(found.read_bytes_per_second)),
        'int8 GOP/s': figure(giga(found.int8?.ops_per_second)),
        'bf16 GFLOP/s': figure(giga(found.bf16?.ops_per_second)),
        'f32 GFLOP/s': figure(giga(found.f32?.ops_per_second)),
      },
      note: describe(found),
    };
  });
}
