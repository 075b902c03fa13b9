// The template worker runs from the build, since worker threads take no TypeScript. Tests of it bring
// that build up to date first, so that they never pass on an old one.
import { execFileSync } from 'node:child_process';
import { readdirSync, statSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const ROOT = new URL('../../../', import.meta.url);
const path = (relative: string) => fileURLToPath(new URL(relative, ROOT));

function modifiedMs(file: string): number {
  return statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0;
}

export function buildTemplateWorker(): void {
  const sources = readdirSync(path('src/prompt')).map((name) => path(`src/prompt/${name}`));
  const newest = Math.max(...sources.map(modifiedMs));
  if (modifiedMs(path('dist/prompt/template-worker.js')) >= newest) return;
  execFileSync(process.execPath, [
    path('node_modules/typescript/bin/tsc'),
    '-p',
    path('tests/unit/prompt/worker-tsconfig.json'),
  ]);
}
