import { describe, expect, test } from 'vitest';
import type { EngineFacts } from '../../../src/engine/engine.ts';
import type { EpochOpening, RankAssignment, RankEffect } from '../../../src/rank/core/events.ts';
import { RankCore } from '../../../src/rank/core/rank-core.ts';

const FACTS: EngineFacts = {
  fingerprint: 'f',
  planHash: 'p',
  numericsId: 'n',
  isa: 'scalar',
  weightBytes: 1,
  kvBytes: 1,
  residentBytes: 1,
  context: 10,
  vocab: 10,
  loadMs: 1,
  dataPort: 1,
};

const ASSIGNMENT: RankAssignment = {
  rank: 1,
  topology: { split: [1, 1], pp: 1, layers: [], kvType: 'f16', exact: false, context: 0 },
  planHash: 'p',
  kvBlocks: 8,
  slotsMax: 4,
  stepRowsMax: 64,
  threads: 1,
  shareCores: false,
};

const A = 'a'.repeat(32);
const B = 'b'.repeat(32);
const BYTES = new Uint8Array(4);

function opening(epoch: number, incarnation = A, firstStep = 1): EpochOpening {
  return { epoch, incarnation, links: [], firstStep, openTimeoutMs: 1_000 };
}

function loaded(epochMax = 0): RankCore {
  const core = new RankCore({ epoch: epochMax, incarnation: B });
  core.step({ type: 'attached' });
  core.step({ type: 'assign', assignment: ASSIGNMENT });
  core.step({ type: 'engine-loaded', facts: FACTS });
  return core;
}

function openedCore(epoch = 1, firstStep = 1): RankCore {
  const core = loaded();
  core.step({ type: 'open', opening: opening(epoch, A, firstStep) });
  core.step({ type: 'engine-opened', epoch, links: [] });
  return core;
}

function kinds(effects: readonly RankEffect[]): string[] {
  return effects.map(({ type }) => type).filter((type) => type !== 'log');
}

function step(core: RankCore, epoch: number, number: number): RankEffect[] {
  return core.step({ type: 'step', epoch, step: number, record: BYTES });
}

describe('joining', () => {
  test('says hello with the highest epoch it ever accepted, loads its share, says so', () => {
    const core = new RankCore({ epoch: 7, incarnation: A });
    expect(core.step({ type: 'attached' })).toEqual([{ type: 'send-hello', epochMax: 7 }]);
    expect(kinds(core.step({ type: 'assign', assignment: ASSIGNMENT }))).toEqual(['load-engine']);
    expect(kinds(core.step({ type: 'engine-loaded', facts: FACTS }))).toEqual(['send-loaded']);
  });

  test('keeps its share over a new stream and answers at once', () => {
    const core = openedCore();
    expect(kinds(core.step({ type: 'detached', reason: 'broken' }))).toEqual(['fence-engine']);
    expect(kinds(core.step({ type: 'attached' }))).toEqual(['send-hello']);
    expect(kinds(core.step({ type: 'assign', assignment: ASSIGNMENT }))).toEqual(['send-loaded']);
  });

  test('loads anew when another share is assigned', () => {
    const core = openedCore();
    const other = { ...ASSIGNMENT, rank: 0 };
    const effects = core.step({ type: 'assign', assignment: other });
    expect(kinds(effects)).toEqual(['fence-engine', 'load-engine']);
  });

  test('tells why loading failed and can be assigned again', () => {
    const core = new RankCore({ epoch: 0, incarnation: '' });
    core.step({ type: 'attached' });
    core.step({ type: 'assign', assignment: ASSIGNMENT });
    const failed = {
      type: 'engine-load-failed',
      code: 'GGUF_INVALID',
      message: 'bad file',
    } as const;
    expect(core.step(failed)).toMatchObject([{ type: 'send-failed', code: 'GGUF_INVALID' }]);
    expect(kinds(core.step({ type: 'assign', assignment: ASSIGNMENT }))).toEqual(['load-engine']);
  });
});

describe('epochs', () => {
  test('an epoch is durable before its links are opened', () => {
    const effects = loaded().step({ type: 'open', opening: opening(3) });
    expect(kinds(effects)).toEqual(['fence-engine', 'persist-epoch', 'open-engine']);
    expect(effects[1]).toMatchObject({ epoch: 3, incarnation: A });
    expect(effects[2]).toMatchObject({ spec: { epoch: 3, rank: 1 } });
  });

  test('refuses a lower epoch, an equal one of another coordinator, and one used before', () => {
    const core = loaded(5);
    for (const low of [opening(4), opening(5, A), opening(5, B)]) {
      const effects = core.step({ type: 'open', opening: low });
      expect(effects[0]).toMatchObject({ type: 'send-failed', code: 'EPOCH_FENCED' });
      expect(kinds(effects)).toEqual(['send-failed']);
    }
    expect(kinds(core.step({ type: 'open', opening: opening(6) }))).toContain('open-engine');
  });

  test('refuses to open before it has loaded', () => {
    const core = new RankCore({ epoch: 0, incarnation: '' });
    core.step({ type: 'attached' });
    const effects = core.step({ type: 'open', opening: opening(1) });
    expect(effects).toMatchObject([{ type: 'send-failed', code: 'HANDSHAKE_REFUSED' }]);
  });

  test('an opening that was overtaken says nothing when it ends', () => {
    const core = loaded();
    core.step({ type: 'open', opening: opening(1) });
    core.step({ type: 'open', opening: opening(2) });
    expect(core.step({ type: 'engine-opened', epoch: 1, links: [] })).toEqual([]);
    const late = {
      type: 'engine-open-failed',
      epoch: 1,
      code: 'EPOCH_FENCED',
      message: '',
    } as const;
    expect(core.step(late)).toEqual([]);
    expect(kinds(core.step({ type: 'engine-opened', epoch: 2, links: [] }))).toEqual([
      'send-ready',
    ]);
  });

  test('a fence of the present epoch ends it, one of an earlier epoch does not', () => {
    const core = openedCore(4);
    expect(core.step({ type: 'fence', epoch: 3, reason: 'late' })).toEqual([]);
    expect(kinds(step(core, 4, 1))).toEqual(['submit-step']);
    const effects = core.step({ type: 'fence', epoch: 4, reason: 'rank 0 died' });
    expect(kinds(effects)).toEqual(['fence-engine', 'send-fenced']);
    expect(step(core, 4, 2)).toEqual([]);
  });

  test('fences itself when its lease runs out', () => {
    const core = openedCore(4);
    const effects = core.step({ type: 'lease-expired' });
    expect(kinds(effects)).toEqual(['fence-engine', 'send-failed']);
    expect(core.step({ type: 'lease-expired' })).toEqual([]);
  });
});

describe('steps', () => {
  test('go to the engine in sequence, repeats are dropped', () => {
    const core = openedCore(1, 5);
    expect(kinds(step(core, 1, 5))).toEqual(['submit-step']);
    expect(step(core, 1, 5)).toEqual([]);
    expect(kinds(step(core, 1, 6))).toEqual(['submit-step']);
  });

  test('a gap ends the epoch with STEP_INVALID, once', () => {
    const core = openedCore();
    const effects = step(core, 1, 2);
    expect(kinds(effects)).toEqual(['fence-engine', 'send-failed']);
    expect(effects.at(-1)).toMatchObject({ code: 'STEP_INVALID', step: 2 });
    expect(step(core, 1, 3)).toEqual([]);
  });

  test('steps of an old epoch are dropped, of one that is not ready refused', () => {
    const core = openedCore(4);
    expect(step(core, 3, 1)).toEqual([]);
    expect(step(core, 9, 1)).toMatchObject([{ type: 'send-failed', code: 'STEP_INVALID' }]);
  });

  test('results of the present epoch pass in order', () => {
    const core = openedCore();
    step(core, 1, 1);
    const event = { kind: 'result', epoch: 1, step: 1, bytes: BYTES } as const;
    expect(kinds(core.step({ type: 'engine-event', event }))).toEqual(['send-result']);
    const stale = { ...event, epoch: 0 };
    expect(core.step({ type: 'engine-event', event: stale })).toEqual([]);
  });

  test('a result that was not due is a failure of the engine', () => {
    const core = openedCore();
    step(core, 1, 1);
    const event = { kind: 'result', epoch: 1, step: 2, bytes: BYTES } as const;
    expect(core.step({ type: 'engine-event', event }).at(-1)).toMatchObject({ code: 'INTERNAL' });
  });

  test('the first failure of the engine is told, what follows is not', () => {
    const core = openedCore();
    step(core, 1, 1);
    const event = {
      kind: 'failed',
      epoch: 1,
      step: 1,
      code: 'LINK_TIMEOUT',
      message: 'm',
    } as const;
    const effects = core.step({ type: 'engine-event', event });
    expect(effects.at(-1)).toMatchObject({ type: 'send-failed', code: 'LINK_TIMEOUT', step: 1 });
    expect(core.step({ type: 'engine-event', event })).toEqual([]);
    const result = { kind: 'result', epoch: 1, step: 1, bytes: BYTES } as const;
    expect(core.step({ type: 'engine-event', event: result })).toEqual([]);
    expect(kinds(core.step({ type: 'open', opening: opening(2) }))).toContain('open-engine');
  });
});

test('shutdown leaves the epoch before it stops', () => {
  const effects = openedCore().step({ type: 'shutdown', reason: 'SIGTERM' });
  expect(kinds(effects)).toEqual(['fence-engine', 'stop']);
});
