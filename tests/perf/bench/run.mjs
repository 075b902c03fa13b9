// Child programs of the benchmark: their JSON lines, or an error with the end of what they said.
import { spawnSync } from 'node:child_process';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const perf = join(dirname(fileURLToPath(import.meta.url)), '..');
export const root = join(perf, '..', '..');
const LONGEST_MS = 30 * 60_000;

/** Standard output as text. `options.env` adds to the environment. */
export function output(command, parameters, options = {}) {
  const done = spawnSync(command, parameters.map(String), {
    maxBuffer: 1 << 28,
    cwd: root,
    timeout: LONGEST_MS,
    env: { ...process.env, ...options.env },
  });
  if (done.status === 0) return done.stdout.toString('utf8');
  const said = done.error?.message ?? done.stderr.toString('utf8').slice(-2000);
  throw new Error(`${command} ${parameters.slice(0, 3).join(' ')} ...: ${said.trim()}`);
}

/** Every line that is JSON; arrays of them are flattened. */
export function jsonLines(command, parameters, options) {
  return output(command, parameters, options)
    .split('\n')
    .filter((line) => /^[[{]/.test(line))
    .flatMap((line) => JSON.parse(line));
}

export const hasTool = (name) => spawnSync('which', [name]).status === 0;
