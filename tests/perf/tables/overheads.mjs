// What the cluster around the engine costs: processor time of JavaScript a decode step, decode over HTTP beside the
// engine alone, and the latency of a one-token request beside the engine's own time. Linux (/proc).
import { availableParallelism } from 'node:os';
import { alternate, atLeast, atMost, figure, median, ratioOf } from '../bench/measure.mjs';
import { nativeProgram } from '../bench/native.mjs';
import { output } from '../bench/run.mjs';
import { Server, threadTimes } from '../bench/server.mjs';
import { plural, rowsOf } from './speed-rows.mjs';

export const title = 'What HTTP and JavaScript cost';

const PROMPT_TOKENS = 16;
const REQUESTS = 40;
const prompt = (first, length) => Array.from({ length }, (_, i) => ((i * 7919 + 13) % 500) + first);

/** {prefill, decode} tokens a second of the engine alone. */
function engineAlone(bench, threads, { prefill, decode, runs }) {
  const program = nativeProgram(bench, 'engine_steps_bench');
  const rows = [
    ...output(program, [bench.model, threads, prefill, decode, runs]).matchAll(
      /prefill \d+ at ([\d.]+) tok\/s.*decode \d+ at ([\d.]+) tok\/s/g,
    ),
  ].map(([, p, d]) => ({ prefill: Number(p), decode: Number(d) }));
  return {
    prefill: median(rows.map((row) => row.prefill)),
    decode: median(rows.map((row) => row.decode)),
  };
}

async function withServer(bench, threads, use) {
  const server = await Server.start(bench.model, ['--threads', threads]);
  try {
    return await use(server);
  } finally {
    await server.stop();
  }
}

/** Of a process since `before`: all threads, but the `busiest` ones besides the main thread (the engine's). */
function jsTime(pid, before, busiest) {
  const spent = [...threadTimes(pid)]
    .map(([thread, ns]) => ({ main: thread === pid, ns: ns - (before.get(thread) ?? 0) }))
    .sort((a, b) => b.ns - a.ns);
  const engine = spent.filter(({ main }) => !main).slice(0, busiest);
  return spent.reduce((sum, { ns }) => sum + ns, 0) - engine.reduce((sum, { ns }) => sum + ns, 0);
}

/** Microseconds of JavaScript a step, coordinator and rank, while `work` takes `steps` steps. */
async function jsPerStep(server, { threads, steps, work }) {
  const { coordinator, ranks } = server.pids;
  const before = new Map([coordinator, ...ranks].map((pid) => [pid, threadTimes(pid)]));
  await work();
  const rankNs = ranks.reduce((sum, pid) => sum + jsTime(pid, before.get(pid), threads), 0);
  const coordinatorNs = jsTime(coordinator, before.get(coordinator), 0);
  return { coordinator: coordinatorNs / steps / 1000, rank: rankNs / steps / 1000 };
}

function cpuRows(bench) {
  const threads = 1;
  const steps = bench.tokens.overheadSteps;
  const ways = {
    'one answer': (server) =>
      server.complete({ prompt: prompt(1, PROMPT_TOKENS), max_tokens: steps }),
    streamed: (server) => server.streamedRate(prompt(1, PROMPT_TOKENS), steps),
  };
  return withServer(bench, threads, async (server) => {
    for (const work of Object.values(ways)) await work(server); // compiled before it is measured
    const samples = await alternate(
      bench.runs,
      Object.fromEntries(
        Object.entries(ways).map(([name, work]) => [
          name,
          () => jsPerStep(server, { threads, steps, work: () => work(server) }),
        ]),
      ),
    );
    return Object.entries(samples).map(([name, found]) => {
      const all = median(found.map((sample) => sample.coordinator + sample.rank));
      return {
        what: `JavaScript a step, ${name}`,
        cells: {
          'in all us': name === 'one answer' ? atMost(all, 150) : figure(all),
          'coordinator us': figure(median(found.map((sample) => sample.coordinator))),
          'rank us': figure(median(found.map((sample) => sample.rank))),
        },
        samples: found,
      };
    });
  });
}

function httpRow(bench, { what, threads, least }) {
  return withServer(bench, threads, async (server) => {
    const tokens = bench.tokens.httpDecode;
    await server.streamedRate(prompt(1, PROMPT_TOKENS), tokens);
    const samples = await alternate(bench.runs, {
      engine: () =>
        engineAlone(bench, threads, { prefill: PROMPT_TOKENS, decode: tokens, runs: 1 }).decode,
      http: () => server.streamedRate(prompt(1, PROMPT_TOKENS), tokens),
    });
    return {
      what,
      cells: {
        'HTTP tok/s': figure(median(samples.http)),
        'engine tok/s': figure(median(samples.engine)),
        ratio: atLeast(ratioOf(samples.http, samples.engine), least),
      },
      samples,
    };
  });
}

async function latencyNow(server) {
  const times = [];
  for (let i = 0; i < REQUESTS; i++) {
    const start = performance.now();
    await server.complete({ prompt: prompt(1 + i, 1), max_tokens: 1 });
    times.push(performance.now() - start);
  }
  return median(times);
}

function latencyRow(bench, { what, threads }) {
  return withServer(bench, threads, async (server) => {
    await latencyNow(server);
    const samples = await alternate(bench.runs, {
      engine: () =>
        1000 / engineAlone(bench, threads, { prefill: 1, decode: 1, runs: REQUESTS }).prefill,
      http: () => latencyNow(server),
    });
    const above = samples.http.map((ms, round) => ms - samples.engine[round]);
    return {
      what,
      cells: {
        'HTTP ms': figure(median(samples.http)),
        'engine ms': figure(median(samples.engine)),
        'above ms': atMost(median(above), 2),
      },
      samples,
    };
  });
}

export async function run(bench) {
  if (process.platform !== 'linux') return [{ what: 'overheads', note: 'needs /proc' }];
  if (nativeProgram(bench, 'engine_steps_bench') === null)
    return [{ what: 'overheads', note: 'CMake is not installed' }];
  const cores = availableParallelism();
  const free = Math.max(1, cores - 1);
  const parts = [
    { what: 'JavaScript a step', make: () => cpuRows(bench) },
    {
      what: `decode over HTTP, ${plural(free)} of ${cores} cores`,
      make: (part) => httpRow(bench, { ...part, threads: free, least: 0.97 }),
    },
    {
      what: `decode over HTTP, ${plural(cores)} of ${cores} cores`,
      make: (part) => httpRow(bench, { ...part, threads: cores, least: 0.9 }),
    },
    {
      what: `one-token request, ${plural(free)}`,
      make: (part) => latencyRow(bench, { ...part, threads: free }),
    },
  ];
  return (await rowsOf(parts, (part) => part.make(part))).flat();
}
