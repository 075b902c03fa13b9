// Real rank processes under a real coordinator: the same text after a kill and after a stop, nothing left
// at the end. Needs the built addon and dist/ (npm run build).
import { spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { createInterface } from 'node:readline';
import { afterEach, describe, expect, it } from 'vitest';
import { openCluster } from '../../src/coordinator/main.ts';
import type { Cluster } from '../../src/coordinator/shell/open-cluster.ts';
import type { ClusterOptions } from '../../src/coordinator/shell/options.ts';
import { CLUSTER_DEFAULTS } from '../cluster-defaults.ts';

interface LogLine {
  readonly message: string;
  readonly fields: Record<string, unknown>;
}

const MODEL = new URL('../vectors/oracle/models/llama-q.q8_0.gguf', import.meta.url).pathname;
const PROMPT = [1, 17, 94, 203, 44, 5];
const open: Cluster[] = [];
const logs: LogLine[] = [];

afterEach(async () => {
  await Promise.all(open.splice(0).map((cluster) => cluster.close()));
  logs.length = 0;
});

async function opened(
  more: Partial<ClusterOptions> & { tp?: number; pp?: number },
): Promise<Cluster> {
  const { tp = 2, pp = 1, ...rest } = more;
  const split = Array.from({ length: tp }, () => 1);
  const note = (fields: object, message: string) =>
    void logs.push({ message, fields: { ...fields } });
  const cluster = await openCluster(
    {
      ...CLUSTER_DEFAULTS,
      modelPath: MODEL,
      modelName: 'tiny',
      topology: { ...CLUSTER_DEFAULTS.topology, split, pp },
      threads: 1,
      slots: 4,
      ...rest,
    },
    { debug: note, info: note, warn: note, error: note },
    new AbortController().signal,
  );
  open.push(cluster);
  return cluster;
}

async function generate(
  cluster: Cluster,
  maxTokens: number,
  onCount?: (count: number) => void,
): Promise<number[]> {
  const ids: number[] = [];
  const options = { tokens: PROMPT, maxTokens, temperature: 0, seed: 3n, stopIds: [] };
  for await (const id of cluster.generateTokens(options)) {
    ids.push(id);
    onCount?.(ids.length);
  }
  return ids;
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
  } catch {
    return false;
  }
  return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
}

async function until(condition: () => boolean, ms: number): Promise<boolean> {
  const deadline = performance.now() + ms;
  while (performance.now() < deadline) {
    if (condition()) return true;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return condition();
}

function sharedMemory(): Set<string> {
  try {
    return new Set(readdirSync('/dev/shm'));
  } catch {
    return new Set();
  }
}

describe('real rank processes', () => {
  it('generate the same ids on every topology and transport', async () => {
    const results: number[][] = [];
    for (const more of [
      { tp: 1 },
      { tp: 2, transport: 'shm' },
      { tp: 2, transport: 'tcp' },
      { tp: 2, transport: 'grpc' },
      { tp: 1, pp: 2, transport: 'tcp' },
    ] as const) {
      const cluster = await opened(more);
      results.push(await generate(cluster, 24));
      const transports = cluster
        .describe()
        .ranks.flatMap(({ links }) => links.map(({ transport }) => transport));
      if ('transport' in more) expect(new Set(transports)).toEqual(new Set([more.transport]));
      await cluster.close();
    }
    for (const result of results) expect(result).toEqual(results[0]);
  });

  it.each([0, 1])('continue with the same ids when rank %i is killed', async (victim) => {
    const cluster = await opened({});
    const undisturbed = await generate(cluster, 200);
    const before = cluster.ranks()[victim]?.pid ?? 0;
    const ids = await generate(cluster, 200, (count) => {
      if (count === 20) process.kill(before, 'SIGKILL');
    });
    expect(ids).toEqual(undisturbed);
    expect(cluster.describe()).toMatchObject({ epoch: 2, state: 'ready' });
    expect(cluster.ranks()[victim]?.pid).not.toBe(before);
    expect(isAlive(before)).toBe(false);
  });

  it('replace a stopped rank within seconds, naming it, and go on', async () => {
    const cluster = await opened({});
    const undisturbed = await generate(cluster, 200);
    const pid = cluster.ranks()[1]?.pid ?? 0;
    let stoppedAt = 0;
    const ids = await generate(cluster, 200, (count) => {
      if (count !== 20) return;
      stoppedAt = performance.now();
      process.kill(pid, 'SIGSTOP');
    });
    expect(ids).toEqual(undisturbed);
    expect(performance.now() - stoppedAt).toBeLessThan(15_000);
    const lost = logs.find(({ message }) => message === 'rank lost');
    expect(lost?.fields['rank']).toBe(1);
    expect(lost?.fields['reason']).toMatch(/silent for 1\d\d\d ms/);
    expect(await until(() => !isAlive(pid), 3000)).toBe(true);
  });

  it('leave no process, socket or shared memory behind', async () => {
    const before = sharedMemory();
    const cluster = await opened({ transport: 'shm' });
    await generate(cluster, 4);
    const pids = cluster.ranks().map(({ pid }) => pid);
    const port = cluster.controlPort;
    await cluster.close();
    expect(pids.filter(isAlive)).toEqual([]);
    expect([...sharedMemory()].filter((name) => !before.has(name))).toEqual([]);
    const refused = await new Promise((resolve) => {
      const socket = connect(port, '127.0.0.1');
      socket.once('connect', () => resolve(false));
      socket.once('error', () => resolve(true));
    });
    expect(refused).toBe(true);
  });

  it('end by themselves when their coordinator is killed', async () => {
    const coordinator = spawn(process.execPath, [
      new URL('./coordinator-process.mjs', import.meta.url).pathname,
      MODEL,
    ]);
    const line = await new Promise<string>((resolve) =>
      createInterface({ input: coordinator.stdout }).once('line', resolve),
    );
    const pids = JSON.parse(line) as number[];
    expect(pids.length).toBe(2);
    expect(pids.every(isAlive)).toBe(true);
    coordinator.kill('SIGKILL');
    expect(await until(() => !pids.some(isAlive), 8000)).toBe(true);
  });
});
