// The pure rules of the shell: links, layout, stall limit, rates.
import { describe, expect, it } from 'vitest';
import {
  type LayoutWishes,
  layOut,
  type RankHost,
} from '../../../../src/coordinator/shell/layout.ts';
import { linkedPairs, linksOf, transportRefusal } from '../../../../src/coordinator/shell/links.ts';
import { StallLimit } from '../../../../src/coordinator/shell/stall-limit.ts';
import { StepTimes } from '../../../../src/coordinator/shell/step-times.ts';
import { Throughput } from '../../../../src/coordinator/shell/throughput.ts';
import { fakePlan } from './fake-cluster.ts';

const plan22 = fakePlan([1, 1], 2);

describe('links', () => {
  it('join a stage, the same TP index of neighbour stages, and the last leader with everyone', () => {
    expect(linkedPairs(fakePlan([1], 1))).toEqual([]);
    expect(linkedPairs(fakePlan([1, 1, 1], 1))).toEqual([
      [0, 1],
      [0, 2],
      [1, 2],
    ]);
    // Ranks 0 1 | 2 3 | 4 5; the leader is 4. 0-3, 1-2, 0-5 and the like never talk.
    expect(linkedPairs(fakePlan([1, 1], 3))).toEqual([
      [0, 1],
      [0, 2],
      [0, 4],
      [1, 3],
      [1, 4],
      [2, 3],
      [2, 4],
      [3, 4],
      [3, 5],
      [4, 5],
    ]);
  });

  const rank = (index: number, hostId: string) => ({
    rank: index,
    hostId,
    dataHost: `10.0.0.${index}`,
    dataPort: 9000 + index,
    framesPort: 9100 + index,
  });

  it('are the same pair seen from both ends, with the peer that each dials', () => {
    const ranks = [rank(0, 'a'), rank(1, 'a'), rank(2, 'b'), rank(3, 'b')];
    for (const self of ranks) {
      for (const link of linksOf(self, ranks, plan22, 'tcp')) {
        const peer = ranks[link.peer];
        expect(link).toMatchObject({ host: peer?.dataHost, port: peer?.dataPort });
        const back = peer ? linksOf(peer, ranks, plan22, 'tcp') : [];
        expect(back.some((other) => other.peer === self.rank)).toBe(true);
      }
    }
  });

  it('try everything on one host and tcp between hosts when they may choose', () => {
    const ranks = [rank(0, 'a'), rank(1, 'a'), rank(2, 'b'), rank(3, 'b')];
    const [first] = ranks;
    const links = first ? linksOf(first, ranks, plan22, 'auto') : [];
    expect(links.map(({ peer, transport }) => `${peer} ${transport}`)).toEqual(['1 auto', '2 tcp']);
  });

  it('use the frames port for the grpc transport', () => {
    const ranks = [rank(0, 'a'), rank(1, 'b')];
    const [first] = ranks;
    const links = first ? linksOf(first, ranks, fakePlan([1, 1], 1), 'grpc') : [];
    expect(links).toEqual([{ peer: 1, transport: 'grpc', host: '10.0.0.1', port: 9101 }]);
  });

  it('refuse shared memory between hosts, naming the pair', () => {
    const ranks = [rank(0, 'a'), rank(1, 'b')];
    const plan = fakePlan([1, 1], 1);
    expect(transportRefusal(ranks, plan, 'shm')).toMatch(/Ranks 0 and 1 share no memory/);
    expect(transportRefusal(ranks, plan, 'tcp')).toBeNull();
    expect(transportRefusal([rank(0, 'a'), rank(1, 'a')], plan, 'shm')).toBeNull();
  });
});

describe('the layout', () => {
  const host = (rank: number, more: Partial<RankHost> = {}): RankHost => ({
    rank,
    hostId: 'a',
    host: 'one',
    cores: 8,
    memoryBytes: 1e9,
    threads: 0,
    ...more,
  });
  const wishes: LayoutWishes = { threads: 0, kvBytes: null, slots: 4, context: 1000 };
  const plan = fakePlan([1, 1], 1);

  it("divides a host's cores by the ranks on it", () => {
    expect(layOut([host(0), host(1)], plan, wishes)).toMatchObject({
      threads: [4, 4],
      shareCores: [false, false],
    });
    const apart = [host(0), host(1, { hostId: 'b', cores: 2 })];
    expect(layOut(apart, plan, wishes).threads).toEqual([8, 2]);
  });

  it('says who shares cores when more threads are wished than there are', () => {
    const layout = layOut([host(0), host(1, { threads: 6 })], plan, { ...wishes, threads: 3 });
    expect(layout.threads).toEqual([3, 6]);
    expect(layout.shareCores).toEqual([true, true]);
  });

  it('gives up to 8 slots a full context where memory allows, all of them when asked', () => {
    const ranks = [host(0), host(1)];
    expect(layOut(ranks, plan, wishes).kvBlocks).toBe(4 * 4);
    expect(layOut(ranks, plan, { ...wishes, slots: 100 }).kvBlocks).toBe(8 * 4);
    expect(layOut(ranks, plan, { ...wishes, slots: 100, kvBytes: 1e9 }).kvBlocks).toBe(100 * 4);
  });

  it('lets the least able rank decide the blocks', () => {
    // 16 bytes a token, 4,096 a block: a quarter of 83,000 less 1,000 of weights is 5 blocks.
    const small = host(1, { hostId: 'b', memoryBytes: 83_000 });
    expect(layOut([host(0), small], plan, wishes).kvBlocks).toBe(5);
    expect(layOut([host(0), host(1)], plan, { ...wishes, kvBytes: 9000 }).kvBlocks).toBe(2);
  });

  it('refuses a host without room for one block, naming rank and host', () => {
    const tiny = host(1, { hostId: 'b', host: 'tiny', memoryBytes: 1000 });
    expect(() => layOut([host(0), tiny], plan, wishes)).toThrow(/Rank 1 on tiny has no room/);
  });
});

describe('figures', () => {
  it('allow eight times the predicted time of the steps under way, never less than 2 s', () => {
    const limit = new StallLimit();
    expect(limit.sent(1, 100)).toBeNull();
    limit.answered(1, 100_000); // 1 ms a row
    expect(limit.sent(2, 100)).toBeNull();
    expect(limit.sent(3, 900)).toBe(8000);
    expect(limit.sent(4, 1)).toBeNull();
    limit.reset();
    expect(limit.sent(1, 1)).toBe(2000);
  });

  it('count speed over busy moments only', () => {
    const rate = new Throughput();
    rate.sample(0, 0);
    rate.sample(50, 500);
    rate.sample(50, 10_000);
    rate.sample(100, 10_500);
    expect(rate.perSecond).toBe(100);
  });

  it('count as overhead what lies between answers and is not engine time', () => {
    const times = new StepTimes();
    times.sent(1, 0);
    times.sent(2, 1);
    times.answered(1, 3000, 5);
    times.answered(2, 4000, 9.5);
    times.answered(7, 1, 20);
    expect(times.latestUs).toEqual([2000, 500]);
  });
});
