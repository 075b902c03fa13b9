// Fetches a URL into FILE.part and resumes what is already there, if the server's file is still the
// one that it began with (If-Range); the caller checks and renames. A server that sends the whole file
// instead restarts it; a stalled connection ends after STALL_MS.
import { open, stat } from 'node:fs/promises';
import { CoxswainError } from '../../base/errors.ts';
import { readValidator, writeOrigin } from './validator.ts';

/** Bytes on disk and bytes in all (null when the server does not say). */
export type DownloadProgress = (done: number, total: number | null) => void;

const CONNECT_MS = 10_000;
const STALL_MS = 30_000;
/** No model file is larger than this; a server that says so is refused before anything is written. */
const DOWNLOAD_BYTES_MAX = 4 * 2 ** 40;

export interface DownloadOptions {
  readonly progress: DownloadProgress;
  /**
   * The caller knows the digest of the whole file, so that a part of unknown origin may be gone on
   * with: a wrong one is found out. Otherwise such a part is fetched anew.
   */
  readonly digestKnown: boolean;
}

export async function download(
  url: URL,
  partPath: string,
  { progress, digestKnown }: DownloadOptions,
): Promise<void> {
  const there = await sizeOf(partPath);
  const validator = there > 0 ? await readValidator(partPath, url) : null;
  const have = validator !== null || digestKnown ? there : 0;
  const abort = new AbortController();
  let timer = setTimeout(() => abort.abort(), CONNECT_MS);
  const touch = () => {
    clearTimeout(timer);
    timer = setTimeout(() => abort.abort(), STALL_MS);
  };
  try {
    const response = await fetch(url, {
      headers: rangeHeaders(have, validator),
      signal: abort.signal,
      redirect: 'follow',
    });
    if (response.status === 416) return;
    if (!response.ok || response.body === null) {
      throw new CoxswainError(
        'PULL_FAILED',
        `${url.host} answered ${response.status} for ${url.pathname}`,
      );
    }
    const resumed = response.status === 206;
    await store(response, { url, partPath, from: resumed ? have : 0, progress, touch });
  } catch (thrown) {
    if (thrown instanceof CoxswainError) throw thrown;
    const why = abort.signal.aborted ? 'no data in time' : describe(thrown);
    throw new CoxswainError('PULL_FAILED', `${url.host}: ${why}`, { cause: thrown });
  } finally {
    clearTimeout(timer);
  }
}

function rangeHeaders(have: number, validator: string | null): Record<string, string> {
  if (have === 0) return {};
  const range = `bytes=${have}-`;
  return validator === null ? { range } : { range, 'if-range': validator };
}

interface StoreOptions {
  readonly url: URL;
  readonly partPath: string;
  readonly from: number;
  readonly progress: DownloadProgress;
  readonly touch: () => void;
}

async function store(response: Response, options: StoreOptions): Promise<void> {
  const length = response.headers.get('content-length');
  const total = length === null ? null : options.from + Number(length);
  if (total !== null && total > DOWNLOAD_BYTES_MAX) {
    throw new CoxswainError(
      'PULL_FAILED',
      `the server announces ${total} bytes: that is no model file`,
    );
  }
  const file = await open(options.partPath, options.from > 0 ? 'r+' : 'w', 0o644);
  try {
    // After the file was emptied: what is known of it never outlives its bytes.
    if (options.from === 0) await writeOrigin(options.partPath, options.url, response.headers);
    let done = options.from;
    for await (const chunk of response.body as AsyncIterable<Uint8Array>) {
      options.touch();
      await file.write(chunk, 0, chunk.byteLength, done);
      done += chunk.byteLength;
      options.progress(done, total);
    }
    await file.truncate(done);
    await file.sync();
    if (total !== null && done !== total) {
      throw new CoxswainError(
        'PULL_FAILED',
        `the connection ended after ${done} of ${total} bytes; run it again to resume`,
      );
    }
  } finally {
    await file.close();
  }
}

async function sizeOf(path: string): Promise<number> {
  try {
    return (await stat(path)).size;
  } catch {
    return 0;
  }
}

function describe(thrown: unknown): string {
  if (!(thrown instanceof Error)) return String(thrown);
  const cause = thrown.cause instanceof Error ? thrown.cause.message : '';
  return cause === '' ? thrown.message : cause;
}
