// Settings: layers, unknown names, parsed values, contradictions.
import { describe, expect, test } from 'vitest';
import { CoxswainError } from '../../../src/base/errors.ts';
import { isLoopback, rankCount, topologyOf } from '../../../src/config/derive.ts';
import { type ConfigSources, loadConfig } from '../../../src/config/load.ts';
import { OPTIONS } from '../../../src/config/schema.ts';

const file = (settings: unknown) => ({ path: 'cox.json', json: JSON.stringify(settings) });

function refusal(sources: ConfigSources): CoxswainError {
  try {
    loadConfig(sources);
  } catch (error) {
    if (error instanceof CoxswainError) return error;
    throw error;
  }
  throw new Error('not refused');
}

describe('layers', () => {
  test('flags win over the environment, that over the file, that over the default', () => {
    const json = file({ port: 1, threads: 1, ctx: 1, 'kv-type': 'f32' });
    const env = { COX_PORT: '2', COX_THREADS: '2', COX_KV_TYPE: '' };
    const config = loadConfig({ flags: { port: 3, ctx: undefined }, env, file: json });
    expect(config).toMatchObject({ port: 3, threads: 2, ctx: 1, kvType: 'f32', transport: 'auto' });
  });

  test('nothing given is the documented default, frozen', () => {
    const config = loadConfig({});
    expect(config).toEqual({
      model: null,
      name: null,
      host: '127.0.0.1',
      port: 8080,
      apiKeysFile: null,
      listen: { host: '127.0.0.1', port: 0 },
      ranks: null,
      tokenFile: null,
      tp: null,
      split: null,
      pp: null,
      layers: null,
      transport: 'auto',
      threads: null,
      ctx: null,
      kvType: 'f16',
      kvMem: null,
      exact: false,
      slots: 32,
      queue: 256,
      bodyMax: 33_554_432,
      logLevel: 'info',
    });
    expect(Object.isFrozen(config)).toBe(true);
    expect(Object.keys(config)).toEqual(Object.keys(OPTIONS));
  });

  test('a bad value is told even where a better layer covers it, with its origin', () => {
    const error = refusal({ flags: { port: 3 }, file: file({ port: 'high' }) });
    expect(error).toMatchObject({ code: 'CONFIG_INVALID', field: 'port' });
    expect(error.message).toBe('port (cox.json) must be a whole number from 0 to 65535.');
    expect(refusal({ env: { COX_PORT: '70000' } }).message).toContain('COX_PORT');
    expect(refusal({ flags: { port: -1 } }).message).toContain('--port');
  });

  test('an unknown key is named, with the nearest one known', () => {
    const error = refusal({ file: file({ treads: 3 }) });
    expect(error).toMatchObject({ code: 'CONFIG_INVALID', field: 'treads' });
    expect(error.message).toContain(
      'treads (a key in cox.json) is no setting. Did you mean threads?',
    );
    expect(refusal({ flags: { banana: 1 } }).message).not.toContain('Did you mean');
    expect(refusal({ flags: { constructor: 1 } }).code).toBe('CONFIG_INVALID');
  });

  test.each(['[]', 'null', '{', '"x"'])('the file %s is refused', (json) => {
    expect(refusal({ file: { path: 'cox.json', json } }).message).toContain('cox.json');
  });

  test('the environment may hold other COX_ variables', () => {
    expect(loadConfig({ env: { COX_CLUSTER_TOKEN: 'secret', COX_OTHER: '1' } }).port).toBe(8080);
  });
});

describe('values', () => {
  test.each([
    ['8GB', 8e9],
    ['512MiB', 512 * 2 ** 20],
    ['2g', 2 * 2 ** 30],
    ['1.5 GiB', 1.5 * 2 ** 30],
    ['1048576', 1_048_576],
    [1_048_576, 1_048_576],
  ])('the size %s is %d bytes', (text, bytes) => {
    expect(loadConfig({ flags: { 'kv-mem': text } }).kvMem).toBe(bytes);
  });

  test.each(['', '8XB', '-1GB', '1e9', 'GB', '1.5.5MB', '99999999TiB', '10', {}, [1]])(
    '%j is no size for a KV cache',
    (value) => {
      expect(refusal({ flags: { 'kv-mem': value } }).field).toBe('kv-mem');
    },
  );

  test.each([['2,1'], [[2, 1]], ['2.0, 1']])('the split %j has weights 2 and 1', (split) => {
    expect(loadConfig({ flags: { split } }).split).toEqual([2, 1]);
  });

  test('a single weight may arrive as a number', () => {
    expect(loadConfig({ flags: { split: 2 } }).split).toEqual([2]);
  });

  test.each(['', '0,1', '1,-1', '1,,1', '1;2', 'a', [], [1, 'x'], '1,1e3', Array(65).fill(1)])(
    '%j is no split',
    (split) => {
      expect(refusal({ flags: { split } }).field).toBe('split');
    },
  );

  test.each([
    ['0-14,15-29'],
    [['0-14', '15-29']],
    [
      [
        [0, 14],
        [15, 29],
      ],
    ],
  ])('the layers %j are two ranges', (layers) => {
    expect(loadConfig({ flags: { layers } }).layers).toEqual([
      [0, 14],
      [15, 29],
    ]);
  });

  test.each(['1-2', '0-4,6-9', '0-4,4-9', '5-0', '0-4,', '0', '0-x', [[0]], [], 7])(
    '%j are no layers',
    (layers) => {
      expect(refusal({ flags: { layers } }).field).toBe('layers');
    },
  );

  test.each([
    ['10.0.0.1:7070', { host: '10.0.0.1', port: 7070 }],
    ['[::1]:0', { host: '::1', port: 0 }],
    ['box.local:65535', { host: 'box.local', port: 65_535 }],
  ])('ranks may be awaited on %s', (listen, expected) => {
    expect(loadConfig({ flags: { listen } }).listen).toEqual(expected);
  });

  test.each(['7070', ':7070', 'host', 'host:', 'host:65536', '::1:80', 'a b:1', 5])(
    '%j is no place to listen',
    (listen) => {
      expect(refusal({ flags: { listen } }).field).toBe('listen');
    },
  );

  test('exact is a flag, the word true or 1', () => {
    for (const exact of [true, 'true', '1']) {
      expect(loadConfig({ flags: { exact } }).exact).toBe(true);
    }
    expect(loadConfig({ env: { COX_EXACT: '0' } }).exact).toBe(false);
    expect(refusal({ env: { COX_EXACT: 'maybe' } }).field).toBe('exact');
  });

  test('a transport that does not exist is refused with those that do', () => {
    expect(refusal({ flags: { transport: 'ipx' } }).message).toContain(
      'auto, shm, tcp, rdma, grpc',
    );
  });
});

describe('topology', () => {
  const topology = (flags: Record<string, unknown>) => topologyOf(loadConfig({ flags }));

  test('is one rank without options', () => {
    expect(topology({})).toEqual({
      split: [1],
      pp: 1,
      layers: [],
      kvType: 'f16',
      exact: false,
      context: 0,
    });
  });

  test('tp makes equal shares, split uneven ones, layers stages', () => {
    expect(topology({ tp: 3 }).split).toEqual([1, 1, 1]);
    expect(topology({ split: '2,1', tp: 2 }).split).toEqual([2, 1]);
    expect(topology({ layers: '0-4,5-9' }).pp).toBe(2);
    expect(rankCount(loadConfig({ flags: { tp: 2, pp: 2 } }))).toBe(4);
  });

  test('ranks that no option places share every layer', () => {
    expect(topology({ ranks: 2 })).toMatchObject({ split: [1, 1], pp: 1 });
    expect(topology({ ranks: 4, pp: 2 })).toMatchObject({ split: [1, 1], pp: 2 });
    expect(topology({ ranks: 4, tp: 2 })).toMatchObject({ split: [1, 1], pp: 2 });
  });

  test('a flag replaces the other spelling of the same thing in a lesser layer', () => {
    const json = file({ tp: 2, layers: '0-4,5-9' });
    const flags = { split: '3,2,1', pp: 1 };
    expect(topologyOf(loadConfig({ flags, file: json }))).toMatchObject({
      split: [3, 2, 1],
      pp: 1,
      layers: [],
    });
    expect(loadConfig({ flags: { tp: 4 }, env: { COX_SPLIT: '2,1' } }).split).toBeNull();
    expect(refusal({ file: file({ tp: 3, split: [2, 1] }) }).field).toBe('split');
  });

  test('more stages than an engine can queue steps for are refused', () => {
    expect(topology({ pp: 63 }).pp).toBe(63);
    expect(refusal({ flags: { pp: 64 } })).toMatchObject({ code: 'CONFIG_INVALID', field: 'pp' });
    const ranges = Array.from({ length: 64 }, (_, layer) => `${layer}-${layer}`).join(',');
    expect(refusal({ flags: { layers: ranges } }).field).toBe('layers');
  });

  test.each([
    ['split', { split: '2,1', tp: 3 }],
    ['layers', { layers: '0-4,5-9', pp: 3 }],
    ['ranks', { ranks: 3, tp: 2 }],
    ['ranks', { ranks: 3, pp: 2 }],
    ['ranks', { ranks: 2, tp: 2, pp: 2 }],
  ])('a contradiction with %s is told', (field, flags) => {
    expect(refusal({ flags })).toMatchObject({ code: 'CONFIG_INVALID', field });
  });
});

test.each([
  ['127.0.0.1', true],
  ['127.8.9.1', true],
  ['::1', true],
  ['localhost', true],
  ['0.0.0.0', false],
  ['10.0.0.1', false],
  ['127.evil.org', false],
])('%s is loopback: %s', (host, expected) => {
  expect(isLoopback(host)).toBe(expected);
});
