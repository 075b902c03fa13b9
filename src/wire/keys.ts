// Keys of a cluster, all derived from its one token by HKDF-SHA-256 with a purpose in the info field,
// so that what is learnt about one plane says nothing about another. Nothing here is ever logged.
import { createHmac, hkdfSync, randomBytes } from 'node:crypto';
import { CoxswainError } from '../base/errors.ts';

const KEY_BYTES = 32;
/** Stops accidents; a generated token has 64. */
const TOKEN_CHARACTERS_MIN = 16;
const SALT = 'coxswain cluster 1';

export interface ClusterKeys {
  readonly control: Uint8Array;
  /** Goes to the engine, which derives one key a link from it. */
  readonly data: Uint8Array;
  readonly bulk: Uint8Array;
}

/** A fresh token of 256 random bits as 64 hex digits. */
export function generateClusterToken(): string {
  return randomBytes(32).toString('hex');
}

/** @throws CoxswainError CONFIG_INVALID when the token is too short to be a secret. */
export function deriveClusterKeys(token: string): ClusterKeys {
  if (token.length < TOKEN_CHARACTERS_MIN) {
    throw new CoxswainError(
      'CONFIG_INVALID',
      `The cluster token has ${token.length} characters; give at least ${TOKEN_CHARACTERS_MIN} ` +
        'random ones (COX_CLUSTER_TOKEN or --token-file), the same to every process.',
    );
  }
  return {
    control: deriveKey(token, 'control'),
    data: deriveKey(token, 'data'),
    bulk: deriveKey(token, 'bulk'),
  };
}

export interface LinkName {
  readonly epoch: number;
  readonly incarnation: string;
  readonly lowerRank: number;
  readonly higherRank: number;
}

/** The key of one link in one epoch: an old epoch cannot reconnect. */
export function deriveLinkKey(dataKey: Uint8Array, link: LinkName): Uint8Array {
  const name = `${link.epoch}/${link.incarnation}/${link.lowerRank}/${link.higherRank}`;
  return deriveKey(dataKey, `link ${name}`);
}

/** A key below `parent` for one purpose; salted with both nonces it belongs to one connection. */
export function deriveKey(
  parent: Uint8Array | string,
  purpose: string,
  salt: Uint8Array | string = SALT,
): Uint8Array {
  return new Uint8Array(hkdfSync('sha256', parent, salt, `coxswain ${purpose}`, KEY_BYTES));
}

/** HMAC-SHA-256 over fields, each with its length in front, so that no two lists read the same. */
export function macOfFields(key: Uint8Array, fields: readonly (string | Uint8Array)[]): Buffer {
  const mac = createHmac('sha256', key);
  for (const field of fields) {
    const bytes = typeof field === 'string' ? Buffer.from(field, 'utf8') : field;
    const length = Buffer.alloc(4);
    length.writeUInt32LE(bytes.length);
    mac.update(length);
    mac.update(bytes);
  }
  return mac.digest();
}
