// A cluster around the store's real shells: one coordinator, ranks with their directories, a network
// that delays, reorders and keeps the messages of the dead, clients with growing histories. What must
// hold is checked at every step.
import { createHash } from 'node:crypto';
import { assert, present } from '../../../src/base/assert.ts';
import { CoxswainError } from '../../../src/base/errors.ts';
import { createPrng, type Prng } from '../../../src/base/prng.ts';
import type { UnitRecord } from '../../../src/kvstore/core/catalog.ts';
import { draftSave } from '../../../src/kvstore/core/draft.ts';
import type { FromHolder, SegmentOrder, ToHolder } from '../../../src/kvstore/core/messages.ts';
import type { Unit } from '../../../src/kvstore/core/model.ts';
import { unitName } from '../../../src/kvstore/core/page-chain.ts';
import type { DirectoryLocks } from '../../../src/kvstore/disk/disk.ts';
import { decodeManifest } from '../../../src/kvstore/format/manifest.ts';
import { segmentFileBytes } from '../../../src/kvstore/format/segment-file.ts';
import { encodeTail, encodeText, textFrom } from '../../../src/kvstore/format/text-payload.ts';
import { SegmentHolder } from '../../../src/kvstore/shell/segment-holder.ts';
import { StoreDriver } from '../../../src/kvstore/shell/store-driver.ts';
import { FakeDisk } from './fake-disk.ts';
import { Histories, keyOf, TAIL, textOf } from './histories.ts';
import { Loader } from './loader.ts';
import { boxesOf, type Plan, POOLS, payloadOf, prefixHashes } from './model-state.ts';

const sha256 = (a: Uint8Array, b: Uint8Array) =>
  new Uint8Array(createHash('sha256').update(a).update(b).digest());
const COMPAT = sha256(Uint8Array.of(2), new Uint8Array(0));

export interface Counts {
  served: number;
  loaded: number;
  committed: number;
  evicted: number;
  damaged: number;
  trashed: number;
  fenced: number;
  foreign: number;
  locked: number;
  powerCuts: number;
  verified: number;
  uncertain: number;
}

interface Envelope {
  readonly directory: string;
  readonly toHolder: ToHolder | null;
  readonly toStore: FromHolder | null;
  readonly incarnation: number;
}

interface RankHost {
  readonly disk: FakeDisk;
  path: string;
  holder: SegmentHolder | null;
}

interface Saving {
  readonly ids: Int32Array;
  readonly name: string;
}

export class World {
  readonly prng: Prng;
  readonly counts: Counts = {
    served: 0,
    loaded: 0,
    committed: 0,
    evicted: 0,
    damaged: 0,
    trashed: 0,
    fenced: 0,
    foreign: 0,
    locked: 0,
    powerCuts: 0,
    verified: 0,
    uncertain: 0,
  };
  readonly rootDisk: FakeDisk;
  readonly ranks: RankHost[];
  driver: StoreDriver | null = null;
  plan: Plan;
  now = 1_000_000;
  /** Bits rot in this world: what was committed may be lost, but nothing wrong is served. */
  readonly rotten: boolean;
  /** Chance that the mail goes out first. */
  readonly calm: number;
  /** Manifests that rot has touched: what it makes valid again behind the store's back binds nobody. */
  readonly touched = new Set<string>();
  /** Found where an exception might be taken for a failing disk. */
  private violation: string | null = null;
  private root = '/kv';
  private epoch = 0;
  private incarnation = 0;
  private saveCount = 0;
  private held: readonly string[] = [];
  private mail: Envelope[] = [];
  private readonly saving = new Map<string, Saving>();
  private readonly histories: Histories;
  /** Committed, and no manifest of them was taken away on purpose. */
  private readonly expected = new Map<string, Int32Array>();

  constructor(seed: number) {
    this.prng = createPrng(seed);
    this.histories = new Histories(this.prng);
    this.rotten = seed % 4 === 0;
    const watch = { removing: (disk: FakeDisk, path: string) => this.removing(disk, path) };
    this.rootDisk = new FakeDisk('root', this.prng, watch);
    this.ranks = Array.from({ length: 1 + this.prng.below(3) }, (_, rank) => ({
      disk: new FakeDisk(`rank ${rank}`, this.prng, watch),
      path: '/shards',
      holder: null,
    }));
    this.plan = this.drawPlan();
    this.calm = 0.8 + this.prng.uniform() * 0.19;
  }

  get mailCount(): number {
    return this.mail.length;
  }

  get isDown(): boolean {
    return this.driver === null || this.ranks.some(({ holder }) => holder === null);
  }

  /** Starts what is down, and a new epoch for all. */
  async startAll(): Promise<void> {
    if (this.driver === null) await this.startStore();
    for (const rank of this.ranks) if (rank.holder === null) await this.startRank(rank);
    await this.startEpoch();
  }

  async startEpoch(): Promise<void> {
    const { driver } = this;
    if (driver === null) return;
    this.epoch += 1;
    this.plan = this.drawPlan();
    await this.guarded(async () => {
      await driver.startEpoch(this.epoch);
      driver.setBudget(driver.own.directory.id, 120_000 + this.prng.below(800_000));
      for (const rank of this.ranks) if (rank.holder !== null) await this.join(rank, driver);
    });
    this.bury();
  }

  /** A client sends a history that begins like others. */
  async request(): Promise<void> {
    const ids = this.histories.draw();
    this.counts.served += 1;
    const { driver } = this;
    if (driver === null) return;
    let restored: UnitRecord | null = null;
    await this.guarded(async () => {
      restored = await this.restore(driver, ids);
    });
    this.bury();
    if (this.driver === null) return;
    await this.guarded(() => this.save(driver, ids, restored));
    this.bury();
  }

  async deliver(): Promise<void> {
    const envelope = this.mail.splice(this.prng.below(this.mail.length), 1)[0];
    if (envelope === undefined) return;
    const { directory, toHolder, toStore } = envelope;
    if (toStore !== null) {
      const { driver } = this;
      if (driver === null || envelope.incarnation !== this.incarnation) return;
      await this.guarded(() => driver.receive(toStore));
    } else if (toHolder !== null) await this.deliverToHolder(directory, toHolder);
    this.bury();
  }

  async tick(): Promise<void> {
    this.now += this.prng.below(40_000);
    const { driver } = this;
    if (driver === null) return;
    await this.guarded(() => driver.tick());
    this.bury();
  }

  /** kill: the process goes, the disk stays. Else the power of the host goes. */
  async crash(victim: 'store' | RankHost, kill: boolean): Promise<void> {
    if (victim === 'store') {
      this.rootDisk.restart(!kill);
      this.storeGone();
      return;
    }
    victim.disk.restart(!kill);
    const id = victim.holder?.directory.id;
    victim.holder = null;
    const { driver } = this;
    if (id === undefined || driver === null) return;
    await this.guarded(() => driver.left(id));
    this.bury();
  }

  /** A second coordinator on the same root is refused. */
  async secondStore(): Promise<void> {
    if (this.driver === null) return;
    try {
      await StoreDriver.open({ ...this.dependencies(), root: this.root });
      assert(false, 'two coordinators hold one root');
    } catch (error) {
      if (!(error instanceof CoxswainError)) throw error;
      if (error.code === 'KV_LOCKED') this.counts.locked += 1;
    }
    this.bury();
  }

  /** The coordinator comes up on another root: another store, to which these ranks do not belong. */
  async wrongRoot(): Promise<void> {
    this.storeGone();
    const before = this.root;
    this.root = '/elsewhere';
    await this.startStore();
    await this.startEpoch();
    for (let round = 0; round < 5; round += 1) await this.deliver();
    this.storeGone();
    this.root = before;
  }

  /** A rank comes up on an empty directory, and later on its own again. */
  async wrongShards(rank: RankHost): Promise<void> {
    await this.crash(rank, true);
    rank.path = rank.path === '/shards' ? '/other' : '/shards';
    await this.startRank(rank);
    await this.startEpoch();
  }

  /** Everything is repaired: nothing that was committed may be missing, and all of it is right. */
  async settle(): Promise<void> {
    for (const disk of [this.rootDisk, ...this.ranks.map((rank) => rank.disk)]) {
      disk.capacity = 1 << 30;
      disk.failNextReadUnder('/nowhere');
      disk.restart(disk.dead);
    }
    this.storeGone();
    for (const rank of this.ranks) {
      rank.holder = null;
      rank.path = '/shards';
    }
    this.mail = [];
    await this.startAll();
    while (this.mail.length > 0) await this.deliver();
    // Units over directories that came up on a wrong path may need both: look under each.
    const driver = present(this.driver, 'a repaired coordinator runs');
    driver.store.catalog.check();
    for (const [name, ids] of this.expected) {
      const record = driver.store.catalog.get(name);
      if (this.rotten || this.usesOther(record)) continue;
      assert(record !== undefined, `unit ${name} was committed and is gone`);
      assert(record.state === 'complete', `unit ${name} was committed and is ${record.state}`);
      assert(await this.load(driver, record, ids), `unit ${name} was committed and does not load`);
      this.counts.verified += 1;
    }
  }

  private async startStore(): Promise<void> {
    this.incarnation += 1;
    await this.guarded(async () => {
      this.driver = await StoreDriver.open(this.dependencies());
    });
    this.bury();
  }

  private dependencies() {
    const { incarnation } = this;
    const locks: DirectoryLocks = {
      lock: async (path) => {
        if (this.held.includes(path)) throw new CoxswainError('KV_LOCKED', `${path} is held`);
        this.held = [...this.held, path];
        const release = async () => {
          this.held = this.held.filter((each) => each !== path);
        };
        return { release };
      },
    };
    return {
      disk: this.rootDisk,
      locks,
      root: this.root,
      random: (count: number) => Uint8Array.from({ length: count }, () => this.prng.below(256)),
      sha256,
      now: () => this.now,
      payload: (save: string, order: SegmentOrder) => this.payload(save, order),
      send: (directory: string, toHolder: ToHolder) => {
        this.mail.push({ directory, toHolder, toStore: null, incarnation });
      },
      onFinished: (save: string, outcome: string) => this.finished(save, outcome),
      onWriteState: () => undefined,
      ttlMs: 3_000_000,
    };
  }

  private async startRank(rank: RankHost): Promise<void> {
    const { driver } = this;
    if (driver === null) return;
    await this.guarded(async () => {
      rank.holder = await SegmentHolder.open({
        disk: rank.disk,
        path: rank.path,
        store: driver.identity.store,
        random: (count) => Uint8Array.from({ length: count }, () => this.prng.below(256)),
        payload: (save, order) => this.payload(save, order),
        now: () => this.now,
        onWriteState: () => undefined,
      });
    });
    this.bury();
  }

  private async join(rank: RankHost, driver: StoreDriver): Promise<void> {
    const { holder } = rank;
    if (holder === null) return;
    try {
      const copies = driver.wantsCopies ? await holder.directory.manifestCopies() : [];
      const to = { store: driver.identity.store, epoch: this.epoch };
      await driver.joined(await holder.inventory(to), copies);
      driver.setBudget(holder.directory.id, 60_000 + this.prng.below(600_000));
    } catch (error) {
      if (!(error instanceof CoxswainError)) throw error;
      if (error.code === 'KV_FOREIGN') this.counts.foreign += 1;
    }
  }

  private async deliverToHolder(directory: string, message: ToHolder): Promise<void> {
    const { incarnation } = this;
    const own = this.driver?.own.directory.id === directory;
    const rank = this.ranks.find(({ holder }) => holder?.directory.id === directory);
    const holder = own ? this.driver?.own : rank?.holder;
    const disk = own ? this.rootDisk : rank?.disk;
    if (holder === undefined || holder === null || disk === undefined) return;
    let toStore: FromHolder | null = null;
    await this.guarded(async () => {
      toStore = await holder.receive(message);
    });
    if (message.type === 'trash') this.counts.trashed += message.segments.length;
    // The dead do not answer.
    if (toStore === null || disk.dead) return;
    if (message.epoch < this.epoch) this.counts.fenced += 1;
    this.mail.push({ directory, toHolder: null, toStore, incarnation });
  }

  /** The longest unit that loads; null for none. */
  private async restore(driver: StoreDriver, ids: Int32Array): Promise<UnitRecord | null> {
    const seed = this.seed(driver);
    for (const record of driver.store.known(seed, keyOf(ids)).units) {
      driver.store.catalog.pinUnit(record);
      try {
        if (!(await this.load(driver, record, ids))) continue;
        this.counts.loaded += 1;
        await driver.used(record);
        return record;
      } finally {
        driver.store.catalog.unpinUnit(record);
      }
    }
    return null;
  }

  private load(driver: StoreDriver, record: UnitRecord, ids: Int32Array): Promise<boolean> {
    const holders = this.ranks.flatMap(({ holder }) => (holder === null ? [] : [holder]));
    const loader = new Loader(driver, holders, () => {
      this.counts.damaged += 1;
    });
    return loader.load(record.unit, this.plan, ids);
  }

  private async save(
    driver: StoreDriver,
    ids: Int32Array,
    parent: UnitRecord | null,
  ): Promise<void> {
    const holders = this.ranks.map((rank) => rank.holder);
    if (holders.some((holder) => holder === null)) return;
    const seed = this.seed(driver);
    const key = keyOf(ids);
    const name = unitName(sha256, seed, key);
    this.saveCount += 1;
    const save = `save ${this.saveCount}`;
    const text = textOf(ids);
    const writers = new Map(
      holders.map((holder, rank) => [
        present(holder, 'all holders are up').directory.id,
        [...boxesOf(this.plan, rank, 'pool'), ...boxesOf(this.plan, rank, 'boundary')],
      ]),
    );
    const draft = draftSave(
      {
        save,
        unit: {
          name,
          scope: hexOf(this.scope(driver)),
          compat: hexOf(COMPAT),
          plan: hexOf(COMPAT),
          tokens: ids.length,
          keyBytes: key.length,
          reason: 'prompt-end',
          createdMs: this.now,
          epoch: this.epoch,
          pools: POOLS,
        },
        parent: parent?.unit ?? null,
        common: parent?.unit.tokens ?? 0,
        writers,
        own: {
          directory: driver.own.directory.id,
          textBytes: (from) => encodeText(textFrom(text, from)).length,
          tailBytes: encodeTail(TAIL).length,
        },
        epoch: this.epoch,
        nonce: () => hexOf(Uint8Array.from({ length: 8 }, () => this.prng.below(256))),
      },
      segmentFileBytes,
    );
    this.saving.set(save, { ids, name });
    await driver.save(draft, { seed, bytes: key });
  }

  private async *payload(save: string, order: SegmentOrder): AsyncGenerator<Uint8Array> {
    const saving = this.saving.get(save);
    if (saving === undefined || this.prng.chance(0.02)) {
      throw new CoxswainError('RANK_LOST', 'the state is gone');
    }
    const whole = contentOf(saving.ids, order);
    const half = this.prng.below(whole.length + 1);
    yield whole.subarray(0, half);
    yield whole.subarray(half);
  }

  private finished(save: string, outcome: string): void {
    const saving = this.saving.get(save);
    this.saving.delete(save);
    if (outcome === 'uncertain') this.counts.uncertain += 1;
    if (outcome !== 'committed' || saving === undefined) return;
    this.counts.committed += 1;
    this.expected.set(saving.name, saving.ids);
  }

  /** Nothing goes that a manifest names, in what is there now or in what a power cut would leave. */
  private removing(disk: FakeDisk, path: string): void {
    const manifest = /^\/kv\/manifests\/([0-9a-f]{40})\.man$/.exec(path)?.[1];
    if (manifest !== undefined && disk === this.rootDisk) {
      this.expected.delete(manifest);
      this.counts.evicted += 1;
    }
    const segment = /\/([0-9a-f]{32})\.seg$/.exec(path)?.[1];
    if (segment === undefined || path.includes('/trash/')) return;
    for (const root of ['/kv', '/elsewhere']) {
      const name = this.namedBy(`${root}/manifests`, segment);
      if (name !== null) this.violation ??= `${path} was deleted though ${name} names it`;
    }
  }

  /** A manifest under the directory that names the segment. */
  private namedBy(directory: string, segment: string): string | null {
    for (const [path, bytes] of this.rootDisk.views(directory)) {
      if (!path.endsWith('.man') || this.touched.has(path)) continue;
      const unit = readManifest(bytes);
      // Rot may have put a manifest under another's name: that one is none.
      if (unit === null || !path.endsWith(`/${unit.name}.man`)) continue;
      if (unit.segments.some(({ id }) => id === segment)) return path;
    }
    return null;
  }

  /** Units written while a rank stood on the wrong path are not there when it stands on the right one. */
  private usesOther(record: UnitRecord | undefined): boolean {
    const right = new Set(this.ranks.map(({ holder }) => holder?.directory.id ?? ''));
    right.add(this.driver?.own.directory.id ?? '');
    return record?.unit.segments.some(({ directory }) => !right.has(directory)) ?? false;
  }

  private drawPlan(): Plan {
    const tp = 1 + this.prng.below(this.ranks.length);
    return this.ranks.length === 2 && tp === 1
      ? { tp: 1, pp: 2 }
      : { tp: this.ranks.length, pp: 1 };
  }

  private scope(driver: StoreDriver): Uint8Array {
    return sha256(driver.identity.secret, new Uint8Array(0));
  }

  private seed(driver: StoreDriver): Uint8Array {
    return driver.store.seedOf(this.scope(driver), COMPAT);
  }

  /** What the store throws at its shell is coded; the shell goes on without. */
  private async guarded(work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      if (!(error instanceof CoxswainError)) throw error;
    }
  }

  /** Processes whose host lost its power are gone. */
  private bury(): void {
    assert(this.violation === null, this.violation ?? '');
    if (this.rootDisk.dead) {
      this.counts.powerCuts += 1;
      this.rootDisk.restart(true);
      this.storeGone();
    }
    for (const rank of this.ranks) {
      if (!rank.disk.dead) continue;
      this.counts.powerCuts += 1;
      rank.disk.restart(true);
      rank.holder = null;
    }
  }

  private storeGone(): void {
    this.driver = null;
    this.held = [];
    this.incarnation += 1;
  }
}

function hexOf(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('hex');
}

function readManifest(bytes: Uint8Array): Unit | null {
  try {
    return decodeManifest('m', bytes).unit;
  } catch {
    return null;
  }
}

function contentOf(ids: Int32Array, order: SegmentOrder): Uint8Array {
  if (order.kind === 'text') return encodeText(textFrom(textOf(ids), order.tokenBegin));
  return order.kind === 'tail' ? encodeTail(TAIL) : payloadOf(POOLS, order, prefixHashes(ids));
}
