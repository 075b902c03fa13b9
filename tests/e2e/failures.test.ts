// What a client sees when processes of a running cluster are killed, stopped or ended, or when strangers
// talk to its ports: the same stream, the same text, and nothing left behind. All by `cox up` and HTTP.
import { createSocket } from 'node:dgram';
import { connect, type Socket } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  alive,
  type Completion,
  CoxProcess,
  clusterState,
  type Listener,
  listeners,
  NO_CONTROL_TOKENS,
  type ReadyLine,
  segments,
  streamCompletion,
  testModel,
  until,
} from './cox.ts';

const TOKENS = 160;
const GREEDY = {
  prompt: 'A coordinator keeps every session, and the ranks',
  max_tokens: TOKENS,
  temperature: 0,
  logit_bias: NO_CONTROL_TOKENS,
  stream_options: { include_usage: true },
};
const SAMPLED = { ...GREEDY, temperature: 1, top_p: 0.9, seed: 7 };
/** Characters after which something is done to the cluster: well inside of every answer. */
const EARLY = 60;
const SLOW = 120_000;

interface Running {
  readonly cox: CoxProcess;
  readonly ready: ReadyLine;
}

async function up(...args: readonly string[]): Promise<Running> {
  const cox = new CoxProcess(['up', ...args, '--port', '0', '--json', '--threads', '1']);
  return { cox, ready: await cox.event('ready') };
}

/** Calls `act` once, when the text is EARLY characters long. */
function onceEarly(act: () => void): (text: string) => void {
  let acted = false;
  return (text) => {
    if (acted || text.length < EARLY) return;
    acted = true;
    act();
  };
}

async function pidOf(url: string, rank: number): Promise<number> {
  const { ranks } = await clusterState(url);
  const pid = ranks.find((one) => one.rank === rank)?.pid ?? 0;
  expect(pid).toBeGreaterThan(0);
  return pid;
}

const usageOf = ({ events }: Completion) => events.find(({ usage }) => usage)?.usage;

function expectSame(actual: Completion, undisturbed: Completion): void {
  expect(actual.text).toBe(undisturbed.text);
  expect(actual.done).toBe(true);
  expect(actual.events.filter(({ error }) => error)).toEqual([]);
  expect(usageOf(actual)).toMatchObject({
    prompt_tokens: usageOf(undisturbed)?.['prompt_tokens'],
    completion_tokens: TOKENS,
  });
}

describe.each([
  { topology: ['--tp', '2'], model: 'llama' },
  { topology: ['--pp', '2'], model: 'llama-q.q8_0' },
])('a stream over $topology', ({ topology, model }) => {
  let running: Running;
  let greedy: Completion;
  let sampled: Completion;
  beforeAll(async () => {
    running = await up(testModel(model), ...topology);
    greedy = await streamCompletion(running.ready.url, GREEDY);
    sampled = await streamCompletion(running.ready.url, SAMPLED);
    expect(greedy.text.length).toBeGreaterThan(2 * EARLY);
    expect(sampled.text).not.toBe(greedy.text);
  });
  afterAll(async () => {
    await running.cox.stop();
  });

  it.each([
    { rank: 0, signal: 'SIGKILL', body: GREEDY },
    { rank: 1, signal: 'SIGKILL', body: SAMPLED },
    { rank: 1, signal: 'SIGSTOP', body: GREEDY },
  ] as const)(
    'goes on with the same text when rank $rank gets $signal',
    async (fault) => {
      const { url } = running.ready;
      const before = await clusterState(url);
      const pid = await pidOf(url, fault.rank);
      const kill = onceEarly(() => process.kill(pid, fault.signal));
      const disturbed = await streamCompletion(url, fault.body, kill);
      expectSame(disturbed, fault.body === GREEDY ? greedy : sampled);
      const after = await clusterState(url);
      expect(after.epochs_lost).toBe(before.epochs_lost + 1);
      expect(await pidOf(url, fault.rank)).not.toBe(pid);
      expect(await until(() => !alive(pid), SLOW)).toBe(true);
      expect(lostRanks(running.cox)).toContain(fault.rank);
    },
    180_000,
  );

  it('goes on with the same text when the other rank is killed during recovery', async () => {
    const { url } = running.ready;
    const [first, second] = [await pidOf(url, 0), await pidOf(url, 1)];
    const before = (await clusterState(url)).epoch;
    let secondKill = Promise.resolve();
    const disturbed = await streamCompletion(
      url,
      GREEDY,
      onceEarly(() => {
        process.kill(first, 'SIGKILL');
        secondKill = until(async () => (await clusterState(url)).state !== 'ready', SLOW).then(
          () => {
            process.kill(second, 'SIGKILL');
          },
        );
      }),
    );
    await secondKill;
    expectSame(disturbed, greedy);
    expect((await clusterState(url)).epoch).toBeGreaterThan(before);
    expect(await pidOf(url, 1)).not.toBe(second);
  }, 180_000);
});

/** Ranks that the log calls lost. */
function lostRanks(cox: CoxProcess): number[] {
  return cox.log
    .split('\n')
    .filter((line) => line.includes('"rank lost"') || line.includes('"rank process ended"'))
    .map((line) => (JSON.parse(line) as { rank: number }).rank);
}

describe('an end in mid-stream', () => {
  it.each([
    { who: 'the coordinator', ranksToo: false },
    { who: 'everything, twice', ranksToo: true },
  ])(
    'by SIGTERM to $who is clean: code 0, a last event, nothing left',
    async ({ ranksToo }) => {
      const before = new Set(segments());
      const { cox, ready } = await up(testModel('llama'), '--tp', '2', '--transport', 'shm');
      const ranks = ready.ranks.map(({ pid }) => pid);
      const pids = [ready.pid, ...ranks];
      const ports = pids.flatMap(listeners).filter(({ protocol }) => protocol === 'tcp');
      expect(ports.length).toBeGreaterThanOrEqual(4);
      const terminate = () => {
        cox.signal('SIGTERM');
        if (ranksToo) for (const pid of pids) process.kill(pid, 'SIGTERM');
      };
      const body = { ...GREEDY, max_tokens: 4_000 };
      const stream = await streamCompletion(ready.url, body, onceEarly(terminate));
      expect(stream.done).toBe(true);
      expect(stream.events.at(-1)?.error?.message).toMatch(/shut|told to end/i);
      expect(await cox.exited).toBe(0);
      expect(pids.filter(alive)).toEqual([]);
      for (const { port } of ports) expect(await isRefused(port)).toBe(true);
      expect(await until(() => segments().every((name) => before.has(name)), 5_000)).toBe(true);
    },
    90_000,
  );

  it('of the coordinator by SIGKILL ends its ranks too', async () => {
    const before = new Set(segments());
    const { cox, ready } = await up(testModel('llama'), '--tp', '2', '--transport', 'shm');
    const pids = ready.ranks.map(({ pid }) => pid);
    const body = { ...GREEDY, max_tokens: 2_000 };
    const stream = streamCompletion(
      ready.url,
      body,
      onceEarly(() => cox.signal('SIGKILL')),
    );
    await expect(stream).rejects.toThrow();
    expect(await until(() => pids.every((pid) => !alive(pid)), 30_000)).toBe(true);
    expect(await until(() => segments().every((name) => before.has(name)), 5_000)).toBe(true);
  }, 90_000);
});

function isRefused(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    socket.once('connect', () => resolve(false)).once('error', () => resolve(true));
    socket.once('close', () => socket.destroy());
  });
}

const GARBAGE = Buffer.from(Array.from({ length: 4096 }, (_, index) => (index * 131 + 7) & 0xff));
const HTTP_TEXT = Buffer.from('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
const HTTP2_PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
/** The data plane's own first bytes, with lengths as large as they go. */
const HUGE_FRAME = Buffer.concat([Buffer.from('COXW'), Buffer.alloc(64, 0xff)]);
const SILENT_CONNECTIONS = 150;

/** Connects, says something, and leaves the connection open. */
function openSocket(port: number, says: Buffer | null): Socket {
  const socket = connect(port, '127.0.0.1');
  socket.on('error', () => undefined);
  if (says !== null) socket.write(says);
  return socket;
}

function molest({ protocol, port }: Listener): () => void {
  if (protocol === 'udp') {
    const socket = createSocket('udp4');
    for (const bytes of [GARBAGE.subarray(0, 64), GARBAGE, HTTP_TEXT, Buffer.alloc(0)])
      for (let i = 0; i < 200; i += 1) socket.send(bytes, port, '127.0.0.1');
    return () => socket.close();
  }
  const talkers = [GARBAGE, HTTP_TEXT, HTTP2_PREFACE, HUGE_FRAME].map((says) =>
    openSocket(port, says),
  );
  const silent = Array.from({ length: SILENT_CONNECTIONS }, () => openSocket(port, null));
  return () => {
    for (const socket of [...talkers, ...silent]) socket.destroy();
  };
}

describe('strangers on every port', () => {
  it.each(['shm', 'tcp', 'grpc'])(
    'change nothing over %s, and are logged',
    async (transport) => {
      const { cox, ready } = await up(testModel('llama'), '--tp', '2', '--transport', transport);
      try {
        const undisturbed = await streamCompletion(ready.url, GREEDY);
        const ports = [ready.pid, ...ready.ranks.map(({ pid }) => pid)].flatMap(listeners);
        // HTTP, control and heartbeats of the coordinator; data of each rank, whose heartbeat sockets are
        // connected and hear nobody else.
        expect(ports.length).toBeGreaterThanOrEqual(5);
        let leave: (() => void)[] = [];
        const molested = await streamCompletion(
          ready.url,
          GREEDY,
          onceEarly(() => {
            leave = ports.map(molest);
          }),
        );
        expectSame(molested, undisturbed);
        expectSame(await streamCompletion(ready.url, GREEDY), undisturbed);
        for (const one of leave) one();
        const state = await clusterState(ready.url);
        expect(state).toMatchObject({ epoch: 1, state: 'ready', epochs_lost: 0 });
        expect(cox.log).toMatch(/stranger refused|connection refused/);
        if (transport !== 'grpc') expect(cox.log).toMatch(/stranger refused on the data port/);
      } finally {
        expect(await cox.stop()).toBe(0);
      }
    },
    120_000,
  );
});
