// Liveness by heartbeats: who counts as dead or stuck, and who does not.
import { describe, expect, it } from 'vitest';
import {
  FIRST_BEAT_MS,
  HeartbeatWatch,
  SILENT_MS,
  TICK_MS,
} from '../../../../src/coordinator/shell/heartbeat-watch.ts';
import {
  decodeHeartbeat,
  encodeHeartbeat,
  type Heartbeat,
} from '../../../../src/wire/heartbeat-codec.ts';

const keys = [1, 2, 3].map((byte) => new Uint8Array(32).fill(byte));

function keyOf(rank: number): Uint8Array {
  return keys[rank] ?? new Uint8Array(32);
}

/** A world of ranks that beat at every tick, unless a test says otherwise. */
class World {
  readonly watch = new HeartbeatWatch();
  readonly verdicts: string[] = [];
  now = 1000;
  private counter = 0;

  constructor(stages: readonly number[]) {
    for (const [rank, stage] of stages.entries()) {
      this.watch.watch(rank, stage, keyOf(rank), this.now);
    }
  }

  beat(rank: number, state: Partial<Heartbeat> = {}, key = keyOf(rank)): Buffer | null {
    this.counter += 1;
    const beat = {
      kind: 'beat' as const,
      rank,
      counter: this.counter,
      epoch: 1,
      step: 1,
      item: 0,
      busy: false,
    };
    return this.watch.take(encodeHeartbeat({ ...beat, ...state }, key), this.now);
  }

  run(ms: number, each: () => void): void {
    for (const end = this.now + ms; this.now < end; ) {
      this.now += TICK_MS;
      each();
      for (const { kind, rank } of this.watch.tick(this.now)) this.verdicts.push(`${rank} ${kind}`);
    }
  }
}

describe('the heartbeat watch', () => {
  it('says nothing of ranks that beat', () => {
    const world = new World([0, 0]);
    world.run(20_000, () => {
      world.beat(0);
      world.beat(1);
    });
    expect(world.verdicts).toEqual([]);
  });

  it('finds a silent rank after a second, once', () => {
    const world = new World([0, 0]);
    world.beat(1);
    const started = world.now;
    world.run(SILENT_MS, () => world.beat(0));
    expect(world.verdicts).toEqual([]);
    world.run(5000, () => world.beat(0));
    expect(world.verdicts).toEqual(['1 silent']);
    expect(world.now).toBeGreaterThan(started + SILENT_MS);
  });

  it('waits longer for the first beat, and not for ever', () => {
    const world = new World([0, 0]);
    world.run(FIRST_BEAT_MS + SILENT_MS, () => world.beat(0));
    expect(world.verdicts).toEqual([]);
    world.run(TICK_MS, () => world.beat(0));
    expect(world.verdicts).toEqual(['1 silent']);
  });

  it('finds a rank that is busy without progress while another waits ahead of it', () => {
    const world = new World([0, 0]);
    world.run(2500, () => {
      world.beat(0, { busy: true, item: 7 });
      world.beat(1, { busy: true, item: 4 });
    });
    expect(world.verdicts).toEqual(['1 stalled']);
  });

  it('lets a rank be slow as long as the step may take', () => {
    const world = new World([0, 0]);
    world.watch.stallMs = 8000;
    world.run(7000, () => {
      world.beat(0, { busy: true, item: 7 });
      world.beat(1, { busy: true, item: 4 });
    });
    expect(world.verdicts).toEqual([]);
  });

  it('blames nobody when all are at the same item, or when nobody waits', () => {
    const world = new World([0, 1]);
    world.run(10_000, () => {
      world.beat(0, { busy: true, item: 4 });
      world.beat(1, { busy: false, item: 0 });
    });
    expect(world.verdicts).toEqual([]);
  });

  it('compares items within a stage only, steps across stages', () => {
    const world = new World([0, 1]);
    world.run(3000, () => {
      world.beat(0, { busy: true, step: 5, item: 1 });
      world.beat(1, { busy: true, step: 5, item: 9 });
    });
    expect(world.verdicts).toEqual([]);
    world.run(3000, () => {
      world.beat(0, { busy: true, step: 5, item: 1 });
      world.beat(1, { busy: true, step: 6, item: 0 });
    });
    expect(world.verdicts).toEqual(['0 stalled']);
  });

  it('does not count time in which it did not run itself', () => {
    const world = new World([0, 0]);
    world.run(500, () => {
      world.beat(0);
      world.beat(1);
    });
    world.now += 60_000;
    world.run(900, () => world.beat(0));
    expect(world.verdicts).toEqual([]);
    world.run(500, () => world.beat(0));
    expect(world.verdicts).toEqual(['1 silent']);
  });

  it('answers beats under the same key, and takes none twice, forged or unknown', () => {
    const world = new World([0]);
    const answer = world.beat(0);
    expect(answer && decodeHeartbeat(answer, keyOf(0))).toMatchObject({ kind: 'answer', rank: 0 });
    expect(world.beat(0, { counter: 1 })).toBeNull();
    expect(world.beat(0, {}, keyOf(1))).toBeNull();
    expect(world.beat(2)).toBeNull();
    expect(world.watch.take(new Uint8Array(10), world.now)).toBeNull();
    expect(world.beat(0, { kind: 'answer' })).toBeNull();
  });

  it('takes beats of the last connection and of the one before', () => {
    const world = new World([0]);
    world.watch.rekey(0, keyOf(1));
    expect(world.beat(0, {}, keyOf(0))).not.toBeNull();
    expect(world.beat(0, {}, keyOf(1))).not.toBeNull();
    world.watch.rekey(0, keyOf(2));
    expect(world.beat(0, {}, keyOf(0))).toBeNull();
  });
});
