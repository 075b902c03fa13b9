// An all-reduce between two processes of this host, p50 of back-to-back sums, beside Open MPI's in the same run
// (Debian: libopenmpi-dev openmpi-bin). Without it our figures stand alone.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { alternate, atMost, figure, median, ratioOf } from '../bench/measure.mjs';
import { nativeProgram } from '../bench/native.mjs';
import { hasTool, jsonLines, output, perf } from '../bench/run.mjs';

export const title = 'All-reduce over two ranks, p50 in microseconds';

const ROUNDS = { 2304: 20_000, 16384: 10_000, 262144: 1000 };
const WANTED = { shm: { 2304: 1.5, 16384: 0.6 }, tcp: { 16384: 0.5 } };
/** Open MPI's byte transports: shared memory (vader in 4.x), TCP over loopback. */
const MPI_TRANSPORTS = { shm: 'vader,self', tcp: 'tcp,self' };

/** {shm: {bytes: us}, tcp: {bytes: us}} */
function oursNow(bench) {
  const program = nativeProgram(bench, 'comm_allreduce_bench');
  const found = {};
  let transport = '';
  for (const line of output(program, []).split('\n')) {
    const head = /^(shm|tcp):/.exec(line);
    if (head) transport = head[1];
    const row = /^\s+(\d+) bytes: p50\s+([\d.]+) us/.exec(line);
    if (!row) continue;
    found[transport] ??= {};
    found[transport][row[1]] = Number(row[2]);
  }
  return found;
}

function buildMpi(bench) {
  if (!hasTool('mpicc') || !hasTool('mpirun')) return null;
  mkdirSync(bench.cache, { recursive: true });
  const program = join(bench.cache, 'mpi-allreduce');
  output('mpicc', ['-O2', join(perf, 'mpi-allreduce.c'), '-o', program]);
  return program;
}

function mpiNow(program, transport) {
  const asRoot = process.getuid?.() === 0 ? ['--allow-run-as-root'] : [];
  const sizes = Object.entries(ROUNDS).flat();
  const rows = jsonLines('mpirun', [
    ...['-np', 2, '--bind-to', 'none', '--oversubscribe', ...asRoot],
    ...['--mca', 'btl', MPI_TRANSPORTS[transport], '--mca', 'pml', 'ob1', program, ...sizes],
  ]);
  return Object.fromEntries(rows.map((row) => [row.bytes, row.p50_us]));
}

function row(samples, transport, bytes) {
  const own = samples.ours.map((found) => found[transport][bytes]);
  const other = samples[transport]?.map((found) => found[bytes]);
  const ratio = ratioOf(own, other);
  const most = WANTED[transport][bytes];
  return {
    what: `${transport}, ${bytes} bytes`,
    cells: {
      'ours us': figure(median(own)),
      'Open MPI us': figure(other ? median(other) : null),
      ratio: most === undefined ? figure(ratio) : atMost(ratio, most),
    },
    note: other ? undefined : 'Open MPI is not installed',
    samples: { ours: own, other },
  };
}

export async function run(bench) {
  if (nativeProgram(bench, 'comm_allreduce_bench') === null)
    return [{ what: 'all-reduce', note: 'CMake is not installed' }];
  const mpi = buildMpi(bench);
  const samples = await alternate(bench.runs, {
    ours: () => oursNow(bench),
    shm: () => (mpi === null ? null : mpiNow(mpi, 'shm')),
    tcp: () => (mpi === null ? null : mpiNow(mpi, 'tcp')),
  });
  return ['shm', 'tcp'].flatMap((transport) =>
    Object.keys(ROUNDS).map((bytes) => row(samples, transport, bytes)),
  );
}
