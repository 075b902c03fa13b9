// Where models are kept and how a MODEL argument becomes a file: a path as it is, or the name of a
// catalogue entry, which is pulled when it is not there yet.
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { CoxswainError } from '../base/errors.ts';
import { findEntry } from './pull/catalogue.ts';
import { createProgress } from './pull/progress.ts';
import { pull } from './pull/pull.ts';
import { say } from './terminal.ts';

/** COX_MODELS, else the user's cache directory. */
export function modelsDirectory(env: NodeJS.ProcessEnv): string {
  const chosen = env['COX_MODELS'];
  if (chosen !== undefined && chosen !== '') return resolve(chosen);
  const cache = env['XDG_CACHE_HOME'] ?? join(env['HOME'] ?? '.', '.cache');
  return join(cache, 'coxswain', 'models');
}

/** What survives a restart and is no cache: the highest epoch a rank obeyed. */
export function stateDirectory(env: NodeJS.ProcessEnv): string {
  return join(env['XDG_STATE_HOME'] ?? join(env['HOME'] ?? '.', '.local', 'state'), 'coxswain');
}

export async function modelFile(model: string, env: NodeJS.ProcessEnv): Promise<string> {
  if (existsSync(model)) return resolve(model);
  const entry = findEntry(model);
  if (entry === undefined) {
    throw new CoxswainError(
      'MODEL_NOT_FOUND',
      `no file and no catalogue name "${model}"; see: cox pull --help`,
    );
  }
  const progress = createProgress(entry.file);
  try {
    const pulled = await pull(
      { kind: 'entry', entry },
      {
        directory: modelsDirectory(env),
        progress: progress.update,
        say,
        sha256: null,
        verify: false,
      },
    );
    return pulled.path;
  } finally {
    progress.stop();
  }
}
