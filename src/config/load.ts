// Settings from their four layers: flags over environment over file over defaults. Every value is
// parsed, in whichever layer it stands, so that a bad line in a file is told even where a flag covers
// it. Unknown flags and file keys are errors that name them and the nearest known name. (Unknown COX_
// variables are not: others of our tools read some.)
import { CoxswainError } from '../base/errors.ts';
import { checkTopology } from './derive.ts';
import { type ClusterConfig, envName, OPTIONS, type Option } from './schema.ts';
import { UnfitValue } from './values.ts';

export interface ConfigSources {
  /** By flag name ("kv-type"); undefined values count as not given. */
  readonly flags?: Readonly<Record<string, unknown>>;
  readonly env?: Readonly<Record<string, string | undefined>>;
  readonly file?: { readonly path: string; readonly json: string };
}

type Layer = ReadonlyMap<string, { readonly value: unknown; readonly origin: string }>;

export function loadConfig(sources: ConfigSources): ClusterConfig {
  const layers = [
    flagLayer(sources.flags ?? {}),
    envLayer(sources.env ?? {}),
    sources.file === undefined ? new Map() : fileLayer(sources.file),
  ];
  const entries = Object.entries(OPTIONS).map(([key, option]) => {
    const value = resolve(option, layers);
    return [key, isOverruled(option.flag, layers) ? null : value];
  });
  // The table's type ties every key to its parser's result; Object.entries forgets that.
  const config = Object.freeze(Object.fromEntries(entries)) as ClusterConfig;
  checkTopology(config);
  return config;
}

/** Two spellings of one thing: given in a better layer, one of them replaces the other. */
const RIVALS: ReadonlyMap<string, string> = new Map([
  ['tp', 'split'],
  ['split', 'tp'],
  ['pp', 'layers'],
  ['layers', 'pp'],
]);

function isOverruled(flag: string, layers: readonly Layer[]): boolean {
  const rival = RIVALS.get(flag);
  if (rival === undefined) return false;
  const own = layers.findIndex((layer) => layer.has(flag));
  const others = layers.findIndex((layer) => layer.has(rival));
  return others >= 0 && others < own;
}

function resolve(option: Option<unknown>, layers: readonly Layer[]): unknown {
  const given = layers.flatMap((layer) => layer.get(option.flag) ?? []);
  const [parsed] = given.map(({ value, origin }) => ({ value: parseAs(option, value, origin) }));
  return parsed === undefined ? parseAs(option, option.fallback, 'the default') : parsed.value;
}

function parseAs(option: Option<unknown>, value: unknown, origin: string): unknown {
  try {
    return option.parse(value);
  } catch (error) {
    if (!(error instanceof UnfitValue)) throw error;
    throw new CoxswainError('CONFIG_INVALID', `${option.flag} (${origin}) ${error.message}.`, {
      cause: error,
      field: option.flag,
    });
  }
}

function flagLayer(flags: Readonly<Record<string, unknown>>): Layer {
  const given = Object.entries(flags).filter(([, value]) => value !== undefined);
  return new Map(
    given.map(([flag, value]) => {
      refuseUnknown(flag, 'a flag');
      return [flag, { value, origin: `--${flag}` }];
    }),
  );
}

function envLayer(env: Readonly<Record<string, string | undefined>>): Layer {
  const layer = new Map<string, { value: unknown; origin: string }>();
  for (const { flag } of Object.values(OPTIONS)) {
    const value = env[envName(flag)];
    if (value !== undefined && value !== '') layer.set(flag, { value, origin: envName(flag) });
  }
  return layer;
}

function fileLayer({ path, json }: { path: string; json: string }): Layer {
  const parsed = parseFile(path, json);
  return new Map(
    Object.entries(parsed).map(([key, value]) => {
      refuseUnknown(key, `a key in ${path}`);
      return [key, { value, origin: path }];
    }),
  );
}

function parseFile(path: string, json: string): object {
  let parsed: unknown;
  try {
    parsed = JSON.parse(json);
  } catch (cause) {
    throw new CoxswainError('CONFIG_INVALID', `${path} is not valid JSON.`, { cause });
  }
  if (typeof parsed !== 'object' || parsed === null || Array.isArray(parsed)) {
    throw new CoxswainError('CONFIG_INVALID', `${path} must hold one JSON object of settings.`);
  }
  return parsed;
}

function refuseUnknown(name: string, what: string): void {
  const known = Object.values(OPTIONS).map((option) => option.flag);
  if (known.includes(name)) return;
  const near = known
    .map((candidate) => ({ candidate, distance: editDistance(name, candidate) }))
    .reduce((best, other) => (other.distance < best.distance ? other : best));
  const hint = near.distance <= 2 ? ` Did you mean ${near.candidate}?` : '';
  throw new CoxswainError(
    'CONFIG_INVALID',
    `${name.slice(0, 64)} (${what}) is no setting.${hint} docs/config.md lists them.`,
    { field: name.slice(0, 64) },
  );
}

/** Levenshtein distance; names longer than any setting are far from all. */
function editDistance(a: string, b: string): number {
  if (a.length > 64) return a.length;
  let row = Array.from({ length: b.length + 1 }, (_, column) => column);
  for (let i = 1; i <= a.length; i += 1) {
    const above = row;
    row = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const change = (above[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      row.push(Math.min(change, (above[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1));
    }
  }
  return row[b.length] ?? a.length;
}
