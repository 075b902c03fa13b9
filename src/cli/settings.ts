// Command-line flags from the one schema: a command names the settings it takes, yargs shows their help,
// loadConfig parses them together with the environment and the file of --config.
import { readFileSync } from 'node:fs';
import type { Argv } from 'yargs';
import { CoxswainError } from '../base/errors.ts';
import { loadConfig } from '../config/load.ts';
import { type ClusterConfig, OPTIONS } from '../config/schema.ts';
import { modelFile } from './models-directory.ts';

export type SettingName = keyof ClusterConfig;

/** Where layers and rows go: the same options in every command that opens or plans a cluster. */
export const TOPOLOGY: readonly SettingName[] = [
  'tp',
  'split',
  'pp',
  'layers',
  'transport',
  'threads',
  'ctx',
  'kvType',
  'kvMem',
  'exact',
];

export const SERVING: readonly SettingName[] = [
  'host',
  'port',
  'name',
  'apiKeysFile',
  'slots',
  'queue',
  'bodyMax',
  'logLevel',
];

/** What yargs parsed: flag names as written, values as text. */
export type Flags = Readonly<Record<string, unknown>>;

export function addSettings<T>(yargs: Argv<T>, names: readonly SettingName[]): Argv<T> {
  let result = yargs.option('config', {
    type: 'string',
    requiresArg: true,
    describe: 'JSON file of settings',
  }) as Argv<T>;
  for (const name of names) {
    const option = OPTIONS[name];
    const fallback = option.fallback ?? option.unset;
    const describe = `${option.help} [${fallback}]`;
    result = result.option(
      option.flag,
      option.boolean === true
        ? { type: 'boolean', describe }
        : { type: 'string', requiresArg: true, describe },
    ) as Argv<T>;
  }
  return result;
}

/** Flags over environment over file over defaults; MODEL as argument wins over all. */
export function readSettings(flags: Flags, names: readonly SettingName[]): ClusterConfig {
  const given = Object.fromEntries(
    names.map((name) => [OPTIONS[name].flag, flags[OPTIONS[name].flag]]),
  );
  const path = flags['config'];
  return loadConfig({
    flags: given,
    env: process.env,
    ...(typeof path === 'string' ? { file: { path, json: readConfigFile(path) } } : {}),
  });
}

/** The file of the MODEL argument, or of the setting `model`; pulled when it is a catalogue name. */
export async function modelOf(flags: Flags, config: ClusterConfig): Promise<string> {
  const model = typeof flags['model'] === 'string' ? flags['model'] : config.model;
  if (model === null)
    throw new CoxswainError('USAGE_INVALID', 'MODEL is missing: a path, or a name of `cox pull`');
  return modelFile(model, process.env);
}

function readConfigFile(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (cause) {
    throw new CoxswainError('CONFIG_INVALID', `${path} (--config) cannot be read.`, { cause });
  }
}
