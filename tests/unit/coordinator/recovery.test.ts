import { describe, expect, test } from 'vitest';
import { Recovery } from '../../../src/coordinator/core/recovery.ts';
import type { RequestState } from '../../../src/coordinator/core/request.ts';
import { generate } from '../../sim/requests.ts';

function request(order: number): RequestState {
  const id = `r${order}`;
  return {
    id,
    request: generate(id, [1], 1),
    order,
    arrivedAt: 0,
    sequences: [],
    unfinished: 1,
    startedAt: null,
    strikes: 0,
    isOver: false,
  };
}

describe('strikes', () => {
  test('two strikes make a suspect, the oldest runs alone first', () => {
    const recovery = new Recovery();
    const [a, b] = [request(0), request(1)];
    recovery.noteEpochLost(new Set([a, b]), 0);
    expect(recovery.soloRequest).toBeNull();
    recovery.noteEpochLost(new Set([b, a]), 0);
    expect(recovery.soloRequest).toBe(a);
  });

  test('one that gets on alone is cleared but keeps a strike', () => {
    const recovery = new Recovery();
    const a = request(0);
    recovery.noteEpochLost(new Set([a]), 0);
    recovery.noteEpochLost(new Set([a]), 0);
    expect(recovery.soloRequest).toBe(a);
    for (let count = 0; count < 32; count += 1) recovery.noteAccepted(a);
    expect(recovery.soloRequest).toBeNull();
    recovery.noteEpochLost(new Set([a]), 0);
    expect(recovery.soloRequest).toBe(a);
  });

  test('one that dies alone is the culprit, and the others start anew', () => {
    const recovery = new Recovery();
    const [a, b] = [request(0), request(1)];
    recovery.noteEpochLost(new Set([a, b]), 0);
    recovery.noteEpochLost(new Set([a, b]), 0);
    expect(recovery.soloRequest).toBe(a);
    expect(recovery.noteEpochLost(new Set([a]), 0)).toBe(a);
    expect(recovery.soloRequest).toBeNull();
    expect(b.strikes).toBe(0);
  });

  test('nobody is blamed while rows of another were under way too', () => {
    const recovery = new Recovery();
    const [a, b] = [request(0), request(1)];
    recovery.noteEpochLost(new Set([a]), 0);
    recovery.noteEpochLost(new Set([a]), 0);
    expect(recovery.soloRequest).toBe(a);
    b.isOver = true;
    expect(recovery.noteEpochLost(new Set([a, b]), 0)).toBeNull();
  });
});

describe('giving up', () => {
  test('after three epochs without one accepted result', () => {
    const recovery = new Recovery();
    const [a, b] = [request(0), request(1)];
    for (const epoch of [1, 2, 3]) {
      expect(recovery.shouldGiveUp(0)).toBe(false);
      recovery.noteEpochReady();
      recovery.noteEpochLost(new Set([a, b]), epoch);
    }
    expect(recovery.shouldGiveUp(0)).toBe(true);
  });

  test('an accepted result starts the count anew', () => {
    const recovery = new Recovery();
    const a = request(0);
    for (let epoch = 1; epoch < 9; epoch += 1) {
      recovery.noteEpochReady();
      recovery.noteAccepted(a);
      recovery.noteEpochLost(new Set(), epoch);
      expect(recovery.shouldGiveUp(epoch)).toBe(false);
    }
  });

  test('after 60 s without a finished step', () => {
    const recovery = new Recovery();
    recovery.noteEpochLost(new Set(), 1_000);
    expect(recovery.deadlineAt).toBe(61_000);
    expect(recovery.shouldGiveUp(60_999)).toBe(false);
    expect(recovery.shouldGiveUp(61_000)).toBe(true);
    recovery.noteStepDone();
    expect(recovery.shouldGiveUp(61_000)).toBe(false);
  });
});
