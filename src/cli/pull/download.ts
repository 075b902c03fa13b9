// Fetches a URL into FILE.part and resumes what is already there; the caller checks and renames.
// A server that ignores the range restarts the file; a stalled connection ends after STALL_MS.
import { open, stat } from 'node:fs/promises';
import { CoxswainError } from '../../base/errors.ts';

/** Bytes on disk and bytes in all (null when the server does not say). */
export type DownloadProgress = (done: number, total: number | null) => void;

const CONNECT_MS = 10_000;
const STALL_MS = 30_000;
/** No model file is larger than this; a server that says so is refused before anything is written. */
const DOWNLOAD_BYTES_MAX = 4 * 2 ** 40;

export async function download(
  url: URL,
  partPath: string,
  progress: DownloadProgress,
): Promise<void> {
  const have = await sizeOf(partPath);
  const abort = new AbortController();
  let timer = setTimeout(() => abort.abort(), CONNECT_MS);
  const touch = () => {
    clearTimeout(timer);
    timer = setTimeout(() => abort.abort(), STALL_MS);
  };
  try {
    const response = await fetch(url, {
      headers: have > 0 ? { range: `bytes=${have}-` } : {},
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
    await store(response, { partPath, from: resumed ? have : 0, progress, touch });
  } catch (thrown) {
    if (thrown instanceof CoxswainError) throw thrown;
    const why = abort.signal.aborted ? 'no data in time' : describe(thrown);
    throw new CoxswainError('PULL_FAILED', `${url.host}: ${why}`, { cause: thrown });
  } finally {
    clearTimeout(timer);
  }
}

interface StoreOptions {
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
