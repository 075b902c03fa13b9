// A store with its ranks on any disk, and mail that is delivered at once: for tests of behaviour that
// need no faults in the network.
import { randomBytes } from 'node:crypto';
import { draftSave } from '../../../src/kvstore/core/draft.ts';
import { scopeId } from '../../../src/kvstore/core/identity.ts';
import type { FromHolder, SegmentOrder, ToHolder } from '../../../src/kvstore/core/messages.ts';
import type { SaveReason, Unit } from '../../../src/kvstore/core/model.ts';
import { unitName } from '../../../src/kvstore/core/page-chain.ts';
import type { Disk } from '../../../src/kvstore/disk/disk.ts';
import { hmacSha256 as hmac, sha256 } from '../../../src/kvstore/format/hashing.ts';
import { segmentFileBytes } from '../../../src/kvstore/format/segment-file.ts';
import { encodeTail, encodeText, textFrom } from '../../../src/kvstore/format/text-payload.ts';
import { SegmentHolder } from '../../../src/kvstore/shell/segment-holder.ts';
import { StoreDriver } from '../../../src/kvstore/shell/store-driver.ts';
import { keyOf, TAIL, textOf } from '../../sim/kvstore/histories.ts';
import { Loader } from '../../sim/kvstore/loader.ts';
import {
  boxesOf,
  type Plan,
  POOLS,
  payloadOf,
  prefixHashes,
} from '../../sim/kvstore/model-state.ts';
import { seedOf } from './hashing.ts';

const COMPAT = seedOf('model');
const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString('hex');
const random = (count: number) => new Uint8Array(randomBytes(count));

export interface SmallOptions {
  readonly disk: Disk;
  readonly root: string;
  readonly plan: Plan;
  readonly ttlMs?: number;
}

export interface Served {
  /** Tokens restored from a unit. */
  readonly hit: number;
  readonly unit: Unit | null;
}

export class SmallStore {
  readonly driver: StoreDriver;
  readonly holders: readonly SegmentHolder[];
  /** Last word on each save. */
  readonly outcomes: string[];
  plan: Plan;
  private readonly mail: Mail;
  private readonly ids: Map<string, Int32Array>;
  private readonly clock: { now: number };
  private saves = 0;

  private constructor(parts: Parts) {
    this.driver = parts.driver;
    this.holders = parts.holders;
    this.outcomes = parts.outcomes;
    this.mail = parts.mail;
    this.ids = parts.ids;
    this.clock = parts.clock;
    this.plan = parts.plan;
  }

  static async open(
    options: SmallOptions,
    epoch: number,
    clock = { now: 1e12 },
  ): Promise<SmallStore> {
    const { disk, root, plan } = options;
    const ids = new Map<string, Int32Array>();
    const outcomes: string[] = [];
    const mail: Mail = [];
    const shared = {
      disk,
      random,
      now: () => clock.now,
      payload: (save: string, order: SegmentOrder) => contentOf(ids.get(save), order),
      onWriteState: () => undefined,
    };
    const driver = await StoreDriver.open({
      ...shared,
      root,
      sha256,
      locks: { lock: async () => ({ release: async () => undefined }) },
      send: (directory, message) => mail.push({ directory, message }),
      onFinished: (_save, outcome) => outcomes.push(outcome),
      ...(options.ttlMs === undefined ? {} : { ttlMs: options.ttlMs }),
    });
    const holders: SegmentHolder[] = [];
    for (let rank = 0; rank < plan.tp * plan.pp; rank += 1) {
      const path = `${root}/shards/rank${rank}`;
      holders.push(await SegmentHolder.open({ ...shared, path, store: driver.identity.store }));
    }
    const small = new SmallStore({ driver, holders, outcomes, mail, ids, clock, plan });
    await driver.startEpoch(epoch);
    for (const holder of holders) {
      const copies = driver.wantsCopies ? await holder.directory.manifestCopies() : [];
      await driver.joined(await holder.inventory({ store: driver.identity.store, epoch }), copies);
    }
    small.setBudgets(1e9);
    await small.pump();
    return small;
  }

  setBudgets(bytes: number): void {
    for (const { directory } of [this.driver.own, ...this.holders]) {
      this.driver.setBudget(directory.id, bytes);
    }
  }

  seed(user: string | null): { readonly seed: Uint8Array; readonly scope: Uint8Array } {
    const scope = scopeId(hmac, this.driver.identity.secret, { apiKeyId: '', user });
    return { seed: this.driver.store.seedOf(scope, COMPAT), scope };
  }

  /** Restores what there is. A wrong row throws. */
  async serve(
    ids: Int32Array,
    user: string | null = null,
    plan: Plan = this.plan,
  ): Promise<Served> {
    const { seed } = this.seed(user);
    const key = keyOf(ids);
    for (const record of this.driver.store.known(seed, key).units) {
      const loader = new Loader(this.driver, this.holders, () => undefined);
      if (!(await loader.load(record.unit, plan, ids))) continue;
      await this.driver.used(record);
      return { hit: record.unit.tokens, unit: record.unit };
    }
    return { hit: 0, unit: null };
  }

  /** Saves the first `tokens` of `ids`; the answer is the outcome. */
  async save(
    ids: Int32Array,
    reason: SaveReason,
    more: { readonly parent?: Unit | null; readonly user?: string | null } = {},
  ): Promise<string> {
    const { driver } = this;
    const parent = more.parent ?? null;
    const { seed, scope } = this.seed(more.user ?? null);
    const key = keyOf(ids);
    this.saves += 1;
    const save = `save ${this.saves}`;
    this.ids.set(save, ids);
    const text = textOf(ids);
    const identity = { name: unitName(sha256, seed, key), scope: hex(scope), compat: hex(COMPAT) };
    const draft = draftSave(
      {
        save,
        unit: {
          ...identity,
          plan: hex(COMPAT),
          tokens: ids.length,
          keyBytes: key.length,
          reason,
          createdMs: this.clock.now,
          epoch: 1,
          pools: POOLS,
        },
        parent,
        common: parent?.tokens ?? 0,
        writers: new Map(
          this.holders.map(({ directory }, rank) => [
            directory.id,
            [...boxesOf(this.plan, rank, 'pool'), ...boxesOf(this.plan, rank, 'boundary')],
          ]),
        ),
        own: {
          directory: driver.own.directory.id,
          textBytes: (from) => encodeText(textFrom(text, from)).length,
          tailBytes: encodeTail(TAIL).length,
        },
        epoch: 1,
        nonce: () => hex(random(8)),
      },
      segmentFileBytes,
    );
    await driver.save(draft, { seed, bytes: key });
    await this.pump();
    return this.outcomes.at(-1) ?? 'nothing';
  }

  async pump(): Promise<void> {
    for (let next = this.mail.shift(); next !== undefined; next = this.mail.shift()) {
      const { directory, message } = next;
      const holder = [this.driver.own, ...this.holders].find((h) => h.directory.id === directory);
      const answer: FromHolder | null = (await holder?.receive(message)) ?? null;
      if (answer !== null) await this.driver.receive(answer);
    }
  }
}

type Mail = { readonly directory: string; readonly message: ToHolder }[];

interface Parts {
  readonly driver: StoreDriver;
  readonly holders: readonly SegmentHolder[];
  readonly outcomes: string[];
  readonly mail: Mail;
  readonly ids: Map<string, Int32Array>;
  readonly clock: { now: number };
  readonly plan: Plan;
}

async function* contentOf(
  ids: Int32Array | undefined,
  order: SegmentOrder,
): AsyncGenerator<Uint8Array> {
  if (ids === undefined) throw new Error('a save of nothing');
  if (order.kind === 'text') yield encodeText(textFrom(textOf(ids), order.tokenBegin));
  else if (order.kind === 'tail') yield encodeTail(TAIL);
  else yield payloadOf(POOLS, order, prefixHashes(ids));
}
