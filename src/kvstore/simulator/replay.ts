// Replays a trace through the store: index, write policy, catalog and eviction are the very ones that
// serve. Only the bytes are not there: a block of 512 tokens is one page of key bytes that spells its id.
import { assert } from '../../base/assert.ts';
import type { Catalog, UnitRecord } from '../core/catalog.ts';
import type { EvictionOrder } from '../core/eviction.ts';
import { inherit, type SaveReason, type Segment, type Unit } from '../core/model.ts';
import { PAGE_BYTES, type Sha256 } from '../core/page-chain.ts';
import type { HalfLifeLimits } from '../core/reuse-gaps.ts';
import { shortfall, WATERMARKS } from '../core/space.ts';
import { type Known, PrefixStore, TTL_MS } from '../core/store.ts';
import {
  planInput,
  type SaveMoment,
  WRITE_OPTIONS,
  type WriteOptions,
} from '../core/write-policy.ts';
import { BLOCK_TOKENS, type TraceRequest } from './trace.ts';

export interface SizeLaw {
  readonly bytesPerToken: number;
  /** Boundary state, logits and the rest of every unit. */
  readonly fixedBytes: number;
}

export interface ReplayOptions {
  readonly capacityTokens: number;
  readonly size: SizeLaw;
  /** chain: units share segments. whole: each unit is one file, as systems without lineages do it. */
  readonly layout: 'chain' | 'whole';
  /** The store's own when absent. */
  readonly order?: (catalog: () => Catalog) => EvictionOrder;
  readonly write?: WriteOptions;
  readonly halfLife?: HalfLifeLimits;
}

export interface ReplayResult {
  /** Share of input tokens whose state was restored. */
  readonly hitRate: number;
  readonly bytesWritten: number;
  readonly units: number;
  readonly evicted: number;
  /** Learned. */
  readonly halfLifeMs: number;
}

/** The first bytes of a page spell the block's id, and an id names its whole prefix: that is a hash. */
const idHash: Sha256 = (first, second) => {
  const page = second.length === 0 ? first : second;
  const hash = new Uint8Array(32);
  hash.set(page.subarray(0, 8));
  return hash;
};

const DIRECTORY = 'simulated';
const SEED = new Uint8Array(32).fill(0xff);

export function replay(requests: readonly TraceRequest[], options: ReplayOptions): ReplayResult {
  const run = new Replay(options);
  for (const request of requests) run.serve(request);
  return run.result();
}

class Replay {
  private readonly options: ReplayOptions;
  private readonly store: PrefixStore;
  private readonly budget: number;
  private hitTokens = 0;
  private inputTokens = 0;
  private bytesWritten = 0;
  private evicted = 0;
  private segmentCount = 0;

  constructor(options: ReplayOptions) {
    this.options = options;
    this.budget = options.capacityTokens * options.size.bytesPerToken;
    const order = options.order?.(() => this.store.catalog);
    this.store = new PrefixStore({
      sha256: idHash,
      ttlMs: TTL_MS,
      ...(order === undefined ? {} : { order }),
      ...(options.halfLife === undefined ? {} : { halfLife: options.halfLife }),
    });
  }

  serve(request: TraceRequest): void {
    this.inputTokens += request.inputTokens;
    const key = keyOf(request.blocks);
    const known = this.store.known(SEED, key);
    const best = known.units[0];
    const restored = best?.unit.tokens ?? 0;
    this.hitTokens += restored;
    if (best !== undefined) this.store.used(best, request.atMs);
    this.save(request, key, known);
    this.store.noteRequest(SEED, key);
  }

  result(): ReplayResult {
    this.store.catalog.check();
    return {
      hitRate: this.hitTokens / this.inputTokens,
      bytesWritten: this.bytesWritten,
      units: this.store.catalog.size,
      evicted: this.evicted,
      halfLifeMs: this.store.gaps.halfLifeMs,
    };
  }

  private save(request: TraceRequest, key: Uint8Array, known: Known): void {
    const promptTokens = request.blocks.length * BLOCK_TOKENS;
    const restored = known.units[0]?.unit.tokens ?? 0;
    const common = Math.floor((known.common?.bytes ?? 0) / PAGE_BYTES) * BLOCK_TOKENS;
    const { size, write } = this.options;
    const plan = planInput(
      write ?? WRITE_OPTIONS,
      {
        promptTokens,
        restoredTokens: restored,
        inputEnd: null,
        common: common === 0 ? null : { tokens: common, endsMessage: false },
        anchor: null,
        fixedTokens: Math.ceil(size.fixedBytes / size.bytesPerToken),
        context: Number.MAX_SAFE_INTEGER,
        sideRequest: false,
      },
      () => false,
    );
    let parent = known.units[0] ?? null;
    for (const moment of plan.moments) {
      parent = this.write(request.atMs, key, moment, parent) ?? parent;
    }
  }

  private write(
    nowMs: number,
    key: Uint8Array,
    moment: SaveMoment,
    parent: UnitRecord | null,
  ): UnitRecord | null {
    const { store } = this;
    const bytes = key.subarray(0, (moment.tokens / BLOCK_TOKENS) * PAGE_BYTES);
    const unit = this.unit(bytes, moment, parent);
    if (store.catalog.get(unit.name) !== undefined) return null;
    const own = unit.segments.filter(({ id }) => !store.catalog.isNeeded(id));
    const ownBytes = own.reduce((sum, { fileBytes }) => sum + fileBytes, 0);
    const pin = store.catalog.pinSegments(
      unit.segments.filter((segment) => !own.includes(segment)),
    );
    const made = this.makeRoom(ownBytes, nowMs);
    if (made) {
      store.adopt(unit, { seed: SEED, bytes }, { hits: 0, lastUsedMs: nowMs });
      this.bytesWritten += ownBytes;
    }
    store.catalog.unpinSegments(pin);
    return store.catalog.get(unit.name) ?? null;
  }

  private makeRoom(bytes: number, nowMs: number): boolean {
    const { store } = this;
    const need = shortfall(
      WATERMARKS,
      new Map([[DIRECTORY, this.budget]]),
      (directory) => store.catalog.bytesIn(directory),
      new Map([[DIRECTORY, bytes]]),
    );
    if (bytes > this.budget * WATERMARKS.low) return false;
    const { units, enough } = store.victims(need, nowMs);
    if (!enough) return false;
    for (const victim of units) store.evict(victim, 'space');
    this.evicted += units.length;
    return true;
  }

  private unit(key: Uint8Array, moment: SaveMoment, parent: UnitRecord | null): Unit {
    const { size, layout } = this.options;
    const inherited =
      layout === 'chain' && parent !== null
        ? inherit(parent.unit, parent.unit.tokens)
        : { segments: [], from: 0 };
    const rows = Math.round((moment.tokens - inherited.from) * size.bytesPerToken);
    const segments = [
      ...inherited.segments,
      this.segment('pool', inherited.from, moment.tokens, rows),
      this.segment('boundary', 0, moment.tokens, Math.round(size.fixedBytes)),
    ];
    return {
      name: `${moment.tokens} ${lastIdOf(key)}`,
      scope: '',
      compat: '',
      tokens: moment.tokens,
      keyBytes: key.length,
      reason: moment.reason satisfies SaveReason,
      createdMs: 0,
      epoch: 1,
      plan: '',
      pools: [],
      segments,
    };
  }

  private segment(
    kind: Segment['kind'],
    tokenBegin: number,
    tokenEnd: number,
    fileBytes: number,
  ): Segment {
    this.segmentCount += 1;
    const id = String(this.segmentCount);
    return {
      id,
      kind,
      directory: DIRECTORY,
      digest: '',
      fileBytes,
      tokenBegin,
      tokenEnd,
      boxes: [],
    };
  }
}

function keyOf(blocks: Int32Array): Uint8Array {
  const key = new Uint8Array(blocks.length * PAGE_BYTES);
  const view = new DataView(key.buffer);
  blocks.forEach((block, index) => {
    view.setUint32(index * PAGE_BYTES, block);
    // Ids begin at 0; the seed's page must not look like one.
    view.setUint32(index * PAGE_BYTES + 4, 1);
  });
  return key;
}

function lastIdOf(key: Uint8Array): number {
  assert(key.length >= PAGE_BYTES, 'a unit has a page');
  return new DataView(key.buffer, key.byteOffset).getUint32(key.length - PAGE_BYTES);
}
