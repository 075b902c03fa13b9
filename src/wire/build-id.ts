// What must be equal for two processes to compute the same cluster: source version, protocol and the
// rules of arithmetic. Never a hash of the binary: arm64 and x86 builds of one version belong together.
import { readFileSync } from 'node:fs';
import { PROTOCOL_VERSION } from './proof.ts';

/** Raised whenever a row's value may change: order of sums, rounding, activation quantisation. */
export const NUMERICS_CONTRACT = 'invariance-1';

export function buildId(): string {
  // Both builds of this file (src/wire, dist/wire) lie two folders below package.json.
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  const { version } = JSON.parse(text) as { readonly version: string };
  return `coxswain ${version}, protocol ${PROTOCOL_VERSION}, numerics ${NUMERICS_CONTRACT}`;
}
