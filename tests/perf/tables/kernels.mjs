// The kernels alone, one thread: matrix products of 64 rows as a share of the int8 peak (f32 for float types), one row
// as a share of the read bandwidth, and attention. Figures of native/bench, repeated and taken as medians.
import { limitsOf } from '../bench/limits.mjs';
import { atLeast, figure, median } from '../bench/measure.mjs';
import { nativeProgram } from '../bench/native.mjs';
import { output } from '../bench/run.mjs';

export const title = 'Kernels alone, one thread';

const SHARES = {
  ...{ Q4_0: 0.6, Q4_1: 0.6, Q8_0: 0.6, Q4_K: 0.5, Q6_K: 0.5 },
  ...{ Q5_0: undefined, Q5_1: undefined, Q5_K: undefined, Q2_K: undefined, Q3_K: undefined },
  ...{ IQ4_NL: undefined, IQ4_XS: undefined, MXFP4: undefined, IQ2_XXS: undefined },
  ...{ F16: undefined, BF16: undefined, F32: undefined },
};
const FLOATS = ['F16', 'BF16', 'F32'];

/** "Q4_1 ... 1 row 21.4 of 21.3 GB/s (100 %) 8 rows ... GB/s 64 rows 322.0 GOP/s" */
const MATRIX_LINE =
  /^(\S+)\s.*1 row\s+([\d.]+) of\s+([\d.]+) GB\/s.*8 rows\s+([\d.]+) GB\/s.*\s([\d.]+) GOP\/s/;
const ATTENTION_LINE = /^kv (\S+) depth\s+(\d+)\s+1 row\s+([\d.]+) GB\/s.*rows\s+([\d.]+) GFLOP\/s/;

function lines(program, parameters, pattern) {
  return output(program, parameters)
    .split('\n')
    .map((line) => pattern.exec(line))
    .filter((match) => match !== null);
}

function collect(runs, measure) {
  const byName = new Map();
  for (let run = 0; run < runs; run++) {
    for (const { name, ...values } of measure()) {
      if (!byName.has(name)) byName.set(name, []);
      byName.get(name).push(values);
    }
  }
  return byName;
}

const medianOf = (samples, key) => median(samples.map((sample) => sample[key]));

function matrixRow(bench, type, samples) {
  const limits = limitsOf(bench, 1);
  const peak = FLOATS.includes(type) ? limits?.f32 : limits?.int8;
  const rate = medianOf(samples, 'many');
  const share = peak === undefined ? null : (rate * 1e9) / peak.ops_per_second;
  const least = SHARES[type];
  return {
    what: type,
    cells: {
      'GOP/s of 64 rows': figure(rate),
      'of the peak': least === undefined ? figure(share) : atLeast(share, least),
      'GB/s of 1 row': figure(medianOf(samples, 'one')),
      'of reading': figure(median(samples.map(({ one, read }) => Math.min(1, one / read)))),
      'GB/s of 8 rows': figure(medianOf(samples, 'eight')),
    },
    note: FLOATS.includes(type) ? 'of the f32 peak' : undefined,
    samples,
  };
}

export function run(bench) {
  const matrix = nativeProgram(bench, 'kernels_matmul_bench');
  if (matrix === null) return [{ what: 'kernels', note: 'CMake is not installed' }];
  const attention = nativeProgram(bench, 'kernels_attention_bench');
  const types = bench.quick ? ['Q4_1', 'Q6_K', 'F16'] : Object.keys(SHARES);
  const products = collect(bench.runs, () =>
    lines(matrix, types, MATRIX_LINE).map(([, name, one, read, eight, many]) => ({
      name,
      one: Number(one),
      read: Number(read),
      eight: Number(eight),
      many: Number(many),
    })),
  );
  const reads = collect(bench.runs, () =>
    lines(attention, [], ATTENTION_LINE).map(([, type, depth, one, many]) => ({
      name: `attention, ${depth} positions, ${type} cache`,
      one: Number(one),
      many: Number(many),
    })),
  );
  return [
    ...[...products].map(([type, samples]) => matrixRow(bench, type, samples)),
    ...[...reads].map(([what, samples]) => ({
      what,
      cells: {
        'GOP/s of 64 rows': figure(medianOf(samples, 'many')),
        'GB/s of 1 row': figure(medianOf(samples, 'one')),
      },
      samples,
    })),
  ];
}
