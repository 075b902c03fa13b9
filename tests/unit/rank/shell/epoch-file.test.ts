// The epoch that survives a rank's process, and what is said of hosts and addresses.
import { mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openEpochStore } from '../../../../src/rank/shell/epoch-file.ts';
import {
  hostFacts,
  localAddressTowards,
  parseAddress,
} from '../../../../src/rank/shell/host-facts.ts';

let directory: string;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'cox-epoch-'));
});
afterEach(() => rmSync(directory, { recursive: true }));

describe('the epoch file', () => {
  it('begins at zero and keeps what was written, for this rank only', async () => {
    const state = join(directory, 'made', 'when needed');
    const store = openEpochStore(state, 'rank-1');
    expect(await store.read()).toEqual({ epoch: 0, incarnation: '' });
    await store.write({ epoch: 4, incarnation: 'ab' });
    await store.write({ epoch: 5, incarnation: 'cd' });
    expect(await openEpochStore(state, 'rank-1').read()).toEqual({ epoch: 5, incarnation: 'cd' });
    expect(await openEpochStore(state, 'rank-2').read()).toEqual({ epoch: 0, incarnation: '' });
  });

  it('is readable by its owner only and leaves no scratch file', async () => {
    await openEpochStore(directory, 'rank-0').write({ epoch: 1, incarnation: '' });
    expect(readdirSync(directory)).toEqual(['rank-0.epoch.json']);
    expect(statSync(join(directory, 'rank-0.epoch.json')).mode & 0o777).toBe(0o600);
  });

  it.each([
    '',
    '{"epoch":',
    '{"epoch":"5","incarnation":""}',
    '[]',
    '{"epoch":1.5,"incarnation":""}',
  ])('is refused when it holds %j: guessing could obey two coordinators', async (text) => {
    writeFileSync(join(directory, 'rank-0.epoch.json'), text);
    await expect(openEpochStore(directory, 'rank-0').read()).rejects.toMatchObject({
      code: 'FILE_UNREADABLE',
    });
  });

  it('fails where it cannot be written', async () => {
    writeFileSync(join(directory, 'file'), '');
    const store = openEpochStore(join(directory, 'file'), 'rank-0');
    await expect(store.write({ epoch: 1, incarnation: '' })).rejects.toThrow();
  });

  it('is kept in memory without a state directory', async () => {
    const store = openEpochStore(null, 'rank-0');
    await store.write({ epoch: 3, incarnation: 'x' });
    expect(await store.read()).toEqual({ epoch: 3, incarnation: 'x' });
  });
});

describe('addresses', () => {
  it.each([
    ['host:1', 'host', 1],
    ['127.0.0.1:65535', '127.0.0.1', 65_535],
    ['[fe80::1]:80', 'fe80::1', 80],
    [':4000', '', 4000],
  ])('%s is %s and %i', (text, host, port) => {
    expect(parseAddress(text)).toEqual({ host, port });
  });

  it.each(['host', 'host:', 'host:x', 'host:65536', '::1:80', ''])('%j is none', (text) => {
    expect(() => parseAddress(text)).toThrow(/is no HOST:PORT/);
  });

  it('towards loopback leave from loopback', async () => {
    expect(await localAddressTowards('127.0.0.1', 9)).toBe('127.0.0.1');
  });
});

describe('host facts', () => {
  it('say the same host id twice, and of cores and memory what is there', () => {
    const facts = hostFacts();
    expect(facts.hostId).toMatch(/^[0-9a-f]{32}$/);
    expect(hostFacts().hostId).toBe(facts.hostId);
    expect(facts.cores).toBeGreaterThan(0);
    expect(facts.memoryBytes).toBeGreaterThan(0);
  });
});
