// The same two cores as one rank with two threads, and as two ranks with one thread each: tensor-parallel over
// shared memory and TCP, pipeline-parallel with one, four and sixteen sessions in flight. Default model.
import { alternate, atLeast, figure, median, ratioOf } from '../bench/measure.mjs';
import { ours } from '../bench/ours.mjs';
import { rowsOf } from './speed-rows.mjs';

export const title = 'Two ranks on the cores of one rank with two threads';

const ONE_RANK = ['--threads', 2];
const split = (...flags) => [...flags, '--threads', 1];
const TP_SHM = split('--tp', 2, '--transport', 'shm');
const TP_TCP = split('--tp', 2, '--transport', 'tcp');
const PP = split('--pp', 2);

function row(what, { base, measured, samples, least }) {
  const ratio = ratioOf(samples[measured], samples[base]);
  return {
    what,
    cells: {
      'tok/s': figure(median(samples[measured])),
      'one rank tok/s': figure(median(samples[base])),
      ratio: least === undefined ? figure(ratio) : atLeast(ratio, least),
    },
    samples: { measured: samples[measured], base: samples[base] },
  };
}

const measure = (bench, test, streams, flags) => () =>
  ours({ model: bench.model, test, tokens: bench.tokens[test], streams, flags });

async function tensorParallel(bench, test) {
  const samples = await alternate(bench.runs, {
    one: measure(bench, test, 1, ONE_RANK),
    shm: measure(bench, test, 1, TP_SHM),
    tcp: measure(bench, test, 1, TP_TCP),
  });
  const shmLeast = test === 'decode' ? 0.88 : 0.85;
  return [
    row(`TP 2 over shm, ${test}`, { base: 'one', measured: 'shm', samples, least: shmLeast }),
    row(`TP 2 over tcp, ${test}`, { base: 'one', measured: 'tcp', samples, least: 0.75 }),
  ];
}

const PP_LEAST = { 1: undefined, 4: 0.5, 16: 0.85 };

async function pipelineDecode(bench) {
  const counts = [1, 4, 16];
  const samples = await alternate(
    bench.runs,
    Object.fromEntries(
      counts.flatMap((count) => [
        [`one ${count}`, measure(bench, 'decode', count, ONE_RANK)],
        [`pp ${count}`, measure(bench, 'decode', count, PP)],
      ]),
    ),
  );
  const rows = counts.map((count) =>
    row(`PP 2, decode, ${count} session${count > 1 ? 's' : ''}`, {
      base: `one ${count}`,
      measured: `pp ${count}`,
      samples,
      least: PP_LEAST[count],
    }),
  );
  const gain = {
    what: 'PP 2, decode, 4 sessions beside 1',
    cells: {
      'tok/s': figure(median(samples['pp 4'])),
      ratio: atLeast(ratioOf(samples['pp 4'], samples['pp 1']), 2),
    },
    note: 'ratio to PP 2 with one session',
  };
  return [...rows, gain];
}

async function pipelinePrefill(bench) {
  const samples = await alternate(bench.runs, {
    one: measure(bench, 'prefill', 4, ONE_RANK),
    pp: measure(bench, 'prefill', 4, PP),
  });
  return [row('PP 2, prefill, 4 sessions', { base: 'one', measured: 'pp', samples, least: 0.85 })];
}

export async function run(bench) {
  const parts = [
    { what: 'TP 2, decode', make: () => tensorParallel(bench, 'decode') },
    { what: 'TP 2, prefill', make: () => tensorParallel(bench, 'prefill') },
    { what: 'PP 2, decode', make: () => pipelineDecode(bench) },
    { what: 'PP 2, prefill', make: () => pipelinePrefill(bench) },
  ];
  return (await rowsOf(parts, ({ make }) => make())).flat();
}
