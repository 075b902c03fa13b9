// The rules of the house that a compiler does not know: who may import whom, file sizes, header
// comments, folder notes, words that must not stay. Each rule is a small test of its own.
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, join, relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const root = fileURLToPath(new URL('..', import.meta.url));

function filesUnder(directory: string, accept: (path: string) => boolean): string[] {
  const found: string[] = [];
  for (const entry of readdirSync(join(root, directory), { withFileTypes: true })) {
    const path = join(directory, entry.name);
    if (
      entry.name === 'node_modules' ||
      entry.name === 'generated' ||
      entry.name.startsWith('build')
    )
      continue;
    if (entry.isDirectory()) found.push(...filesUnder(path, accept));
    else if (accept(path)) found.push(path);
  }
  return found;
}

const read = (path: string) => readFileSync(join(root, path), 'utf8');
const folderOf = (path: string) => path.split(sep)[1] ?? '';
const lineCount = (path: string) => read(path).split('\n').length;

const sources = filesUnder('src', (path) => path.endsWith('.ts'));
const native = filesUnder('native', (path) => /\.(cc|h)$/.test(path));
const tests = filesUnder('tests', (path) => path.endsWith('.ts') && !path.includes('vectors'));

/** Folder of src/ -> folders it may import. A folder may always import itself. */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  base: [],
  config: ['base'],
  wire: ['base'],
  engine: ['base'],
  prompt: ['base'],
  api: ['base', 'prompt'],
  kvstore: ['base'],
  coordinator: ['base', 'config', 'wire', 'engine', 'prompt', 'api', 'kvstore'],
  rank: ['engine', 'kvstore', 'wire', 'config', 'base'],
  router: ['api', 'prompt', 'config', 'base'],
  cli: ['base', 'config', 'prompt'],
};

/** Folder of native/ -> folders whose headers it may include. */
const MAY_INCLUDE: Readonly<Record<string, readonly string[]>> = {
  base: [],
  kernels: ['base'],
  weights: ['base'],
  comm: ['base'],
  models: ['base', 'kernels', 'weights', 'comm'],
  engine: ['base', 'kernels', 'weights', 'comm', 'models'],
  limits: ['base'],
  quantize: ['base', 'kernels', 'weights'],
  addon: ['base', 'kernels', 'weights', 'comm', 'models', 'engine', 'limits', 'quantize'],
};

function importsOf(path: string): string[] {
  return [...read(path).matchAll(/(?:from|import)\s*\(?\s*'([^']+)'/g)].map(
    (match) => match[1] ?? '',
  );
}

function includesOf(path: string): string[] {
  return [...read(path).matchAll(/#include "([^"]+)"/g)].map((match) => match[1] ?? '');
}

/** The folder of src/ that a relative import of `path` reaches. */
function importedFolder(path: string, target: string): string {
  return folderOf(relative(root, join(root, dirname(path), target)));
}

describe('imports run one way', () => {
  it('every folder of src is in the table', () => {
    const folders = readdirSync(join(root, 'src'), { withFileTypes: true }).filter((entry) =>
      entry.isDirectory(),
    );
    expect(folders.map((entry) => entry.name).filter((name) => !(name in MAY_IMPORT))).toEqual([]);
  });

  /** main.ts builds the objects of its process from every folder; cli starts processes by their main.ts. */
  const mayReach = (path: string, target: string) => {
    const folder = folderOf(path);
    const reached = importedFolder(path, target);
    if (reached === folder || path.endsWith('main.ts')) return true;
    if (folder === 'cli' && target.endsWith('/main.ts')) return true;
    return (MAY_IMPORT[folder] ?? []).includes(reached);
  };

  it('TypeScript folders import only what the table allows', () => {
    const broken = sources.flatMap((path) =>
      importsOf(path)
        .filter((target) => target.startsWith('.') && !mayReach(path, target))
        .map((target) => `${path} imports ${target}`),
    );
    expect(broken).toEqual([]);
  });

  it('processes never import each other', () => {
    const processes = ['coordinator', 'rank', 'router'];
    const broken = sources.filter((path) => {
      const own = folderOf(path);
      return (
        processes.includes(own) &&
        importsOf(path).some((target) => {
          const reached = target.startsWith('.') ? importedFolder(path, target) : '';
          return processes.includes(reached) && reached !== own;
        })
      );
    });
    expect(broken).toEqual([]);
  });

  it('cores import no node module and use no clock, timer or randomness', () => {
    const broken = sources
      .filter((path) => /\/core\//.test(path))
      .filter((path) => {
        const code = read(path).replace(/\/\/.*|\/\*[\s\S]*?\*\//g, '');
        return /from 'node:|Date\.now|new Date\(|performance\.|setTimeout|setInterval|Math\.random|process\./.test(
          code,
        );
      });
    expect(broken).toEqual([]);
  });

  it('native folders include only what the table allows', () => {
    const broken: string[] = [];
    for (const path of native.filter((candidate) => folderOf(candidate) in MAY_INCLUDE)) {
      const folder = folderOf(path);
      for (const target of includesOf(path)) {
        const reached = target.split('/')[0] ?? '';
        if (
          reached !== folder &&
          reached in MAY_INCLUDE &&
          !(MAY_INCLUDE[folder] ?? []).includes(reached)
        ) {
          broken.push(`${path} includes ${target}`);
        }
      }
    }
    expect(broken).toEqual([]);
  });

  it('only the addon knows Node, only comm knows sockets', () => {
    const knowsNode = native.filter(
      (path) => /#include [<"]napi/.test(read(path)) && folderOf(path) !== 'addon',
    );
    const knowsSockets = native.filter(
      (path) =>
        /#include <sys\/socket\.h>/.test(read(path)) &&
        !['comm', 'tests', 'bench'].includes(folderOf(path)),
    );
    expect([...knowsNode, ...knowsSockets]).toEqual([]);
  });
});

describe('files can be read', () => {
  const LINES_MAX = 600;
  /** Data tables, with the reason. */
  const LONG_ON_PURPOSE: readonly RegExp[] = [/kernels\/(grids|.*tables?|.*grid)[\w]*\.(cc|h)$/];

  it('no file is longer than 600 lines', () => {
    const long = [...sources, ...native, ...tests]
      .filter((path) => !LONG_ON_PURPOSE.some((pattern) => pattern.test(path)))
      .filter((path) => lineCount(path) > LINES_MAX);
    expect(long).toEqual([]);
  });

  /** What a .cc owns is said by its header where it has one. */
  const speaks = (path: string) => /^(#!.*\n)?(\/\/|\/\*)/.test(read(path));
  it('every file opens with a comment that says what it owns', () => {
    const silent = [...sources, ...native].filter((path) => {
      const header = path.replace(/\.cc$/, '.h');
      return (
        !speaks(path) && !(header !== path && existsSync(join(root, header)) && speaks(header))
      );
    });
    expect(silent).toEqual([]);
  });

  it('every folder of src and native has a README', () => {
    const folders = ['src', 'native'].flatMap((top) =>
      readdirSync(join(root, top), { withFileTypes: true })
        .filter((entry) => entry.isDirectory() && !/^(build|node_modules)/.test(entry.name))
        .map((entry) => join(top, entry.name)),
    );
    expect(folders.filter((folder) => !existsSync(join(root, folder, 'README.md')))).toEqual([]);
  });

  it('every markdown file of ours has exactly one title', () => {
    const pages = [
      '.',
      ...['docs', 'src', 'native'].filter((name) => existsSync(join(root, name))),
    ].flatMap((top) =>
      top === '.'
        ? readdirSync(root).filter((name) => name.endsWith('.md'))
        : filesUnder(top, (path) => path.endsWith('.md')),
    );
    const untitled = pages.filter((path) => {
      const prose = read(path).replace(/```[\s\S]*?```/g, '');
      return [...prose.matchAll(/^# /gm)].length !== 1;
    });
    expect(untitled).toEqual([]);
  });
});

describe('nothing stays that must not', () => {
  it('no FIXME, no commented-out debugging, no catch-all escape', () => {
    const found = [...sources, ...native].filter(
      (path) => /FIXME|\bXXX\b|as unknown as/.test(read(path)) && folderOf(path) !== 'wire',
    );
    expect(found).toEqual([]);
  });

  it('console output lives in the command line only', () => {
    const loud = sources.filter(
      (path) => folderOf(path) !== 'cli' && /console\.(log|error|warn|info)/.test(read(path)),
    );
    expect(loud).toEqual([]);
  });

  it('no folder is called utils, helpers or common', () => {
    const vague = [...sources, ...native].filter((path) =>
      /\/(utils?|helpers?|common)(\/|\.)/.test(path),
    );
    expect(vague).toEqual([]);
  });

  it('every source file is imported by another, or is a program', () => {
    const imported = new Set<string>();
    for (const path of [...sources, ...tests]) {
      for (const target of importsOf(path).filter((name) => name.startsWith('.'))) {
        imported.add(relative(root, join(root, dirname(path), target)));
      }
    }
    const orphans = sources.filter(
      (path) => !imported.has(path) && !/main\.ts$|worker\.ts$/.test(path),
    );
    expect(orphans).toEqual([]);
  });

  it('the lock file names no registry', () => {
    expect(read('package-lock.json')).not.toMatch(/"resolved"/);
    expect(statSync(join(root, 'package.json')).isFile()).toBe(true);
  });
});
