// What a partial file is a part of: the address and the validator (ETag or Last-Modified) of the
// response that it came from, kept in FILE.part.origin. Without it nobody could tell whether the rest
// of the file on the server still belongs to the beginning on disk.
import { open, readFile, rename, rm } from 'node:fs/promises';

interface Origin {
  readonly url: string;
  /** A value for If-Range: a strong ETag or an HTTP date. */
  readonly validator: string;
}

const ORIGIN_BYTES_MAX = 8192;

export function originPath(partPath: string): string {
  return `${partPath}.origin`;
}

/** The validator under which the part came from `url`; null: from elsewhere, or not known. */
export async function readValidator(partPath: string, url: URL): Promise<string | null> {
  try {
    const text = await readFile(originPath(partPath), 'utf8');
    const origin = JSON.parse(text) as Partial<Origin>;
    if (origin.url !== url.href || typeof origin.validator !== 'string') return null;
    return origin.validator;
  } catch {
    return null;
  }
}

/** For a file that begins anew: replaces what was known of the one before. */
export async function writeOrigin(partPath: string, url: URL, headers: Headers): Promise<void> {
  const validator = validatorOf(headers);
  if (validator === null) return forgetOrigin(partPath);
  const path = originPath(partPath);
  const origin: Origin = { url: url.href, validator };
  const file = await open(`${path}.new`, 'w', 0o644);
  try {
    await file.writeFile(JSON.stringify(origin));
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(`${path}.new`, path);
}

export function forgetOrigin(partPath: string): Promise<void> {
  return rm(originPath(partPath), { force: true });
}

/** Weak ETags say nothing about bytes, and If-Range refuses them. */
function validatorOf(headers: Headers): string | null {
  const etag = headers.get('etag');
  const value = etag?.startsWith('"') === true ? etag : headers.get('last-modified');
  return value === null || value.length > ORIGIN_BYTES_MAX ? null : value;
}
