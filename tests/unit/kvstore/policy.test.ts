// What is written, what goes, what is loaded, and what is said about it.
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { createPrng, type Prng } from '../../../src/base/prng.ts';
import { Catalog, type UnitRecord } from '../../../src/kvstore/core/catalog.ts';
import { chooseVictims, decayedScore, expired } from '../../../src/kvstore/core/eviction.ts';
import { cacheUsage, classifyMiss, type MissFacts } from '../../../src/kvstore/core/misses.ts';
import {
  inherit,
  RANGES_MAX,
  rangesOf,
  type Segment,
  type Unit,
} from '../../../src/kvstore/core/model.ts';
import {
  decideRestore,
  type RestoreRates,
  Strikes,
} from '../../../src/kvstore/core/restore-plan.ts';
import { HALF_LIFE, ReuseGaps } from '../../../src/kvstore/core/reuse-gaps.ts';
import {
  Reservations,
  shareOut,
  shortfall,
  WATERMARKS,
  WriteGate,
} from '../../../src/kvstore/core/space.ts';
import { PrefixStore, TTL_MS } from '../../../src/kvstore/core/store.ts';
import { witnessFault } from '../../../src/kvstore/core/witness.ts';
import {
  type InputFacts,
  intervalTokens,
  nextInterval,
  planInput,
  planSlot,
  WRITE_OPTIONS,
} from '../../../src/kvstore/core/write-policy.ts';
import { sha256 } from '../../../src/kvstore/format/hashing.ts';
import { blockCacheHitRate } from '../../../src/kvstore/simulator/block-cache.ts';
import { replay } from '../../../src/kvstore/simulator/replay.ts';
import { leastRecentlyUsed } from '../../../src/kvstore/simulator/rival-orders.ts';
import { BYTES_PER_TOKEN } from '../../../src/kvstore/simulator/table.ts';
import { readTrace } from '../../../src/kvstore/simulator/trace.ts';
import { bytesOf, seedOf } from './hashing.ts';

let made = 0;
function segment(begin: number, end: number, bytes: number, directory = 'd'): Segment {
  made += 1;
  const place = { id: `s${made}`, kind: 'pool' as const, directory, digest: '' };
  return { ...place, fileBytes: bytes, tokenBegin: begin, tokenEnd: end, boxes: [] };
}

function unit(name: string, tokens: number, segments: readonly Segment[]): Unit {
  const identity = { name, scope: '', compat: '', plan: '', tokens, keyBytes: tokens };
  const facts = { reason: 'prompt-end' as const, createdMs: 0, epoch: 1, pools: [] };
  return { ...identity, ...facts, segments };
}

/** A child of `parent` that adds one segment. */
function child(name: string, tokens: number, parent: Unit, bytes: number): Unit {
  const { segments, from } = inherit(parent, parent.tokens);
  return unit(name, tokens, [...segments, segment(from, tokens, bytes)]);
}

/** Units come and go at random, with pins now and then. */
class CatalogLife {
  readonly catalog = new Catalog();
  private readonly prng: Prng;
  private readonly units: Unit[] = [];
  private readonly pins: ReturnType<Catalog['pinSegments']>[] = [];

  constructor(prng: Prng) {
    this.prng = prng;
  }

  change(round: number): void {
    const { prng } = this;
    const any = this.units[prng.below(Math.max(1, this.units.length))];
    if (any === undefined || prng.chance(0.45)) this.grow(round, any ?? null);
    else if (prng.chance(0.5)) this.remove(any);
    else if (this.pins.length < 5) this.pins.push(this.catalog.pinSegments(any.segments));
    else this.unpin();
  }

  end(): void {
    while (this.pins.length > 0) this.unpin();
    for (const { name } of this.units) this.catalog.remove(name);
    this.catalog.check();
  }

  private grow(round: number, parent: Unit | null): void {
    const { prng } = this;
    const bytes = 1 + prng.below(9);
    const name = `u${round}`;
    const grown =
      parent === null || prng.chance(0.2)
        ? unit(name, 300, [segment(0, 300, bytes)])
        : child(name, parent.tokens + 1 + prng.below(600), parent, bytes);
    this.units.push(grown);
    this.catalog.add(grown, { hits: 0, lastUsedMs: round });
  }

  private remove(gone: Unit): void {
    this.units.splice(this.units.indexOf(gone), 1);
    const freed = this.catalog.remove(gone.name);
    const needed = new Set(this.units.flatMap((other) => other.segments.map(({ id }) => id)));
    expect(freed.filter(({ id }) => needed.has(id))).toEqual([]);
  }

  private unpin(): void {
    const [pin] = this.pins.splice(this.prng.below(this.pins.length), 1);
    if (pin !== undefined) this.catalog.unpinSegments(pin);
  }
}

describe('lineages', () => {
  test('a child takes over full pages and writes the partial one again', () => {
    const parent = unit('a', 1000, [segment(0, 1000, 10)]);
    expect(inherit(parent, 1000)).toEqual({ segments: parent.segments, from: 768 });
    expect(inherit(parent, 500).from).toBe(256);
    expect(inherit(parent, 255)).toEqual({ segments: [], from: 0 });
    expect(inherit(null, 1000)).toEqual({ segments: [], from: 0 });
  });

  test('a lineage of more than 16 ranges is written whole again', () => {
    let last = unit('0', 256, [segment(0, 256, 1)]);
    const ranges: number[] = [];
    for (let turn = 2; turn <= 40; turn += 1) {
      last = child(String(turn), turn * 256, last, 1);
      ranges.push(rangesOf(last.segments).length);
    }
    expect(Math.max(...ranges)).toBe(RANGES_MAX);
    expect(ranges.filter((count) => count === 1).length).toBeGreaterThan(1);
  });

  test('accounts follow from units and pins, through 3,000 random changes', () => {
    const life = new CatalogLife(createPrng(5));
    for (let round = 0; round < 3000; round += 1) {
      life.change(round);
      if (round % 50 === 0) life.catalog.check();
    }
    life.end();
    expect(life.catalog.totalBytes).toBe(0);
  });

  test('a damaged segment takes every unit that names it, and no other', () => {
    const catalog = new Catalog();
    const parent = unit('a', 512, [segment(0, 512, 1)]);
    const heir = child('b', 900, parent, 1);
    const other = unit('c', 512, [segment(0, 512, 1)]);
    for (const each of [parent, heir, other]) catalog.add(each, { hits: 0, lastUsedMs: 0 });
    const hit = catalog.quarantine(parent.segments[0]?.id ?? '');
    expect(hit.map((record) => record.unit.name)).toEqual(['a', 'b']);
    expect(catalog.get('c')?.state).toBe('complete');
  });

  test('an absent directory makes units unavailable, a missing file loses them, a return heals', () => {
    const catalog = new Catalog();
    const record = catalog.add(unit('a', 256, [segment(0, 256, 1)]), { hits: 0, lastUsedMs: 0 });
    const states = [
      [false, false],
      [true, false],
      [true, true],
    ].map(([there, file]) => {
      catalog.reassess(
        () => there === true,
        () => file === true,
      );
      return record.state;
    });
    expect(states).toEqual(['unavailable', 'lost', 'complete']);
  });
});

describe('eviction', () => {
  const H = HALF_LIFE.initialMs;
  const names = (records: readonly UnitRecord[]) => records.map((record) => record.unit.name);
  const need = (bytes: number, directory = 'd') => new Map([[directory, bytes]]);

  function stocked() {
    const catalog = new Catalog();
    const root = unit('root', 512, [segment(0, 512, 100)]);
    const left = child('left', 1000, root, 10);
    const right = child('right', 1000, root, 10);
    catalog.add(root, { hits: 9, lastUsedMs: 0 });
    catalog.add(left, { hits: 0, lastUsedMs: 2 * H });
    catalog.add(right, { hits: 3, lastUsedMs: H });
    return catalog;
  }
  const victims = (catalog: Catalog, bytes: Map<string, number>) =>
    chooseVictims(catalog, bytes, decayedScore(new ReuseGaps()), 3 * H);

  test('takes leaves before ancestors, by decayed hits', () => {
    // left: 0 - 1, right: 2 - 2, root: log2(10) - 3, in half-lives.
    expect(names(victims(stocked(), need(5)).units)).toEqual(['left']);
    expect(names(victims(stocked(), need(15)).units)).toEqual(['left', 'right']);
    expect(names(victims(stocked(), need(25)).units)).toEqual(['left', 'right', 'root']);
  });

  test('spares what is pinned, and says so when that leaves too little', () => {
    const catalog = stocked();
    const left = catalog.get('left');
    if (left !== undefined) catalog.pinUnit(left);
    expect(victims(catalog, need(15)).enough).toBe(false);
    expect(names(victims(catalog, need(5)).units)).toEqual(['right']);
  });

  test('takes only what frees the directory that is too full', () => {
    const catalog = stocked();
    catalog.add(unit('far', 512, [segment(0, 512, 50, 'e')]), { hits: 99, lastUsedMs: 3 * H });
    expect(names(victims(catalog, need(5, 'e')).units)).toEqual(['far']);
    expect(victims(catalog, need(51, 'e')).enough).toBe(false);
  });

  test('takes damaged units first', () => {
    const catalog = stocked();
    const damaged = catalog.add(unit('bad', 512, [segment(0, 512, 50)]), {
      hits: 99,
      lastUsedMs: 3 * H,
    });
    damaged.state = 'quarantined';
    expect(names(victims(catalog, need(5)).units)).toEqual(['bad']);
  });

  test('expires leaves that nobody used for the time to live', () => {
    const catalog = stocked();
    expect(names(expired(catalog, TTL_MS, TTL_MS + H))).toEqual([]);
    expect(names(expired(catalog, TTL_MS, TTL_MS + H + 1))).toEqual(['right']);
  });

  test('learns the half-life as half the median gap, within limits', () => {
    const gaps = new ReuseGaps();
    for (let count = 0; count < 15; count += 1) gaps.note(1e6);
    expect(gaps.halfLifeMs).toBe(HALF_LIFE.initialMs);
    gaps.note(1e6);
    expect(gaps.halfLifeMs).toBe(5e5);
    for (let count = 0; count < 256; count += 1) gaps.note(10);
    expect(gaps.halfLifeMs).toBe(HALF_LIFE.minMs);
  });
});

describe('write moments', () => {
  const facts: InputFacts = {
    promptTokens: 25_000,
    restoredTokens: 0,
    inputEnd: 24_990,
    common: null,
    anchor: null,
    fixedTokens: 0,
    context: 131_072,
    sideRequest: false,
  };
  const plan = (more: Partial<InputFacts>, exists: readonly number[] = []) =>
    planInput(WRITE_OPTIONS, { ...facts, ...more }, (tokens) => exists.includes(tokens));
  const moments = (more: Partial<InputFacts>) =>
    plan(more).moments.map(({ tokens, reason }) => `${reason} ${tokens}`);

  test('an input is saved at intervals, before the assistant header, and at its end', () => {
    expect(moments({})).toEqual([
      'interval 10240',
      'interval 20480',
      'input-end 24990',
      'prompt-end 25000',
    ]);
  });

  test('a shared beginning is saved in the same prefill', () => {
    const common = { tokens: 9000, endsMessage: false };
    expect(moments({ common })[0]).toBe('common-prefix 9000');
  });

  test('a short shared beginning is kept where it is whole messages', () => {
    const short = (endsMessage: boolean) => moments({ common: { tokens: 100, endsMessage } })[0];
    expect([short(true), short(false)]).toEqual(['common-prefix 100', 'interval 10240']);
  });

  test('an anchor lies on a page, and is refreshed when a hit ends below it', () => {
    expect(moments({ anchor: 9000 })[0]).toBe('anchor 8960');
    expect(moments({ anchor: 9000, restoredTokens: 4000 })[0]).toBe('anchor 8960');
    expect(moments({ anchor: 9000, restoredTokens: 8960 })[0]).toBe('interval 10240');
    expect(moments({ anchor: 9000, promptTokens: 31_000 })[0]).toBe('interval 10240');
  });

  test('what is not saved says why', () => {
    const causes = (more: Partial<InputFacts>, exists: readonly number[] = []) =>
      plan(more, exists).skipped.map(({ tokens, cause }) => `${cause} ${tokens}`);
    expect(causes({ promptTokens: 100, inputEnd: null })).toEqual(['too-short 100']);
    expect(causes({ promptTokens: 600, inputEnd: null }, [600])).toEqual(['exists 600']);
    expect(causes({ promptTokens: 600, inputEnd: 590, restoredTokens: 595 })).toEqual([
      'already-computed 590',
    ]);
    expect(causes({ promptTokens: 600, inputEnd: null, sideRequest: true })).toEqual([
      'side-request 600',
    ]);
  });

  test('the interval is at most a quarter of the context and at least five times the fixed cost', () => {
    expect(intervalTokens(WRITE_OPTIONS, { fixedTokens: 0, context: 8192 })).toBe(2048);
    expect(intervalTokens(WRITE_OPTIONS, { fixedTokens: 3000, context: 131_072 })).toBe(14_848);
    expect(intervalTokens({ ...WRITE_OPTIONS, intervalTokens: 0 }, facts)).toBe(0);
    const output = { savedTokens: 0, fixedTokens: 0, context: 131_072 };
    expect(nextInterval(WRITE_OPTIONS, 20_480, output)).toBe(30_720);
  });

  test('a slot is saved at the end of an answer, when it loses its memory, and at shutdown', () => {
    const slot = { tokens: 600, savedTokens: 0, cancelled: false, sideRequest: false };
    const said = (
      moment: 'output-end' | 'slot-evicted' | 'shutdown',
      more: Partial<typeof slot>,
    ) => {
      const plan = planSlot(WRITE_OPTIONS, moment, { ...slot, ...more });
      return 'cause' in plan ? plan.cause : plan.reason;
    };
    expect(said('output-end', {})).toBe('output-end');
    expect(said('output-end', { cancelled: true })).toBe('cancelled');
    expect(said('slot-evicted', { cancelled: true })).toBe('slot-evicted');
    expect(said('shutdown', { savedTokens: 600 })).toBe('exists');
    expect(said('shutdown', { tokens: 511 })).toBe('too-short');
    expect(said('output-end', { sideRequest: true })).toBe('side-request');
  });
});

describe('restore', () => {
  const rates: RestoreRates = {
    prefillTokensPerSecond: 1000,
    loadBytesPerSecond: 1e9,
    loadFixedMs: 10,
    linkBytesPerSecond: 1e8,
  };
  const unitAt = (tokens: number, bytes: number, more = {}) => ({
    name: `u${tokens}`,
    tokens,
    localBytes: bytes,
    remoteBytes: 0,
    recut: false,
    ...more,
  });
  const decide = (
    candidates: Parameters<typeof decideRestore>[2],
    liveTokens = 0,
    deterministic = false,
  ) => decideRestore(rates, { deterministic }, candidates, { promptTokens: 4096, liveTokens });

  test('loads where reading is faster than computing', () => {
    expect(decide([unitAt(4000, 1e8)])).toMatchObject({ kind: 'load', name: 'u4000' });
    expect(decide([unitAt(64, 1e8)])).toMatchObject({ kind: 'prefill', costMs: 4096 });
  });

  test('loads a shorter unit and computes the rest where that is faster', () => {
    const pulled = unitAt(4000, 0, { remoteBytes: 1e9 });
    expect(decide([pulled, unitAt(3000, 1e8)])).toMatchObject({ name: 'u3000' });
  });

  test('weighs a live beginning against a longer load', () => {
    expect(decide([unitAt(4000, 1e9)], 3500)).toMatchObject({ kind: 'prefill', costMs: 596 });
    expect(decide([unitAt(3000, 1)], 3500)).toMatchObject({ kind: 'prefill' });
  });

  test('refuses re-cut units when answers must be bitwise the same', () => {
    const recut = unitAt(4000, 1, { recut: true });
    expect([decide([recut]).kind, decide([recut], 0, true).kind]).toEqual(['load', 'prefill']);
  });

  test('drops a unit at its second failure in a row', () => {
    const strikes = new Strikes();
    expect([strikes.strike('a'), strikes.strike('b')]).toEqual([false, false]);
    strikes.progress('a');
    expect([strikes.strike('a'), strikes.strike('a')]).toEqual([false, true]);
  });
});

describe('the witness', () => {
  const stored = Float32Array.of(1, 5, -Infinity, 2);
  const off = (by: number) => Float32Array.of(1, 5 + by, -Infinity, 2);
  const fault = (got: Float32Array, bitwise: boolean) =>
    witnessFault(stored, got, { bitwise, most: 0.01 });

  test('must come back bit for bit under the same plan, and within the bound when re-cut', () => {
    expect([fault(off(0), true), fault(off(0.005), false)]).toEqual([null, null]);
    expect(fault(off(0.005), true)).toMatch(/logit 1/);
    expect(fault(off(0.02), false)).toMatch(/logit 1/);
  });

  test('nothing passes that is no number, or of another size', () => {
    expect(fault(off(Number.NaN), false)).toMatch(/logit 1/);
    expect(fault(Float32Array.of(1, 5, 3, 2), false)).toMatch(/logit 2/);
    expect(fault(stored.slice(1), false)).toMatch(/3 logits/);
  });
});

describe('space', () => {
  test('the budget is shared out by weight and capped by the disk', () => {
    const directories = [
      { weight: 2, freeBytes: 1e9 },
      { weight: 1, freeBytes: 10 },
      { weight: 1, freeBytes: 1e9 },
    ];
    expect(shareOut(1000, directories)).toEqual([500, 10, 250]);
    expect(shareOut(1000, [{ weight: 0, freeBytes: 5 }])).toEqual([0]);
  });

  test('space is made down to the low mark, counting reservations', () => {
    const reserved = new Reservations();
    reserved.add('s', new Map([['d', 500]]));
    const used = (directory: string) => 400 + reserved.reservedIn(directory);
    const need = shortfall(WATERMARKS, new Map([['d', 1000]]), used, new Map([['d', 100]]));
    expect(need.get('d')).toBe(Math.ceil(1000 - 1000 * WATERMARKS.low));
    expect(shortfall(WATERMARKS, new Map([['d', 1000]]), used, new Map([['d', 50]])).size).toBe(0);
  });

  test('a failing disk warns once, probes, and comes back', () => {
    const gate = new WriteGate();
    expect([gate.close('ENOSPC', 0), gate.close('ENOSPC', 1)]).toEqual([true, false]);
    expect([gate.open, gate.probeDue(29_000), gate.probeDue(31_000)]).toEqual([false, false, true]);
    expect([gate.probed(false, 31_000), gate.probeDue(40_000)]).toEqual([false, false]);
    expect([gate.probed(true, 62_000), gate.open]).toEqual([true, true]);
  });
});

describe('what is said of a miss', () => {
  const facts: MissFacts = {
    promptBytes: 5000,
    common: { bytes: 3000, sourceBytes: 4000 },
    usedBytes: 2000,
    refused: null,
    minBytes: 1000,
    sections: [
      { kind: 'tools', message: null, end: 1000 },
      { kind: 'system', message: null, end: 2000 },
      { kind: 'message', message: 3, end: 5000 },
    ],
  };
  test.each([
    ['nothing known', { common: null }, 'unknown', null],
    ['another message', {}, 'message', 3000],
    ['other tools', { common: { bytes: 10, sourceBytes: 4000 } }, 'tools', 10],
    ['all used', { common: { bytes: 4000, sourceBytes: 4000 }, usedBytes: 4000 }, 'extended', 4000],
    ['no state kept', { common: { bytes: 4000, sourceBytes: 4000 } }, 'no-unit', 4000],
    [
      'too short to keep',
      { common: { bytes: 90, sourceBytes: 90 }, usedBytes: 0 },
      'too-short',
      90,
    ],
    ['damage', { refused: 'damaged' as const }, 'damaged', 3000],
  ])('%s', (_what, more, wanted, offset) => {
    expect(classifyMiss({ ...facts, ...more })).toMatchObject({ class: wanted, offset });
  });

  test('hit and missed tokens add up; what was rebuilt is missed', () => {
    expect(cacheUsage(100, 60, 'unit-loaded')).toMatchObject({ hitTokens: 60, missTokens: 40 });
    expect(cacheUsage(100, 60, 'unit-rebuilt')).toMatchObject({ hitTokens: 0, missTokens: 100 });
  });
});

describe('the store', () => {
  const seed = seedOf('scope');
  const stored = (store: PrefixStore, text: string) =>
    store.adopt(
      { ...unit(text, 256, [segment(0, 256, 1)]), keyBytes: text.length },
      { seed, bytes: bytesOf(text) },
      { hits: 0, lastUsedMs: 0 },
    );

  test('offers complete units, longest first, and forgets what is evicted or damaged', () => {
    const store = new PrefixStore({ sha256, ttlMs: TTL_MS });
    const [short, long] = [stored(store, 'ab'), stored(store, 'abcd')];
    const offered = () => store.known(seed, bytesOf('abcdef')).units.map(({ unit }) => unit.name);
    expect(offered()).toEqual(['abcd', 'ab']);
    long.state = 'unavailable';
    expect(offered()).toEqual(['ab']);
    long.state = 'complete';
    store.quarantine(long.unit.segments[0]?.id ?? '');
    expect(offered()).toEqual(['ab']);
    store.used(short, 5000);
    expect(short).toMatchObject({ hits: 1, lastUsedMs: 5000 });
    store.evict(short, 'space');
    expect(offered()).toEqual([]);
    expect(store.metrics.snapshot()).toContainEqual({
      name: 'cox_kv_evict_total',
      labels: { reason: 'space', never_hit: 'false' },
      value: 1,
    });
  });

  test('knows live slots as it knows units, within their scope', () => {
    const store = new PrefixStore({ sha256, ttlMs: TTL_MS });
    store.slotHolds('1', seed, bytesOf('ab'));
    store.slotHolds('1', seed, bytesOf('abc'));
    const slots = (scope: Uint8Array) => store.known(scope, bytesOf('abcd')).slots;
    expect(slots(seed)).toEqual([{ kind: 'slot', id: '1', length: 3 }]);
    expect(slots(seedOf('other'))).toEqual([]);
    store.slotGone('1');
    expect(slots(seed)).toEqual([]);
  });

  test('never offers a unit of another scope', () => {
    const store = new PrefixStore({ sha256, ttlMs: TTL_MS });
    stored(store, 'abcd');
    expect(store.known(seedOf('other'), bytesOf('abcdef'))).toEqual({
      units: [],
      slots: [],
      common: null,
    });
  });
});

describe('traces', () => {
  const path = fileURLToPath(
    new URL('../../vectors/traces/mooncake_synthetic_trace.jsonl', import.meta.url),
  );
  const trace = readTrace(path);

  test('a block cache with LRU hits .5768 of the synthetic trace at 10M tokens', () => {
    expect(Math.abs(blockCacheHitRate(trace, 1e7) - 0.5768)).toBeLessThanOrEqual(0.0005);
  });

  test('the store’s order is no worse than LRU on the first two thousand requests', () => {
    const size = { bytesPerToken: BYTES_PER_TOKEN, fixedBytes: 0 };
    const some = trace.slice(0, 2000);
    const rate = (more: object) =>
      replay(some, { capacityTokens: 5e6, size, layout: 'chain', ...more }).hitRate;
    expect(rate({})).toBeGreaterThanOrEqual(rate({ order: () => leastRecentlyUsed }));
  });

  test('a line that is no request is named', () => {
    expect(() => readTrace(fileURLToPath(import.meta.url))).toThrow(
      /policy\.test\.ts:1 is no request/,
    );
  });
});
