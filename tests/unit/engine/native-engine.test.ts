// The addon's engine at its edges: arguments, refusals, fences and its end. What it computes is tested in
// tests/numeric.
import { afterEach, describe, expect, it } from 'vitest';
import type { EngineOptions, EpochSpec } from '../../../src/engine/engine.ts';
import { NativeEngine } from '../../../src/engine/native-engine.ts';
import { encodeStepRecord } from '../../../src/wire/step-codec.ts';
import { oracleModel } from '../../numeric/driver.ts';

const OPTIONS: EngineOptions = {
  path: oracleModel('llama-q.q8_0'),
  topology: { split: [1], pp: 1, layers: [], kvType: 'f16', exact: false, context: 512 },
  rank: 0,
  threads: 1,
  kvBlocks: 2,
  slotsMax: 2,
  stepRowsMax: 16,
  shareCores: true,
  dataHost: '127.0.0.1',
};
const SPEC: EpochSpec = {
  epoch: 1,
  incarnation: '0'.repeat(32),
  rank: 0,
  dataKey: new Uint8Array(32),
  links: [],
  firstStep: 1,
  openTimeoutMs: 20_000,
};

const engines: NativeEngine[] = [];
function makeEngine(): NativeEngine {
  const engine = new NativeEngine();
  engines.push(engine);
  return engine;
}
afterEach(async () => {
  await Promise.all(engines.splice(0).map((engine) => engine.close()));
});

describe('a native engine', () => {
  it('says what it loaded', async () => {
    const facts = await makeEngine().load(OPTIONS);
    expect(facts).toMatchObject({ vocab: 512, context: 512, numericsId: 'cpu2-a8' });
    expect(facts.fingerprint).toMatch(/^[0-9a-f]{64}$/);
    expect(facts.planHash).toMatch(/^[0-9a-f]{64}$/);
    expect(facts.weightBytes).toBeGreaterThan(500_000);
    // 2 blocks x 256 tokens x 2 layers x 2 KV heads x 64 x (K and V) x 2 bytes
    expect(facts.kvBytes).toBe(2 * 256 * 2 * 2 * 64 * 2 * 2);
    expect(facts.dataPort).toBeGreaterThan(0);
  });

  it.each([
    ['a file that does not exist', { path: '/no/such/model.gguf' }, 'FILE_UNREADABLE'],
    ['a file that is no model', { path: import.meta.filename }, 'GGUF_INVALID'],
    ['a rank beyond the plan', { rank: 1 }, 'PLAN_IMPOSSIBLE'],
    ['no threads', { threads: 0 }, 'CONFIG_INVALID'],
    ['no KV blocks', { kvBlocks: 0 }, 'CONFIG_INVALID'],
    ['KV blocks beyond every memory', { kvBlocks: 4e9 }, 'MEMORY_EXHAUSTED'],
  ])('refuses %s', async (_title, change, code) => {
    await expect(makeEngine().load({ ...OPTIONS, ...change })).rejects.toMatchObject({ code });
  });

  it('refuses a plan with more stages than layers in one sentence', async () => {
    const topology = { ...OPTIONS.topology, pp: 5 };
    await expect(makeEngine().load({ ...OPTIONS, topology })).rejects.toMatchObject({
      code: 'PLAN_IMPOSSIBLE',
    });
  });

  it('is not ready before it has loaded', async () => {
    const engine = makeEngine();
    expect(() => engine.submit(new Uint8Array(4))).toThrow(/not loaded/);
    await expect(engine.openEpoch(SPEC)).rejects.toMatchObject({ code: 'CLUSTER_NOT_READY' });
  });

  it('answers steps and reports its progress', async () => {
    const engine = makeEngine();
    await engine.load(OPTIONS);
    expect(await engine.openEpoch(SPEC)).toEqual([]);
    const answered = new Promise((resolve) => engine.onEvent(resolve));
    engine.submit(encodeStepRecord({ epoch: 1, step: 1, slotOps: [], runs: [], outputs: [] }));
    expect(await answered).toMatchObject({ kind: 'result', epoch: 1, step: 1 });
    expect(engine.progress()).toMatchObject({ epoch: 1, step: 1 });
    expect(engine.counters().collectives).toBe(0);
  });

  it('gives a malformed record back as an event', async () => {
    const engine = makeEngine();
    await engine.load(OPTIONS);
    await engine.openEpoch(SPEC);
    const answered = new Promise((resolve) => engine.onEvent(resolve));
    engine.submit(new Uint8Array([1, 2, 3]));
    expect(await answered).toMatchObject({ kind: 'failed', code: 'STEP_INVALID' });
  });

  it('stops opening links when it is fenced', async () => {
    const engine = makeEngine();
    await engine.load(OPTIONS);
    const links = [{ peer: 1, transport: 'tcp' as const, host: '127.0.0.1', port: 9 }];
    const opening = engine.openEpoch({ ...SPEC, links });
    const refused = expect(opening).rejects.toMatchObject({ code: 'EPOCH_FENCED' });
    await new Promise((resolve) => setTimeout(resolve, 50));
    const startedAt = performance.now();
    await engine.fence();
    await refused;
    expect(performance.now() - startedAt).toBeLessThan(2_000);
    // And is as good as new in the next epoch.
    expect(await engine.openEpoch({ ...SPEC, epoch: 2 })).toEqual([]);
  });

  it('leaves the epoch it was fenced out of, even when the next one is opened at once', async () => {
    const engine = makeEngine();
    await engine.load(OPTIONS);
    const links = [{ peer: 1, transport: 'tcp' as const, host: '127.0.0.1', port: 9 }];
    const opening = engine.openEpoch({ ...SPEC, links });
    const refused = expect(opening).rejects.toMatchObject({ code: 'EPOCH_FENCED' });
    await new Promise((resolve) => setTimeout(resolve, 50));
    const startedAt = performance.now();
    await engine.fence();
    expect(await engine.openEpoch({ ...SPEC, epoch: 2 })).toEqual([]);
    await refused;
    expect(performance.now() - startedAt).toBeLessThan(2_000);
  });

  it('closes while it loads, and while it opens links', async () => {
    const loading = makeEngine();
    const loaded = loading.load(OPTIONS);
    await loading.close();
    expect((await loaded).vocab).toBeGreaterThan(0);

    const engine = makeEngine();
    await engine.load(OPTIONS);
    const links = [{ peer: 1, transport: 'tcp' as const, host: '127.0.0.1', port: 9 }];
    const opening = engine.openEpoch({ ...SPEC, links });
    const refused = expect(opening).rejects.toMatchObject({ code: 'EPOCH_FENCED' });
    await new Promise((resolve) => setTimeout(resolve, 50));
    const startedAt = performance.now();
    await engine.close();
    await refused;
    expect(performance.now() - startedAt).toBeLessThan(2_000);
  });

  it('refuses to mix links over grpc with others', async () => {
    const engine = makeEngine();
    await engine.load(OPTIONS);
    const links = [
      { peer: 1, transport: 'tcp' as const, host: '127.0.0.1', port: 9 },
      { peer: 2, transport: 'grpc' as const, host: '127.0.0.1', port: 9 },
    ];
    await expect(engine.openEpoch({ ...SPEC, links })).rejects.toMatchObject({
      code: 'CONFIG_INVALID',
    });
  });

  it('closes at any time and often; late frames do no harm', async () => {
    const engine = makeEngine();
    await engine.load(OPTIONS);
    await engine.close();
    await engine.close();
    expect(() => engine.progress()).toThrow(/closed/);
    expect(() => engine.submit(new Uint8Array(4))).toThrow(/closed/);
    engine.grpc.deliver(1, new Uint8Array(8));
    engine.grpc.closed(1, 'its process ended');
    await makeEngine().close();
  });
});
