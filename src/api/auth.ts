// API keys and the sharing scope. Keys are compared by digest in constant time; what the rest of the
// program sees is a key's identity (a digest), never the key. Without configured keys every caller is
// the same identity, and any Authorization header is accepted.
import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { CoxswainError } from '../base/errors.ts';

/** The longest `user` that a request may name. */
export const USER_BYTES_MAX = 512;

const BEARER = /^Bearer +(\S+) *$/i;

const sha256 = (text: string): Buffer => createHash('sha256').update(text, 'utf8').digest();

export class ApiKeys {
  private readonly digests: readonly Buffer[];

  constructor(keys: readonly string[]) {
    this.digests = keys.map(sha256);
  }

  /** Identity of the caller, or UNAUTHENTICATED. Accepts Authorization: Bearer and x-api-key. */
  identify(headers: IncomingHttpHeaders): string {
    if (this.digests.length === 0) return '';
    const offered = sha256(offeredKey(headers) ?? '');
    let known = false;
    // No early exit: the time taken says nothing about which key was near.
    for (const digest of this.digests) known = timingSafeEqual(digest, offered) || known;
    if (!known) {
      throw new CoxswainError(
        'UNAUTHENTICATED',
        'Missing or incorrect API key. Send it as "Authorization: Bearer KEY".',
      );
    }
    return offered.toString('hex');
  }
}

/**
 * Who may share prefixes: one caller's one user. The lengths keep ("a", "bc") and ("ab", "c") apart.
 * Without API keys the user part still separates, but anyone may claim any user.
 */
export function sharingScope(keyIdentity: string, user: string): string {
  const parts = `${keyIdentity.length}:${keyIdentity}${user.length}:${user}`;
  return sha256(parts).toString('hex').slice(0, 32);
}

function offeredKey(headers: IncomingHttpHeaders): string | undefined {
  const bearer = BEARER.exec(headers.authorization ?? '')?.[1];
  if (bearer !== undefined) return bearer;
  const plain = headers['x-api-key'];
  return typeof plain === 'string' ? plain : undefined;
}
