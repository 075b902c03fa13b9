// Whatever the world says, in whatever order, the core keeps its accounts: it never throws, every request ends
// once, and nothing is left when all are over.
import { expect, test } from 'vitest';
import { createPrng, type Prng } from '../../src/base/prng.ts';
import type { OutputResult, StepRecord } from '../../src/base/step-record.ts';
import { CoordinatorCore } from '../../src/coordinator/core/core.ts';
import type { CoreEvent, CoreLimits } from '../../src/coordinator/core/events.ts';
import { Outcomes } from '../sim/outcomes.ts';
import { generate, prompt, score } from '../sim/requests.ts';

const SEEDS = Number(process.env['COX_PROPERTY_SEEDS'] ?? 150);

class World {
  readonly core = new CoordinatorCore({ queueMax: 6, blockTokens: 4 });
  readonly outcomes = new Outcomes();
  now = 0;
  private readonly prng: Prng;
  private readonly limits: CoreLimits;
  private readonly sent: StepRecord[] = [];
  private epoch = 0;
  private arrivals = 0;

  constructor(prng: Prng) {
    this.prng = prng;
    this.limits = {
      slots: 1 + prng.below(4),
      kvBlocks: 6 + prng.below(20),
      context: 24 + prng.below(40),
      stages: 1 + prng.below(3),
      rankCount: 1 + prng.below(3),
      stepRowsMax: 2 + prng.below(20),
      queueMax: 2 + prng.below(5),
      liveReuse: prng.chance(0.8),
    };
  }

  take(event: CoreEvent): void {
    if (event.type === 'request-arrived') this.outcomes.expect(event.request);
    for (const effect of this.core.step(event, this.now)) {
      this.outcomes.take(effect);
      if (effect.type === 'send-step') this.sent.push(effect.record);
    }
    this.now += this.prng.below(400);
    const { status } = this.core;
    expect(status.waiting).toBeLessThanOrEqual(
      Math.max(6, this.limits.queueMax) + this.limits.slots,
    );
    expect(status.stepsInFlight).toBeLessThanOrEqual(this.limits.stages + 1);
    expect(status.slots.used).toBeLessThanOrEqual(this.limits.slots);
  }

  draw(): CoreEvent {
    const { prng } = this;
    const kind = prng.below(40);
    if (kind < 6) return this.arrival();
    if (kind < 8) return { type: 'request-cancelled', id: this.anyId() };
    if (kind < 10) return this.stopped();
    if (kind < 11) return { type: 'timer' };
    if (kind < 12) return this.failure();
    if (kind < 14) return this.opened();
    return this.result();
  }

  /** Everybody leaves, every step is answered. */
  end(): void {
    for (const id of this.outcomes.byId.keys()) this.take({ type: 'request-cancelled', id });
    for (let epoch = 0; epoch < 2; epoch += 1) this.take(this.opened(1));
  }

  private arrival(): CoreEvent {
    const { prng } = this;
    this.arrivals += 1;
    const id = `r${this.arrivals}`;
    const tokens = prompt(prng.below(30), prng.below(4));
    if (prng.chance(0.2)) {
      const wants = new Map([[prng.below(30), { want: 'score', target: null }]] as const);
      const chunk = prng.chance(0.5) ? prng.below(8) : null;
      return { type: 'request-arrived', request: score(id, tokens, wants, chunk) };
    }
    const more = { choices: 1 + prng.below(3), scope: prng.chance(0.2) ? 'x' : '' };
    return { type: 'request-arrived', request: generate(id, tokens, prng.below(20), more) };
  }

  private stopped(): CoreEvent {
    const choice = this.prng.below(4);
    return { type: 'choice-stopped', id: this.anyId(), choice };
  }

  private failure(): CoreEvent {
    const epoch = this.prng.chance(0.8) ? this.epoch : this.prng.below(this.epoch + 2);
    const rank = this.prng.below(3);
    return { type: 'rank-failed', epoch, rank, code: 'RANK_LOST', message: 'gone' };
  }

  private opened(ahead = this.prng.below(3)): CoreEvent {
    this.epoch += ahead;
    const { limits } = this;
    return { type: 'epoch-ready', epoch: this.epoch, firstStep: 1 + this.prng.below(3), limits };
  }

  /** Mostly an answer that fits a step of this epoch; sometimes one that fits nothing. */
  private result(): CoreEvent {
    const { prng } = this;
    const recent = this.sent.slice(-3);
    const record = recent[prng.below(recent.length)];
    const step = record?.step ?? prng.below(9);
    const epoch = prng.chance(0.95) ? (record?.epoch ?? 1) : prng.below(this.epoch + 1);
    const isLeader = prng.chance(0.6);
    const wanted = isLeader ? (record?.outputs ?? []) : [];
    const outputs = wanted.map(({ want }): OutputResult => {
      if (prng.chance(0.01)) return { want, skipped: true };
      if (want !== 'token') {
        return { want: 'logits', skipped: false, logits: new Float32Array(2) };
      }
      const ends = prng.chance(0.1);
      const finish = ends ? (prng.chance(0.5) ? 'stop' : 'length') : 'no';
      return { want, skipped: false, id: prng.below(60), finish, logprob: 0, top: [] };
    });
    const rank = prng.below(this.limits.rankCount + (prng.chance(0.02) ? 1 : 0));
    const result = { epoch, step, outputs, computeUs: prng.below(90_000), waitUs: 0 };
    return { type: 'step-result', rank, result };
  }

  private anyId(): string {
    return `r${1 + this.prng.below(this.arrivals + 1)}`;
  }
}

test('no order of events breaks an invariant', { timeout: 600_000 }, () => {
  for (let seed = 1; seed <= SEEDS; seed += 1) {
    const world = new World(createPrng(seed));
    try {
      for (let count = 0; count < 300; count += 1) world.take(world.draw());
      world.end();
      for (const [id, { end }] of world.outcomes.byId) expect([id, end]).not.toEqual([id, null]);
      expect(world.core.status).toMatchObject({ requests: 0, waiting: 0, slots: { used: 0 } });
    } catch (cause) {
      throw new Error(`seed ${seed}: ${String(cause)}`, { cause });
    }
  }
});

test('a drained core finishes what it has and takes nothing new', () => {
  const world = new World(createPrng(5));
  world.take({ type: 'request-arrived', request: generate('a', [1, 2, 3], 2) });
  world.take({ type: 'drain' });
  world.take({ type: 'request-arrived', request: generate('b', [1, 2, 3], 2) });
  expect(world.outcomes.get('b')).toMatchObject({ code: 'SHUTTING_DOWN', retryAfterSeconds: 5 });
  expect(world.outcomes.get('a').end).toBeNull();
});
