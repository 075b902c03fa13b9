import { describe, expect, test } from 'vitest';
import type { Run, SlotOp, StepRecord, StepResult } from '../../../src/base/step-record.ts';
import type { EngineEvent } from '../../../src/engine/engine.ts';
import { FakeEngine, type FakeWorld } from '../../../src/engine/fake-engine.ts';
import { FakePlane } from '../../../src/engine/fake-plane.ts';
import {
  decodeStepRecord,
  decodeStepResult,
  encodeStepRecord,
  encodeStepResult,
} from '../../../src/wire/step-codec.ts';
import { FakeClock } from '../../sim/fake-clock.ts';
import { naiveGenerate, naiveLogits } from '../../sim/naive.ts';
import { prompt, sampler } from '../../sim/requests.ts';

const SHAPE = { layers: 2, heads: 3, vocab: 61 };
const BLOCK = 4;

class Ranks {
  readonly clock = new FakeClock();
  readonly engines: FakeEngine[] = [];
  readonly events: (EngineEvent & { readonly rank: number })[] = [];
  private readonly split: readonly number[];
  private readonly pp: number;

  constructor(split: readonly number[], pp: number) {
    this.split = split;
    this.pp = pp;
  }

  static async open(split: readonly number[] = [1], pp = 1): Promise<Ranks> {
    const ranks = new Ranks(split, pp);
    await ranks.start();
    return ranks;
  }

  private async start(): Promise<void> {
    const { split, pp } = this;
    const count = split.length * pp;
    const world: FakeWorld = {
      shape: SHAPE,
      plane: new FakePlane(count, pp),
      codec: { decodeRecord: decodeStepRecord, encodeResult: encodeStepResult },
      after: (ms, run) => this.clock.after(ms, run),
      stepUs: (rows) => 100 * rows,
      blockTokens: BLOCK,
    };
    const topology = { split, pp, layers: [], kvType: 'f32', exact: true, context: 64 } as const;
    for (let rank = 0; rank < count; rank += 1) {
      const engine = new FakeEngine(world);
      await engine.load({
        path: '',
        topology,
        rank,
        threads: 1,
        kvBlocks: 16,
        slotsMax: 4,
        stepRowsMax: 32,
        shareCores: false,
        dataHost: '',
      });
      engine.onEvent((event) => this.events.push({ ...event, rank }));
      this.engines.push(engine);
    }
    await Promise.all(
      this.engines.map((engine, rank) =>
        engine.openEpoch({
          epoch: 1,
          incarnation: '0'.repeat(32),
          rank,
          dataKey: new Uint8Array(32),
          links: [],
          firstStep: 1,
          openTimeoutMs: 1_000,
        }),
      ),
    );
  }

  send(record: Partial<StepRecord> & { readonly step: number }): void {
    const bytes = encodeStepRecord({ epoch: 1, slotOps: [], runs: [], outputs: [], ...record });
    for (const engine of this.engines) engine.submit(bytes);
  }

  run(): void {
    while (this.clock.runNext());
  }

  results(rank: number): StepResult[] {
    return this.events.flatMap((event) =>
      event.kind === 'result' && event.rank === rank ? [decodeStepResult(event.bytes)] : [],
    );
  }

  failures(): string[] {
    return this.events.flatMap((event) =>
      event.kind === 'failed' ? [`${event.rank} ${event.code}: ${event.message}`] : [],
    );
  }
}

function create(slot: number, blocks: number[], tokens: number[] = []): SlotOp {
  return { kind: 'create', slot, blocks, tokens };
}

function run(slot: number, pos0: number, tokens: Run['tokens']): Run {
  return { slot, pos0, tokens };
}

const IDS = prompt(10, 1);
const LAST = naiveLogits(SHAPE, IDS)[9] ?? new Float32Array();

describe('the answer', () => {
  test.each([
    [[1], 1, 0],
    [[1, 1], 1, 0],
    [[2, 1], 2, 2],
    [[1, 1, 1], 2, 3],
  ])(
    'does not depend on the split %j over %i stages; the leader is rank %i',
    async (split, pp, leader) => {
      const ranks = await Ranks.open(split, pp);
      ranks.send({
        step: 1,
        slotOps: [create(0, [3, 1, 2])],
        runs: [run(0, 0, IDS.slice(0, 7))],
      });
      ranks.send({
        step: 2,
        runs: [run(0, 7, IDS.slice(7))],
        outputs: [{ row: 2, want: 'logits' }],
      });
      ranks.run();
      expect(ranks.failures()).toEqual([]);
      for (const [rank] of ranks.engines.entries()) {
        const outputs = ranks.results(rank)[1]?.outputs;
        expect(outputs).toEqual(
          rank === leader ? [{ want: 'logits', skipped: false, logits: LAST }] : [],
        );
      }
    },
  );

  test('changes with a wrong block, a wrong order and a lost copy', async () => {
    const answerWith = async (slotOps: SlotOp[], runs: Run[]) => {
      const ranks = await Ranks.open();
      ranks.send({ step: 1, slotOps: [create(0, [0, 1, 2])], runs: [run(0, 0, IDS)] });
      ranks.send({ step: 2, slotOps, runs, outputs: [{ row: 0, want: 'logits' }] });
      ranks.run();
      expect(ranks.failures()).toEqual([]);
      const output = ranks.results(0)[1]?.outputs[0];
      return output !== undefined && 'logits' in output ? output.logits : null;
    };
    const last = [run(1, 9, IDS.slice(9))];
    const copy = { kind: 'copy', from: 2, to: 3, rows: 1 } as const;
    const nine = IDS.slice(0, 9);
    expect(await answerWith([copy, create(1, [0, 1, 3], nine)], last)).toEqual(LAST);
    expect(await answerWith([create(1, [0, 1, 3], nine)], last)).not.toEqual(LAST);
    expect(await answerWith([copy, create(1, [1, 0, 3], nine)], last)).not.toEqual(LAST);
    expect(await answerWith([copy, create(1, [0, 0, 3], nine)], last)).not.toEqual(LAST);
  });
});

describe('tokens of earlier outputs', () => {
  test('run through many steps without the coordinator, and end with the stop id', async () => {
    const ranks = await Ranks.open([1, 1], 2);
    const free = naiveGenerate(SHAPE, IDS, sampler(10, 12)).tokens;
    const stop = free[3] ?? 0;
    const at = free.indexOf(stop);
    const params = sampler(10, 12, { stopIds: [stop] });
    const outputs = [{ row: 0, want: 'token' }] as const;
    ranks.send({
      step: 1,
      slotOps: [create(0, [0, 1, 2, 3, 4, 5]), { kind: 'sampler', slot: 0, params }],
      runs: [run(0, 0, IDS)],
      outputs: [{ row: 9, want: 'token' }],
    });
    for (let step = 2; step <= 8; step += 1) {
      ranks.send({ step, runs: [run(0, 8 + step, { step: step - 1, output: 0 })], outputs });
    }
    ranks.run();
    expect(ranks.failures()).toEqual([]);
    const said = ranks.results(2).map(({ outputs: [output] }) => output);
    expect(said.slice(0, at + 1)).toMatchObject(
      free.slice(0, at + 1).map((id, index) => ({ id, finish: index === at ? 'stop' : 'no' })),
    );
    expect(said.slice(at + 1)).toEqual(
      said.slice(at + 1).map(() => ({ want: 'token', skipped: true })),
    );
  });
});

describe('records that the native engine refuses', () => {
  const start = { step: 1, slotOps: [create(0, [0])], runs: [run(0, 0, [1, 2])] };
  test.each<[string, Partial<StepRecord>]>([
    ['create: slot 0 already exists', { slotOps: [create(0, [1])] }],
    ['create: slot 9 is beyond', { slotOps: [create(9, [1])] }],
    ['do not hold 5 tokens', { slotOps: [create(1, [1], [1, 2, 3, 4, 5])] }],
    ['block 99 is beyond', { slotOps: [create(1, [99])] }],
    ['token id 61 is not in', { slotOps: [create(1, [1], [61])] }],
    ['drop: slot 3 does not exist', { slotOps: [{ kind: 'drop', slot: 3 }] }],
    ['append: slot 3 does not', { slotOps: [{ kind: 'append', slot: 3, blocks: [1] }] }],
    [
      'slot 0 has 2 tokens, not 3',
      { slotOps: [{ kind: 'truncate', slot: 0, length: 3, blockCount: 1 }] },
    ],
    [
      '0 blocks for 1 tokens',
      { slotOps: [{ kind: 'truncate', slot: 0, length: 1, blockCount: 0 }] },
    ],
    ['copy: from block 1 to 1', { slotOps: [{ kind: 'copy', from: 1, to: 1, rows: 1 }] }],
    ['copy: 5 rows', { slotOps: [{ kind: 'copy', from: 0, to: 1, rows: 5 }] }],
    ['position 3, but slot 0 has 2', { runs: [run(0, 3, [1])] }],
    ['no block for position 4', { runs: [run(0, 2, [1, 2, 3])] }],
    ['is shared and must be copied', { slotOps: [create(1, [0], [1, 2])], runs: [run(0, 2, [1])] }],
    ['does not come before', { runs: [run(0, 2, { step: 2, output: 0 })] }],
    ['its source is not known', { runs: [run(0, 2, { step: 1, output: 4 })] }],
    ['output: row 1 of 1', { runs: [run(0, 2, [1])], outputs: [{ row: 1, want: 'logits' }] }],
    ['has no sampler', { runs: [run(0, 2, [1])], outputs: [{ row: 0, want: 'token' }] }],
  ])('%s', async (message, record) => {
    const ranks = await Ranks.open();
    ranks.send(start);
    ranks.send({ step: 2, ...record });
    ranks.run();
    expect(ranks.failures()).toEqual([expect.stringContaining(message)]);
    expect(ranks.failures()[0]).toContain('STEP_INVALID');
  });

  test('a step out of sequence', async () => {
    const ranks = await Ranks.open();
    ranks.send(start);
    ranks.send({ step: 3 });
    expect(ranks.failures()).toEqual([expect.stringContaining('where step 2 of epoch 1 was due')]);
  });
});

describe('peers', () => {
  const start = { step: 1, slotOps: [create(0, [0])], runs: [run(0, 0, [1, 2])] };

  test('that died end the wait with LINK_CLOSED, which names them', async () => {
    const ranks = await Ranks.open([1, 1]);
    ranks.engines[1]?.kill();
    ranks.send(start);
    ranks.run();
    expect(ranks.failures()).toEqual([expect.stringMatching(/^0 LINK_CLOSED.*rank 1 left/)]);
  });

  test('that stand still end it with LINK_TIMEOUT', async () => {
    const ranks = await Ranks.open([1, 1]);
    ranks.engines[1]?.setStalled(true);
    ranks.send(start);
    ranks.run();
    expect(ranks.failures()).toEqual([expect.stringMatching(/^0 LINK_TIMEOUT/)]);
  });

  test('that were told another step are found out before anything is answered', async () => {
    const ranks = await Ranks.open([1, 1]);
    const record = { epoch: 1, step: 1, slotOps: [create(0, [0])], outputs: [] };
    ranks.engines[0]?.submit(encodeStepRecord({ ...record, runs: [run(0, 0, [1])] }));
    ranks.engines[1]?.submit(encodeStepRecord({ ...record, runs: [run(0, 0, [2])] }));
    ranks.run();
    expect(ranks.failures()[0]).toMatch(/^1 RANK_DIVERGED/);
    expect(ranks.results(1)).toEqual([]);
  });

  test('that do not come into the epoch end its opening', async () => {
    const ranks = await Ranks.open([1, 1]);
    const spec = { epoch: 2, incarnation: '1', rank: 0, dataKey: new Uint8Array(32), links: [] };
    const opened = ranks.engines[0]?.openEpoch({ ...spec, firstStep: 1, openTimeoutMs: 50 });
    ranks.run();
    await expect(opened).rejects.toMatchObject({ code: 'LINK_TIMEOUT' });
  });
});
