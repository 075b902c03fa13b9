// Who may share a prefix (scope), and which state fits which engine (compat id). Both seed the page
// chain, so a prefix of another tenant or another model is not merely refused: it is never found.
// Topology and context size are in neither: any plan may serve any unit.
import { CoxswainError } from '../../base/errors.ts';
import type { Sha256 } from './page-chain.ts';

/** HMAC-SHA-256 of a message under a key: 32 bytes. */
export type HmacSha256 = (key: Uint8Array, message: Uint8Array) => Uint8Array;

export const USER_ID_BYTES_MAX = 512;

export interface CompatFacts {
  /** Major version of the unit format. */
  readonly format: number;
  readonly modelFingerprint: string;
  /** Of vocabulary, merges and flags: other ids for the same text are another model. */
  readonly tokenizerHash: string;
  readonly templateHash: string;
  /** "f32", "f16": also the layout of rows. */
  readonly kvType: string;
  /** Rotary parameters that change values ("" when they are the file's own). */
  readonly rope: string;
  readonly adapters: readonly string[];
  /** Exact or int8 activations, and the version of the arithmetic. */
  readonly numerics: string;
}

/** SHA-256 of the facts as canonical JSON (fixed order of members). */
export function compatId(sha256: Sha256, facts: CompatFacts): Uint8Array {
  const canonical = JSON.stringify([
    'coxswain-kv',
    facts.format,
    facts.modelFingerprint,
    facts.tokenizerHash,
    facts.templateHash,
    facts.kvType,
    facts.rope,
    facts.adapters,
    facts.numerics,
  ]);
  return sha256(encode(canonical), new Uint8Array(0));
}

/**
 * scope = HMAC(store secret, API key id, user part). Lengths keep ("a", "bc") and ("ab", "c") apart.
 * Without API keys the key part is constant; the user part still separates, but anyone may claim any
 * user: ids alone are no security boundary.
 */
export function scopeId(
  hmac: HmacSha256,
  secret: Uint8Array,
  who: { readonly apiKeyId: string; readonly user: string | null },
): Uint8Array {
  const user = who.user === null ? null : stableUser(who.user);
  return hmac(secret, encode(JSON.stringify([who.apiKeyId, user])));
}

/**
 * The part of a client's user id that stays the same over its sessions. Claude Code sends a JSON object
 * (or the older user_X_account_Y_session_Z) that names the session; with it in the scope every new
 * session would prefill anew. REQUEST_INVALID above 512 bytes.
 */
export function stableUser(id: string): string {
  if (encode(id).length > USER_ID_BYTES_MAX) {
    throw new CoxswainError(
      'REQUEST_INVALID',
      `the user id is longer than ${USER_ID_BYTES_MAX} bytes: send a shorter one`,
      { field: 'user' },
    );
  }
  const old = /^(user_[^_]+_account_[^_]*)_session_[^_]+$/.exec(id)?.[1];
  if (old !== undefined) return old;
  const members = objectOf(id);
  if (members === null || !('session_id' in members)) return id;
  const kept = ['device_id', 'account_id', 'account_uuid'].filter((name) => name in members);
  if (kept.length === 0) return id;
  return JSON.stringify(kept.map((name) => [name, members[name]]));
}

function objectOf(text: string): Readonly<Record<string, unknown>> | null {
  if (!text.startsWith('{')) return null;
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? { ...value } : null;
  } catch {
    return null;
  }
}

const encoder = new TextEncoder();
function encode(text: string): Uint8Array {
  return encoder.encode(text);
}
