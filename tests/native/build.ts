// Configures and builds the native tests in a folder of their own and runs every test program.
// A tool that is missing skips by name; with COX_REQUIRE_ALL=1 (CI) it fails instead.
import { spawn, spawnSync } from 'node:child_process';
import { cpus } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = fileURLToPath(new URL('../..', import.meta.url));

export interface NativeBuild {
  readonly directory: string;
  readonly cmakeArgs: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
}

export interface ProgramResult {
  readonly name: string;
  readonly passed: boolean;
  readonly output: string;
}

export function hasTool(name: string): boolean {
  return spawnSync('which', [name]).status === 0;
}

/** Whether to skip for want of these tools. In CI nothing is skipped: the test then fails on its own. */
export function lacks(tools: readonly string[]): boolean {
  return process.env['COX_REQUIRE_ALL'] !== '1' && !tools.every(hasTool);
}

export async function buildAndRun(build: NativeBuild, only?: RegExp): Promise<ProgramResult[]> {
  const directory = join(root, 'native', build.directory);
  const generator = hasTool('ninja') ? ['-G', 'Ninja'] : [];
  await run('cmake', [
    '-S',
    join(root, 'native'),
    '-B',
    directory,
    ...generator,
    ...build.cmakeArgs,
  ]);
  // Which programs there are is known once configured; only those that will run are built.
  const listing = await run('ctest', ['--test-dir', directory, '--show-only=json-v1']);
  const known = (JSON.parse(listing) as { tests: { name: string }[] }).tests.map(
    ({ name }) => name,
  );
  const wanted = known.filter((name) => only === undefined || only.test(name));
  const targets = wanted.flatMap((name) => ['--target', name]);
  await run('cmake', ['--build', directory, '--parallel', String(cpus().length), ...targets]);
  const built = await run('ctest', ['--test-dir', directory, '--show-only=json-v1']);
  const tests = (
    JSON.parse(built) as { tests: { name: string; command: string[] }[] }
  ).tests.filter(({ name }) => wanted.includes(name));
  const results: ProgramResult[] = [];
  for (const test of tests) {
    const [program, ...args] = test.command;
    const { code, output } = await capture(program ?? '', args, build.env ?? {});
    results.push({ name: test.name, passed: code === 0, output });
  }
  return results;
}

async function run(program: string, args: readonly string[]): Promise<string> {
  const { code, output } = await capture(program, args, {});
  if (code !== 0)
    throw new Error(`${program} ${args.join(' ')} ended with ${code}:\n${output.slice(-6_000)}`);
  return output;
}

function capture(
  program: string,
  args: readonly string[],
  env: Readonly<Record<string, string>>,
): Promise<{ code: number | null; output: string }> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, {
      env: { ...process.env, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let output = '';
    const take = (chunk: Buffer) => {
      output += chunk.toString('utf8');
    };
    child.stdout.on('data', take);
    child.stderr.on('data', take);
    child.once('error', reject);
    child.once('close', (code) => resolve({ code, output }));
  });
}
