// The only writer to the terminal: results to stdout, everything else to stderr, exit codes 0 done,
// 1 failed, 2 bad usage.
import { CoxswainError, toCoxswainError } from '../base/errors.ts';

export const EXIT_FAILED = 1;
const EXIT_USAGE = 2;

const USAGE_CODES: ReadonlySet<string> = new Set(['USAGE_INVALID', 'CONFIG_INVALID']);

/** A result line. */
export function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

export function printJson(value: unknown): void {
  print(JSON.stringify(value));
}

/** A remark for the person at the terminal. */
export function say(line: string): void {
  process.stderr.write(`${line}\n`);
}

export function reportFailure(thrown: unknown): CoxswainError {
  const error = toCoxswainError(thrown);
  say(`cox: ${error.message} (${error.code})`);
  process.exitCode = USAGE_CODES.has(error.code) ? EXIT_USAGE : EXIT_FAILED;
  return error;
}

/**
 * Ends the program when its results can no longer be written. A reader that has had enough (head, a
 * closed pager) is no failure. Local ranks end with this process.
 */
export function watchOutput(): void {
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') process.exit(0);
    say(`cox: cannot write to standard output: ${error.message}`);
    process.exit(EXIT_FAILED);
  });
}

/**
 * Ends the program with the exit code that was set. Node on its own way out gives signals their default
 * action back first: a second SIGTERM (a wrapper's, a supervisor's) would then turn a clean end into a kill.
 */
export function endProgram(): never {
  process.exit(process.exitCode ?? 0);
}

/** Reads all of stdin; refuses more than `bytesMax` before holding it. */
export async function readStdin(bytesMax: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of process.stdin) {
    const buffer = chunk as Buffer;
    bytes += buffer.byteLength;
    if (bytes > bytesMax)
      throw new CoxswainError('USAGE_INVALID', `stdin is longer than ${bytesMax} bytes`);
    chunks.push(buffer);
  }
  return Buffer.concat(chunks);
}

/** Writes bytes to stdout and waits until they are accepted. */
export function writeBytes(bytes: Uint8Array): Promise<void> {
  return new Promise((resolve, reject) => {
    process.stdout.write(bytes, (error) => {
      if (error) reject(error);
      else resolve();
    });
  });
}
