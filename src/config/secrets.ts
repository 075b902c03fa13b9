// Secrets that settings name: the cluster token and the API keys. They are read where they are needed,
// never become part of ClusterConfig (which may be logged), and no message quotes them.
import { readFileSync } from 'node:fs';
import { CoxswainError } from '../base/errors.ts';
import { isLoopback } from './derive.ts';
import type { ClusterConfig } from './schema.ts';

/** As src/wire/keys.ts. Stops accidents ("x"), not weak choices: docs/config.md says how to make a good one. */
const TOKEN_CHARS_MIN = 16;
const SECRET_CHARS_MAX = 4096;
const API_KEYS_MAX = 10_000;

type Env = Readonly<Record<string, string | undefined>>;

/** The cluster token, or null where none is set and none is required (the caller makes one up). */
export function readClusterToken(config: ClusterConfig, env: Env): string | null {
  const fromEnv = env['COX_CLUSTER_TOKEN'];
  if (config.tokenFile !== null) {
    return checkToken(readSecretFile('token-file', config.tokenFile).trim(), config.tokenFile);
  }
  if (fromEnv !== undefined && fromEnv !== '') return checkToken(fromEnv, 'COX_CLUSTER_TOKEN');
  if (isLoopback(config.listen.host)) return null;
  throw new CoxswainError(
    'CONFIG_INVALID',
    'Off loopback a cluster token is required: set COX_CLUSTER_TOKEN or token-file.',
    { field: 'token-file' },
  );
}

/** The API keys, or none where no file is set. */
export function readApiKeys(config: ClusterConfig): readonly string[] {
  if (config.apiKeysFile === null) return [];
  const lines = readSecretFile('api-keys-file', config.apiKeysFile).split('\n');
  const keys = lines.map((line) => line.trim()).filter((line) => line !== '' && line[0] !== '#');
  const bad = keys.findIndex((key) => /\s/.test(key) || key.length > SECRET_CHARS_MAX);
  if (bad >= 0) throw unfit('api-keys-file', `key ${bad + 1} holds white space or is too long`);
  // An empty list would open the server that someone meant to close.
  if (keys.length === 0) throw unfit('api-keys-file', `${config.apiKeysFile} holds no key`);
  if (keys.length > API_KEYS_MAX) throw unfit('api-keys-file', `more than ${API_KEYS_MAX} keys`);
  return keys;
}

function checkToken(token: string, origin: string): string {
  if (token.length < TOKEN_CHARS_MIN || token.length > SECRET_CHARS_MAX || /\s/.test(token)) {
    throw unfit(
      'token-file',
      `the cluster token in ${origin} must be one word of at least ${TOKEN_CHARS_MIN} characters`,
    );
  }
  return token;
}

function readSecretFile(field: string, path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (cause) {
    throw new CoxswainError('FILE_UNREADABLE', `${field}: cannot read ${path}.`, { cause, field });
  }
}

function unfit(field: string, sentence: string): CoxswainError {
  return new CoxswainError('CONFIG_INVALID', `${field}: ${sentence}.`, { field });
}
