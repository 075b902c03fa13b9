// The programs of native/bench, built once into the cache (a Release build without the addon).
import { createHash } from 'node:crypto';
import { mkdirSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { hasTool, output, root } from './run.mjs';

const built = new Map();

/** Path of the program, or null where there is no CMake to build it with. */
export function nativeProgram(bench, name) {
  if (!built.has(name)) built.set(name, build(bench, name));
  return built.get(name);
}

function build(bench, name) {
  if (!hasTool('cmake')) return null;
  // CMake keeps to one source folder: each checkout has a build of its own.
  const checkout = createHash('sha256').update(root).digest('hex').slice(0, 12);
  const directory = join(bench.cache, `native-${checkout}`);
  mkdirSync(directory, { recursive: true });
  const generator = hasTool('ninja') ? ['-G', 'Ninja'] : [];
  output('cmake', ['-S', join(root, 'native'), '-B', directory, ...generator, '-DCOX_ADDON=OFF']);
  const jobs = process.env.CMAKE_BUILD_PARALLEL_LEVEL ?? availableParallelism();
  output('cmake', ['--build', directory, '--parallel', jobs, '--target', name]);
  return join(directory, name);
}
