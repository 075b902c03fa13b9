// Cluster token and API keys: where they come from, when they are required, what is refused.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { loadConfig } from '../../../src/config/load.ts';
import { readApiKeys, readClusterToken } from '../../../src/config/secrets.ts';

const folder = mkdtempSync(join(tmpdir(), 'cox-secrets-'));
afterAll(() => rmSync(folder, { recursive: true }));

function written(name: string, text: string): string {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
}

const away = { listen: '10.0.0.1:7070' };

test('a token is required off loopback only', () => {
  expect(readClusterToken(loadConfig({}), {})).toBeNull();
  expect(() => readClusterToken(loadConfig({ flags: away }), {})).toThrow(/COX_CLUSTER_TOKEN/);
});

test('the token file wins over the environment, white space around it does not count', () => {
  const path = written('token', '  0123456789abcdef\n');
  const env = { COX_CLUSTER_TOKEN: 'fedcba9876543210' };
  expect(readClusterToken(loadConfig({ flags: away }), env)).toBe('fedcba9876543210');
  const config = loadConfig({ flags: { ...away, 'token-file': path } });
  expect(readClusterToken(config, env)).toBe('0123456789abcdef');
});

test.each(['x', 'fifteen-letters', 'two words here', ''])(
  'the token file with %j is refused, unquoted',
  (text) => {
    const config = loadConfig({ flags: { 'token-file': written('bad', text) } });
    try {
      readClusterToken(config, {});
    } catch (error) {
      expect(error).toMatchObject({ code: 'CONFIG_INVALID', field: 'token-file' });
      if (text.length > 3) expect(String(error)).not.toContain(text);
      return;
    }
    throw new Error('not refused');
  },
);

test('a missing file is named', () => {
  const config = loadConfig({ flags: { 'token-file': join(folder, 'none') } });
  expect(() => readClusterToken(config, {})).toThrow(/none/);
});

test('API keys are the lines that are not comments', () => {
  const path = written('keys', '# ours\nkey-one\n\n  key-two  \n');
  expect(readApiKeys(loadConfig({ flags: { 'api-keys-file': path } }))).toEqual([
    'key-one',
    'key-two',
  ]);
  expect(readApiKeys(loadConfig({}))).toEqual([]);
});

test.each(['', '# nothing\n', 'two words\n'])(
  'a key file with %j never opens the server',
  (text) => {
    const config = loadConfig({ flags: { 'api-keys-file': written('badkeys', text) } });
    expect(() => readApiKeys(config)).toThrow(/api-keys-file/);
  },
);
