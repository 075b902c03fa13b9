// Fails when a C++ file is not formatted as .clang-format says. Needs clang-format 19; without it the
// check is skipped by name, except in CI.
import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../..', import.meta.url));
const files = (directory) =>
  readdirSync(directory, { withFileTypes: true }).flatMap((entry) => {
    if (entry.name.startsWith('build') || entry.name === 'node_modules') return [];
    const path = join(directory, entry.name);
    if (entry.isDirectory()) return files(path);
    return /\.(cc|h)$/.test(entry.name) ? [path] : [];
  });

const program = 'clang-format-19';
if (spawnSync(program, ['--version']).status !== 0) {
  console.log(`skipped: ${program} is not installed`);
  process.exitCode = process.env['COX_REQUIRE_ALL'] === '1' ? 1 : 0;
} else {
  const result = spawnSync(program, ['--dry-run', '-Werror', ...files(join(root, 'native'))], {
    stdio: 'inherit',
  });
  process.exitCode = result.status ?? 1;
}
