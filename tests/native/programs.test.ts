// Builds the native test programs and runs each; one vitest test a build, naming the programs that failed.
import { expect, it } from 'vitest';
import { buildAndRun, lacks } from './build.ts';

const BUILD_MS = 20 * 60_000;
const failures = (results: readonly { name: string; passed: boolean; output: string }[]) =>
  results
    .filter((result) => !result.passed)
    .map((result) => `${result.name}:\n${result.output.slice(-2_000)}`);

it.skipIf(lacks(['cmake', 'g++']))(
  'every native test program passes',
  { timeout: BUILD_MS },
  async () => {
    const results = await buildAndRun({ directory: 'build-tests', cmakeArgs: [] });
    expect(results.length).toBeGreaterThan(5);
    expect(failures(results)).toEqual([]);
  },
);

it.skipIf(lacks(['cmake', 'g++']))(
  'every native test program is clean under the address and undefined-behaviour sanitisers',
  { timeout: BUILD_MS },
  async () => {
    const results = await buildAndRun({
      directory: 'build-asan',
      cmakeArgs: ['-DCOX_SANITIZE=address,undefined'],
      env: { ASAN_OPTIONS: 'detect_leaks=1', UBSAN_OPTIONS: 'print_stacktrace=1' },
    });
    expect(failures(results)).toEqual([]);
  },
);

it.skipIf(lacks(['cmake', 'g++']))(
  'links, executor and thread pool are clean under the thread sanitiser',
  { timeout: BUILD_MS },
  async () => {
    const results = await buildAndRun(
      { directory: 'build-tsan', cmakeArgs: ['-DCOX_SANITIZE=thread'] },
      /^(comm|engine|models|quantize)_/,
    );
    expect(results.length).toBeGreaterThan(2);
    expect(failures(results)).toEqual([]);
  },
);

it.skipIf(lacks(['aarch64-linux-gnu-g++', 'qemu-aarch64-static']))(
  'the arm64 build compiles and its kernel tests pass under an emulator',
  { timeout: BUILD_MS },
  async () => {
    const results = await buildAndRun(
      { directory: 'build-arm64', cmakeArgs: ['-DCMAKE_TOOLCHAIN_FILE=toolchains/aarch64.cmake'] },
      /^(kernels|base|quantize)_/,
    );
    expect(results.length).toBeGreaterThan(2);
    expect(failures(results)).toEqual([]);
  },
);
