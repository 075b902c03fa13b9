// One simulated rank process: the real RankCore over a FakeEngine. The epoch it persisted survives its
// death; everything else does not. It runs effects in order, as the shell does, and can be killed, stalled
// and restarted.
import { assert } from '../../src/base/assert.ts';
import { toCoxswainError } from '../../src/base/errors.ts';
import type { EngineOptions } from '../../src/engine/engine.ts';
import { FakeEngine, type FakeWorld } from '../../src/engine/fake-engine.ts';
import type { RankAssignment, RankEffect, RankEvent } from '../../src/rank/core/events.ts';
import { type PersistedEpoch, RankCore } from '../../src/rank/core/rank-core.ts';
import type { SimStream, ToRank } from './sim-stream.ts';

export interface RankWorld {
  readonly engine: FakeWorld;
  /** A promise is under way: the simulation lets it settle between events. */
  noteAsync(promise: Promise<void>): void;
  /** The stream of a living process closed: it will dial again. */
  onDetached(rank: SimRank): void;
}

export class SimRank {
  readonly index: number;
  alive: boolean = true;
  /** Of the disk, over restarts. */
  persisted: PersistedEpoch;
  private readonly world: RankWorld;
  private readonly core: RankCore;
  private engine: FakeEngine;
  private stream: SimStream | null = null;
  private stalled: boolean = false;
  private inbox: RankEvent[] = [];
  private queue: RankEffect[] = [];
  private waiting: boolean = false;

  constructor(index: number, world: RankWorld, persisted: PersistedEpoch) {
    this.index = index;
    this.world = world;
    this.persisted = persisted;
    this.core = new RankCore(persisted);
    this.engine = new FakeEngine(world.engine);
  }

  get isStalled(): boolean {
    return this.stalled;
  }

  attach(stream: SimStream): void {
    this.stream?.close();
    this.stream = stream;
    stream.onRank = (message) => this.onMessage(stream, message);
    stream.onRankClosed = () => {
      if (this.stream !== stream || !this.alive) return;
      this.stream = null;
      this.event({ type: 'detached', reason: 'stream closed' });
      this.world.onDetached(this);
    };
    this.event({ type: 'attached' });
  }

  /** SIGKILL. */
  kill(): void {
    this.alive = false;
    this.engine.kill();
    this.stream?.close();
    this.stream = null;
  }

  /** SIGSTOP and SIGCONT. A process that was stopped long finds its lease expired. */
  setStalled(stalled: boolean, leaseExpired: boolean): void {
    if (!this.alive || stalled === this.stalled) return;
    this.stalled = stalled;
    this.engine.setStalled(stalled);
    if (stalled) return;
    if (leaseExpired) this.inbox.unshift({ type: 'lease-expired' });
    const { inbox } = this;
    this.inbox = [];
    for (const event of inbox) this.event(event);
  }

  /** The network drops the control stream. */
  breakStream(): void {
    this.stream?.close();
  }

  /** Nothing was heard from the coordinator for too long: fenced, and off to find another. */
  loseLease(): void {
    this.event({ type: 'lease-expired' });
    this.stream?.close();
  }

  private onMessage(stream: SimStream, message: ToRank): void {
    if (this.stream === stream) this.event(message);
  }

  private event(event: RankEvent): void {
    if (!this.alive) return;
    if (this.stalled) {
      this.inbox.push(event);
      return;
    }
    this.queue.push(...this.core.step(event));
    this.drain();
  }

  private drain(): void {
    while (!this.waiting && this.alive) {
      const effect = this.queue.shift();
      if (effect === undefined) return;
      this.execute(effect);
    }
  }

  private execute(effect: RankEffect): void {
    switch (effect.type) {
      case 'send-hello':
        this.stream?.sendToCoordinator({ type: 'hello', epochMax: effect.epochMax });
        break;
      case 'load-engine':
        this.load(effect.assignment);
        break;
      case 'send-loaded':
        this.stream?.sendToCoordinator({ type: 'loaded', facts: effect.facts });
        break;
      case 'persist-epoch':
        assert(effect.epoch > this.persisted.epoch, 'an epoch is obeyed once');
        this.persisted = { epoch: effect.epoch, incarnation: effect.incarnation };
        break;
      case 'fence-engine':
        this.await(this.engine.fence());
        break;
      case 'open-engine':
        this.open(effect.spec);
        break;
      case 'send-ready':
        this.stream?.sendToCoordinator({ type: 'ready', epoch: effect.epoch, links: effect.links });
        break;
      case 'submit-step':
        this.engine.submit(effect.record);
        break;
      case 'send-result':
        this.stream?.sendToCoordinator({ ...effect, type: 'result' });
        break;
      case 'send-failed':
        this.stream?.sendToCoordinator({ ...effect, type: 'failed' });
        break;
      case 'send-fenced':
        this.stream?.sendToCoordinator({ type: 'fenced', epoch: effect.epoch });
        break;
      case 'stop':
        this.kill();
        break;
      case 'log':
        break;
    }
  }

  private await(promise: Promise<void>): void {
    this.waiting = true;
    const settled = promise.then(() => {
      this.waiting = false;
      this.drain();
    });
    this.world.noteAsync(settled);
  }

  private load(assignment: RankAssignment): void {
    this.engine.kill();
    this.engine = new FakeEngine(this.world.engine);
    const { engine } = this;
    engine.onEvent((event) => {
      if (this.engine === engine) this.event({ type: 'engine-event', event });
    });
    const options: EngineOptions = { ...assignment, path: '', dataHost: '' };
    const settled = engine.load(options).then((facts) => {
      // Loading takes a while.
      this.world.engine.after(5, () => this.event({ type: 'engine-loaded', facts }));
    });
    this.world.noteAsync(settled);
  }

  private open(spec: Extract<RankEffect, { type: 'open-engine' }>['spec']): void {
    const { epoch } = spec;
    const settled = this.engine
      .openEpoch({ ...spec, dataKey: new Uint8Array(32) })
      .then((links) => this.event({ type: 'engine-opened', epoch, links }))
      .catch((thrown: unknown) => {
        const { code, message } = toCoxswainError(thrown);
        this.event({ type: 'engine-open-failed', epoch, code, message });
      });
    this.world.noteAsync(settled);
  }
}
