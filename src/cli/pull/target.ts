// What `cox pull WHAT` means: a catalogue name, hf:REPO/FILE, a URL or a path; and where models are kept.
import { basename, join } from 'node:path';
import { CoxswainError } from '../../base/errors.ts';
import { CATALOGUE, type CatalogueEntry, findEntry, HUB_HOST } from './catalogue.ts';

export type PullTarget =
  | { readonly kind: 'entry'; readonly entry: CatalogueEntry }
  | { readonly kind: 'url'; readonly url: URL; readonly file: string }
  | { readonly kind: 'path'; readonly path: string; readonly file: string };

const HUB_PREFIX = 'hf:';

export function parseTarget(what: string): PullTarget {
  const entry = findEntry(what);
  if (entry !== undefined) return { kind: 'entry', entry };
  if (what.startsWith(HUB_PREFIX)) return hubTarget(what.slice(HUB_PREFIX.length));
  if (/^https?:\/\//.test(what)) {
    const url = new URL(what);
    return {
      kind: 'url',
      url,
      file: safeFileName(basename(decodeURIComponent(url.pathname)), what),
    };
  }
  if (what.includes('/') || what.endsWith('.gguf')) {
    return { kind: 'path', path: what, file: safeFileName(basename(what), what) };
  }
  const known = CATALOGUE.map((candidate) => candidate.name).join(', ');
  throw new CoxswainError(
    'MODEL_NOT_FOUND',
    `no model is called "${what}"; known names: ${known}; or give hf:OWNER/REPO/FILE.gguf, a URL or a path`,
  );
}

export function hubUrl(source: { repo: string; revision: string; file: string }): URL {
  const path = [source.repo, 'resolve', source.revision, source.file]
    .map((part) => part.split('/').map(encodeURIComponent).join('/'))
    .join('/');
  return new URL(`https://${HUB_HOST}/${path}?download=true`);
}

function hubTarget(reference: string): PullTarget {
  const parts = reference.split('/');
  const [owner, repo, ...rest] = parts;
  if (
    owner === undefined ||
    repo === undefined ||
    rest.length === 0 ||
    rest.some((part) => part === '')
  ) {
    throw new CoxswainError('USAGE_INVALID', `"hf:${reference}" must read hf:OWNER/REPO/FILE.gguf`);
  }
  const file = rest.join('/');
  return {
    kind: 'url',
    url: hubUrl({ repo: `${owner}/${repo}`, revision: 'main', file }),
    file: safeFileName(basename(file), reference),
  };
}

/** A name that stays inside the models directory and cannot hide. */
function safeFileName(name: string, from: string): string {
  if (!/^[\w][\w.+-]*$/.test(name)) {
    throw new CoxswainError('USAGE_INVALID', `"${from}" does not end in a plain file name`);
  }
  return name;
}

export function modelPath(directory: string, file: string): string {
  return join(directory, file);
}
