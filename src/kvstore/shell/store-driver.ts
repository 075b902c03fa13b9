// The coordinator's store at work: opens the root, keeps index and catalog equal to what lies on disk,
// runs saves through the two-phase commit, evicts, sweeps. The cores decide; this executes their effects in
// order and owns the root's lock, manifests and journal.
// Requests never fail for the store: a save ends as committed or with a cause, a look-up in less.
import { CoxswainError, toCoxswainError } from '../../base/errors.ts';
import type { SegmentPin, UnitRecord } from '../core/catalog.ts';
import { wasteOf } from '../core/inventory.ts';
import type { FromHolder, Inventory, ToHolder } from '../core/messages.ts';
import type { Segment, Unit } from '../core/model.ts';
import { type Sha256, unitName } from '../core/page-chain.ts';
import {
  SaveCore,
  type SaveDraft,
  type SaveEffect,
  type SaveLimits,
  type SaveOutcome,
} from '../core/saves.ts';
import { Reservations, shortfall, WATERMARKS, WriteGate } from '../core/space.ts';
import { type EvictReason, PrefixStore, TTL_MS } from '../core/store.ts';
import type { SkipCause } from '../core/write-policy.ts';
import type { DirectoryLocks, Disk } from '../disk/disk.ts';
import { readWhole } from '../disk/files.ts';
import { openStoreIdentity, type RandomBytes, type StoreIdentity } from '../disk/identity-files.ts';
import { ManifestDirectory } from '../disk/manifest-directory.ts';
import { decodeManifest, encodeManifest } from '../format/manifest.ts';
import {
  decodeTail,
  decodeText,
  joinText,
  type Tail,
  type TextRange,
} from '../format/text-payload.ts';
import { decodeUsage, encodeUsage } from '../format/usage-journal.ts';
import { type PayloadSource, SegmentHolder } from './segment-holder.ts';

const USAGE_FILE = 'usage.journal';
const USAGE_BYTES_MAX = 64 * 1024 * 1024;

export interface StoreDependencies {
  readonly disk: Disk;
  readonly locks: DirectoryLocks;
  readonly root: string;
  readonly random: RandomBytes;
  readonly sha256: Sha256;
  readonly now: () => number;
  /**
   * To the holder of a directory; for the store's own (`driver.own.directory.id`) to `driver.own`. Answers
   * come back by receive(). Must not throw: what cannot be sent is lost, deadlines take care of it.
   */
  readonly send: (directory: string, message: ToHolder) => void;
  /** Text and tail of a save under way. */
  readonly payload: PayloadSource;
  readonly onFinished: (save: string, outcome: SaveOutcome | SkipCause, cause: string) => void;
  readonly onWriteState: (open: boolean, cause: string) => void;
  readonly ttlMs?: number;
  readonly limits?: SaveLimits;
}

interface SaveContext {
  readonly draft: SaveDraft;
  readonly pin: SegmentPin;
  readonly key: { readonly seed: Uint8Array; readonly bytes: Uint8Array };
}

export class StoreDriver {
  readonly identity: StoreIdentity;
  readonly own: SegmentHolder;
  readonly store: PrefixStore;
  private readonly deps: StoreDependencies;
  private readonly manifests: ManifestDirectory;
  private readonly lock: { release(): Promise<void> };
  private readonly saves: SaveCore;
  private readonly gate = new WriteGate();
  private readonly reserved = new Reservations();
  private readonly contexts = new Map<string, SaveContext>();
  private readonly budgets = new Map<string, number>();
  /** Files by directory that is at hand. */
  private readonly present = new Map<string, Map<string, number>>();
  /** Units whose manifests are being removed. */
  private readonly leaving = new Set<string>();
  /** Evicted while manifests were not whole: a copy of one of them is no reason to bring it back. */
  private readonly ended = new Set<string>();
  private epoch = 0;
  /** blind: some could not be read though they may be sound; nothing is written or deleted beside them. */
  private manifestsRead: 'whole' | 'in part' | 'blind' = 'in part';
  /** Units whose manifest may or may not last, by name: whatever they name stays. */
  private readonly limbo = new Map<string, SegmentPin>();

  private constructor(deps: StoreDependencies, opened: Opened) {
    this.deps = deps;
    this.identity = opened.identity;
    this.own = opened.own;
    this.lock = opened.lock;
    this.manifests = opened.manifests;
    this.store = new PrefixStore({ sha256: deps.sha256, ttlMs: deps.ttlMs ?? TTL_MS });
    this.saves = new SaveCore(opened.identity.store, deps.limits);
  }

  /** KV_LOCKED, KV_FOREIGN, KV_DAMAGED (the identity), KV_WRITE_FAILED (a new store). */
  static async open(deps: StoreDependencies): Promise<StoreDriver> {
    const { disk, root, random } = deps;
    await disk.makeDirectory(root);
    const lock = await deps.locks.lock(root);
    try {
      const identity = await openStoreIdentity(disk, root, random);
      const { store } = identity;
      const holder = { disk, random, store, payload: deps.payload, now: deps.now };
      const path = `${root}/shards/coordinator`;
      const own = await SegmentHolder.open({ ...holder, path, onWriteState: deps.onWriteState });
      const manifests = new ManifestDirectory(disk, root, { store, random });
      const driver = new StoreDriver(deps, { identity, own, manifests, lock });
      await driver.load();
      return driver;
    } catch (error) {
      await lock.release();
      throw error;
    }
  }

  get savesInFlight(): number {
    return this.saves.inFlight;
  }

  /** Saves, joins and verdicts count for this epoch from now on; it must exceed every holder's. */
  async startEpoch(epoch: number): Promise<void> {
    this.epoch = epoch;
    await this.run(this.saves.epochChanged(epoch));
    const inventory = await this.own.inventory({ store: this.identity.store, epoch });
    const copies = this.wantsCopies ? await this.own.directory.manifestCopies() : [];
    await this.joined(inventory, copies);
  }

  /** Every manifest that there may be is known. */
  private get trusted(): boolean {
    return this.manifestsRead === 'whole' && this.limbo.size === 0;
  }

  /** The manifests were empty or damaged at start: joining holders are to send their copies along. */
  get wantsCopies(): boolean {
    return this.manifestsRead === 'in part';
  }

  setBudget(directory: string, bytes: number): void {
    this.budgets.set(directory, bytes);
  }

  /** A holder is there with its files. KV_FOREIGN: of another store, not used and not touched. */
  async joined(inventory: Inventory, copies: readonly Uint8Array[] = []): Promise<void> {
    if (inventory.store !== this.identity.store) {
      throw new CoxswainError(
        'KV_FOREIGN',
        `directory ${inventory.directory} belongs to store ${inventory.store}: start its rank with this store's --kv-dir`,
      );
    }
    const files = new Map(inventory.segments.map(({ id, fileBytes }) => [id, fileBytes]));
    this.present.set(inventory.directory, files);
    if (this.wantsCopies) await this.rebuild(copies);
    this.reassess();
    const waste = wasteOf(
      {
        store: this.identity.store,
        epoch: this.epoch,
        trusted: this.trusted,
        isNeeded: (id) => this.store.catalog.isNeeded(id) || this.saves.isBeingWritten(id),
      },
      inventory,
    );
    if (waste.length === 0) return;
    this.store.metrics.count('cox_kv_trash_total', [], waste.length);
    this.send(inventory.directory, { type: 'trash', segments: waste });
  }

  async left(directory: string): Promise<void> {
    this.present.delete(directory);
    this.reassess();
    await this.run(this.saves.directoryLost(directory));
  }

  /** Begins a save, evicting where need be. Its end comes by onFinished, always and once. */
  async save(draft: SaveDraft, key: SaveContext['key']): Promise<void> {
    const skip = (cause: SkipCause) => {
      this.store.metrics.count('cox_kv_skip_total', [draft.unit.reason, cause]);
      this.deps.onFinished(draft.save, cause, '');
    };
    if (!(await this.makeWay(draft.unit.name))) return skip('exists');
    // Nobody writes over a manifest whose fate is open: removing the old one would remove the new.
    if (this.limbo.has(draft.unit.name)) return skip('busy');
    if (this.saves.isSaving(draft.unit.name) || !this.saves.hasRoomFor(draft)) return skip('busy');
    if (!(await this.mayWrite())) return skip('no-write');
    // Awaiting above may have let the parent go.
    if (!draft.inherited.every(({ id }) => this.store.catalog.isSound(id)))
      return skip('parent-gone');
    const pin = this.store.catalog.pinSegments(draft.inherited);
    this.contexts.set(draft.save, { draft, pin, key });
    const wanted = wantedBytes(draft);
    if (!(await this.makeRoom(wanted))) {
      this.endContext(draft.save);
      return skip('no-space');
    }
    // Another save may have begun while room was made.
    if (this.saves.isSaving(draft.unit.name) || !this.saves.hasRoomFor(draft)) {
      this.endContext(draft.save);
      return skip('busy');
    }
    this.reserved.add(draft.save, wanted);
    await this.run(this.saves.begin(draft, this.deps.now()));
  }

  async receive(answer: FromHolder): Promise<void> {
    await this.run(this.saves.answered(answer, this.deps.now()));
  }

  /** Deadlines and expiry. To be called at nextDeadlineMs, and every minute or so. */
  async tick(): Promise<void> {
    await this.run(this.saves.tick(this.deps.now()));
    if (await this.mayWrite()) await this.clearLimbo();
    await this.evict(this.store.expired(this.deps.now()), 'expired');
    await this.evict(this.store.quarantined(), 'dropped');
  }

  nextDeadlineMs(): number | null {
    return this.saves.nextDeadlineMs();
  }

  /** A unit served a request. The journal may lose this; nothing depends on it. */
  async used(record: UnitRecord): Promise<void> {
    this.store.used(record, this.deps.now());
    const { hits, lastUsedMs, unit } = record;
    const entry = encodeUsage({ name: unit.name, hits, lastUsedMs });
    await this.deps.disk.append(`${this.deps.root}/${USAGE_FILE}`, entry).catch(() => undefined);
  }

  /** A segment is damaged or its witness disagreed. */
  quarantine(segmentId: string): readonly UnitRecord[] {
    return this.store.quarantine(segmentId);
  }

  /** A file that should be there is not. */
  missing(directory: string, segmentId: string): void {
    this.present.get(directory)?.delete(segmentId);
    this.reassess();
  }

  /** Ends units on disk and in memory; a manifest that cannot be removed keeps its unit. */
  async evict(records: readonly UnitRecord[], why: EvictReason): Promise<boolean> {
    const going = records.filter(({ pins, unit }) => pins === 0 && !this.leaving.has(unit.name));
    if (going.length === 0) return true;
    if (this.manifestsRead === 'blind') return false;
    // Not offered from here on, so nobody can pin it while its manifest goes; should that fail, it is
    // half gone on disk and the first to go next time.
    for (const record of going) {
      record.state = 'quarantined';
      this.leaving.add(record.unit.name);
    }
    try {
      await this.manifests.remove(going.map(({ unit }) => unit.name));
    } catch (error) {
      this.writeFailed(error);
      return false;
    } finally {
      for (const { unit } of going) this.leaving.delete(unit.name);
    }
    this.forget(going, why);
    return true;
  }

  /** Ids and key bytes of a unit: the ids are what a hit goes on from. KV_DAMAGED quarantines. */
  async textOf(unit: Unit): Promise<TextRange> {
    const texts = unit.segments.filter(({ kind }) => kind === 'text');
    const parts: { tokenBegin: number; text: TextRange }[] = [];
    for (const segment of texts) {
      const payload = await this.ownPayload(segment);
      parts.push({ tokenBegin: segment.tokenBegin, text: decodeText(segment.id, payload) });
    }
    return joinText(unit.name, parts, unit.tokens);
  }

  /** Logits of the next token, and the witness. */
  async tailOf(unit: Unit): Promise<Tail> {
    const segment = unit.segments.find(({ kind }) => kind === 'tail');
    if (segment === undefined) return { logits: null, witness: null };
    return decodeTail(segment.id, await this.ownPayload(segment));
  }

  async close(): Promise<void> {
    await this.lock.release();
  }

  private async load(): Promise<void> {
    const usage = decodeUsage(
      (await readWhole(this.deps.disk, `${this.deps.root}/${USAGE_FILE}`, USAGE_BYTES_MAX).catch(
        () => null,
      )) ?? new Uint8Array(0),
    );
    const { units, trusted, unread } = await this.manifests.load();
    if (trusted) this.manifestsRead = 'whole';
    else if (unread.length > 0) this.manifestsRead = 'blind';
    for (const unit of units) {
      const known = usage.get(unit.name);
      const facts = { hits: known?.hits ?? 0, lastUsedMs: known?.lastUsedMs ?? unit.createdMs };
      await this.adopt(unit, facts);
    }
    this.reassess();
  }

  /** A unit whose text is not what its name says is kept out of the index, and evicted first. */
  private async adopt(
    unit: Unit,
    usage: { readonly hits: number; readonly lastUsedMs: number },
  ): Promise<void> {
    const seed = this.store.seedOf(Buffer.from(unit.scope, 'hex'), Buffer.from(unit.compat, 'hex'));
    try {
      const { key } = await this.textOf(unit);
      if (key.length === unit.keyBytes && unitName(this.deps.sha256, seed, key) === unit.name) {
        this.store.adopt(unit, { seed, bytes: key }, usage);
        return;
      }
    } catch (error) {
      if (!(error instanceof CoxswainError)) throw error;
      if (error.code !== 'KV_DAMAGED') {
        this.store.catalog.add(unit, usage).state = 'unreadable';
        return;
      }
    }
    this.store.catalog.add(unit, usage).state = 'quarantined';
  }

  /** Manifests that a holder kept and this store lacks. */
  private async rebuild(copies: readonly Uint8Array[]): Promise<void> {
    for (const bytes of copies) {
      const unit = this.readCopy(bytes);
      if (unit === null || this.ended.has(unit.name)) continue;
      if (this.store.catalog.get(unit.name) !== undefined) continue;
      if (this.saves.isSaving(unit.name)) continue;
      if (this.limbo.has(unit.name)) continue;
      const { outcome } = await this.manifests.commit(unit);
      if (outcome === 'uncertain') this.doubt(unit);
      if (outcome !== 'committed') return;
      await this.adopt(unit, { hits: 0, lastUsedMs: unit.createdMs });
    }
  }

  private readCopy(bytes: Uint8Array): Unit | null {
    try {
      const { store, unit } = decodeManifest('a copy of a manifest', bytes);
      return store === this.identity.store ? unit : null;
    } catch (error) {
      if (error instanceof CoxswainError) return null;
      throw error;
    }
  }

  private reassess(): void {
    this.store.catalog.reassess(
      (directory) => this.present.has(directory),
      ({ directory, id, fileBytes }) => this.present.get(directory)?.get(id) === fileBytes,
    );
  }

  private async run(effects: readonly SaveEffect[]): Promise<void> {
    for (const effect of effects) {
      if (effect.type === 'send') this.deliver(effect.directory, effect.message);
      else if (effect.type === 'write-manifest') await this.writeManifest(effect.save, effect.unit);
      else this.finished(effect);
    }
  }

  private async writeManifest(save: string, unit: Unit): Promise<void> {
    const { outcome, cause } = await this.manifests.commit(unit);
    if (outcome !== 'committed') this.writeFailed(new CoxswainError('KV_WRITE_FAILED', cause));
    if (outcome === 'uncertain') this.doubt(unit);
    await this.run(this.saves.manifestWritten(save, outcome, cause));
  }

  private finished(effect: SaveEffect & { readonly type: 'finished' }): void {
    const { save, outcome, cause, unit } = effect;
    const context = this.contexts.get(save);
    this.store.metrics.count('cox_kv_commit_total', [outcome]);
    if (unit !== null && context !== undefined) this.committed(unit, context);
    this.reserved.drop(save);
    this.endContext(save);
    this.deps.onFinished(save, outcome, cause);
  }

  private committed(unit: Unit, context: SaveContext): void {
    const manifest = encodeManifest({ store: this.identity.store, unit });
    let bytes = 0;
    for (const [directory, orders] of context.draft.orders) {
      for (const { id, fileBytes } of orders) {
        this.present.get(directory)?.set(id, fileBytes);
        bytes += fileBytes;
      }
    }
    this.store.adopt(unit, context.key, { hits: 0, lastUsedMs: this.deps.now() });
    this.store.metrics.count('cox_kv_write_bytes_total', [unit.reason], bytes);
    this.reassess();
    for (const directory of context.draft.orders.keys()) {
      this.send(directory, { type: 'commit', save: context.draft.save, name: unit.name, manifest });
    }
  }

  private doubt(unit: Unit): void {
    this.limbo.set(unit.name, this.store.catalog.pinSegments(unit.segments));
  }

  /** Makes certain that manifests in limbo are gone; then what only they name may go. */
  private async clearLimbo(): Promise<void> {
    for (const [name, pin] of [...this.limbo]) {
      try {
        await this.manifests.remove([name]);
      } catch (error) {
        this.writeFailed(error);
        return;
      }
      if (this.limbo.delete(name)) this.deleteSegments(this.store.catalog.unpinSegments(pin));
    }
  }

  /** Segments that were only kept for this save belong to units that are gone meanwhile. */
  private endContext(save: string): void {
    const context = this.contexts.get(save);
    if (context === undefined) return;
    this.contexts.delete(save);
    this.deleteSegments(this.store.catalog.unpinSegments(context.pin));
  }

  /** Units whose manifests are gone: out of index and catalog, and what nobody needs off the disks. */
  private forget(going: readonly UnitRecord[], why: EvictReason): void {
    const names = going.map(({ unit }) => unit.name);
    if (this.wantsCopies) for (const name of names) this.ended.add(name);
    const directories = new Set(going.flatMap(({ unit }) => unit.segments.map((s) => s.directory)));
    const free = going.flatMap((record) => this.store.evict(record, why));
    for (const directory of directories) {
      const segments = free.filter((each) => each.directory === directory).map(({ id }) => id);
      for (const id of segments) this.present.get(directory)?.delete(id);
      // What was damaged can be looked at for a day.
      const aside = why === 'dropped' && segments.length > 0;
      if (aside) this.send(directory, { type: 'trash', segments });
      this.send(directory, { type: 'delete', names, segments: aside ? [] : segments });
    }
  }

  private deleteSegments(segments: readonly Segment[]): void {
    for (const { directory, id } of segments) {
      this.present.get(directory)?.delete(id);
      this.send(directory, { type: 'delete', names: [], segments: [id] });
    }
  }

  /** False: a unit of this name is there and may serve. One that cannot makes way for its successor. */
  private async makeWay(name: string): Promise<boolean> {
    const there = this.store.catalog.get(name);
    if (there === undefined) return true;
    if (there.state === 'complete' || there.state === 'unavailable') return false;
    await this.evict([there], 'dropped');
    return this.store.catalog.get(name) === undefined;
  }

  private async makeRoom(wanted: ReadonlyMap<string, number>): Promise<boolean> {
    const used = (directory: string) =>
      this.store.catalog.bytesIn(directory) + this.reserved.reservedIn(directory);
    for (const [directory, bytes] of wanted) {
      if (bytes > (this.budgets.get(directory) ?? 0) * WATERMARKS.low) return false;
    }
    const need = shortfall(WATERMARKS, this.budgets, used, wanted);
    const { units, enough } = this.store.victims(need, this.deps.now());
    return enough && this.evict(units, 'space');
  }

  private async mayWrite(): Promise<boolean> {
    if (this.manifestsRead === 'blind') return false;
    if (this.gate.open) return true;
    if (!this.gate.probeDue(this.deps.now())) return false;
    const takes = await this.own.directory.probe();
    if (this.gate.probed(takes, this.deps.now())) this.deps.onWriteState(true, '');
    return this.gate.open;
  }

  private writeFailed(error: unknown): void {
    const { message } = toCoxswainError(error);
    if (this.gate.close(message, this.deps.now())) this.deps.onWriteState(false, message);
  }

  private async ownPayload(segment: Segment): Promise<Uint8Array> {
    const open = await this.own.openSegment(segment.id);
    if (open === null) throw new CoxswainError('KV_DAMAGED', `segment ${segment.id} is missing`);
    return this.own.readRange(open, { offset: 0, bytes: open.header.payloadBytes });
  }

  private send(directory: string, message: Unsent): void {
    this.deliver(directory, { ...message, store: this.identity.store, epoch: this.epoch });
  }

  private deliver(directory: string, message: ToHolder): void {
    this.deps.send(directory, message);
  }
}

interface Opened {
  readonly identity: StoreIdentity;
  readonly own: SegmentHolder;
  readonly manifests: ManifestDirectory;
  readonly lock: { release(): Promise<void> };
}

type Unsent = ToHolder extends infer Message
  ? Message extends ToHolder
    ? Omit<Message, 'store' | 'epoch'>
    : never
  : never;

function wantedBytes(draft: SaveDraft): Map<string, number> {
  const wanted = new Map<string, number>();
  for (const [directory, orders] of draft.orders) {
    wanted.set(
      directory,
      orders.reduce((sum, { fileBytes }) => sum + fileBytes, 0),
    );
  }
  return wanted;
}
