// Ranks that join by themselves, as `cox rank` does from other hosts.
import { afterEach, describe, expect, it } from 'vitest';
import { type Cluster, openClusterWith } from '../../../../src/coordinator/shell/open-cluster.ts';
import type { RankProcess } from '../../../../src/coordinator/shell/options.ts';
import { type FakeCluster, fakeCluster } from './fake-cluster.ts';
import { answerOf, request } from './requests.ts';

const TOKEN = 'a token for ranks from elsewhere';
const open: Cluster[] = [];
const ranks: RankProcess[] = [];

afterEach(async () => {
  await Promise.all(open.splice(0).map((cluster) => cluster.close()));
  for (const rank of ranks.splice(0)) rank.kill('SIGKILL');
});

interface Remote {
  readonly fake: FakeCluster;
  readonly cluster: Promise<Cluster>;
  /** Starts a rank that wishes for this number. */
  join(wish: number, token?: string): RankProcess;
}

async function remoteCluster(given: Parameters<typeof fakeCluster>[0] = {}): Promise<Remote> {
  const fake = fakeCluster({ ...given, cluster: { ranks: 'remote', token: TOKEN } });
  let listening: (port: number) => void = () => undefined;
  const port = new Promise<number>((resolve) => {
    listening = resolve;
  });
  const cluster = openClusterWith(
    { ...fake.options, onListening: (address) => listening(address.port) },
    fake.dependencies,
    new AbortController().signal,
  );
  cluster.then((opened) => open.push(opened)).catch(() => undefined);
  const address = `127.0.0.1:${await port}`;
  return {
    fake,
    cluster,
    join: (wish, token = TOKEN) => {
      const { log } = fake.dependencies;
      const launch = { rank: wish, join: address, modelPath: 'fake.gguf', token, threads: 1, log };
      const rank = fake.dependencies.launch(launch);
      ranks.push(rank);
      return rank;
    },
  };
}

describe('ranks that join by themselves', () => {
  it('make up a cluster in any order, and later ones are told that it is full', async () => {
    const { join, cluster } = await remoteCluster();
    join(1);
    join(0);
    const report = (await cluster).describe();
    expect(report.ranks.map(({ state }) => state)).toEqual(['ready', 'ready']);
    const third = await join(1).exited;
    expect(third.lastWords).toMatch(/rank 1 \(pid \d+ on .*\) is here already/);
    const stranger = await join(7).exited;
    expect(stranger.lastWords).toMatch(/wants to be rank 7, but this cluster has ranks 0 to 1/);
  });

  it('may come seconds apart: who waits for the others is not lost', async () => {
    const { join, cluster, fake } = await remoteCluster();
    join(0);
    setTimeout(() => join(1), 2500);
    expect((await cluster).describe().epoch).toBe(1);
    expect(fake.logs.filter(({ message }) => message === 'rank lost')).toEqual([]);
  });

  it('with another token are told so and change nothing', async () => {
    const { join, cluster, fake } = await remoteCluster();
    join(0, 'not the token of this cluster');
    const told = () =>
      fake.logs.find(({ message }) => message === 'refused by someone who proved nothing');
    await expect.poll(told).toBeDefined();
    expect(told()?.fields['reason']).toMatch(/same cluster token/);
    join(0);
    join(1);
    expect((await cluster).describe().state).toBe('ready');
  });

  it('may die and be replaced by hand: the same answer goes on', async () => {
    const { join, cluster, fake } = await remoteCluster({ stepUs: () => 2000 });
    join(0);
    join(1);
    const opened = await cluster;
    const undisturbed = (await answerOf(opened, request({ maxTokens: 80 }))).texts[0];
    const { texts } = await answerOf(opened, request({ maxTokens: 80, scope: 'b' }), (count) => {
      if (count !== 20) return;
      fake.kill(0);
      setTimeout(() => join(0), 500);
    });
    expect(texts[0]).toBe(undisturbed);
    expect(opened.describe()).toMatchObject({ epoch: 2, state: 'ready' });
  });
});
