// Starts real `cox` processes for end-to-end tests: waits for their ready lines, talks HTTP to them,
// signals and reaps them, and finds what they leave behind.
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = fileURLToPath(new URL('../..', import.meta.url));
export const entry = join(root, 'dist', 'cli', 'main.js');

export interface ReadyLine {
  readonly event: string;
  readonly url: string;
  readonly pid: number;
  readonly ranks: readonly { readonly rank: number; readonly pid: number }[];
}

export interface StartOptions {
  readonly env?: Readonly<Record<string, string>>;
  /** Words before `node`: a namespace to run in. */
  readonly wrap?: readonly string[];
}

export class CoxProcess {
  readonly lines: string[] = [];
  log = '';
  readonly exited: Promise<number | null>;
  readonly #child: ChildProcess;
  #wake: () => void = () => undefined;

  constructor(args: readonly string[], options: StartOptions = {}) {
    const command = [...(options.wrap ?? []), process.execPath, entry, ...args];
    this.#child = spawn(command[0] ?? '', command.slice(1), {
      env: { ...process.env, ...options.env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let partial = '';
    this.#child.stdout?.setEncoding('utf8').on('data', (text: string) => {
      const parts = (partial + text).split('\n');
      partial = parts.pop() ?? '';
      this.lines.push(...parts);
      this.#wake();
    });
    this.#child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.log = (this.log + text).slice(-200_000);
    });
    this.exited = new Promise((resolve) => {
      this.#child.once('close', (code) => {
        resolve(code);
        this.#wake();
      });
    });
  }

  get running(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /** The first JSON line with this event; fails when the process ends or the time is up. */
  async event(name: string, timeoutMs = 90_000): Promise<ReadyLine> {
    const deadline = performance.now() + timeoutMs;
    for (;;) {
      for (const line of this.lines) {
        if (line.startsWith('{') && JSON.parse(line).event === name)
          return JSON.parse(line) as ReadyLine;
      }
      const left = deadline - performance.now();
      if (!this.running || left <= 0) {
        throw new Error(
          `no "${name}" line; ${this.running ? 'time is up' : 'the process ended'}:\n${this.log}`,
        );
      }
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, Math.min(left, 1_000));
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
  }

  signal(name: NodeJS.Signals): void {
    this.#child.kill(name);
  }

  /** SIGTERM, then the exit code; a process that does not end in time is killed and reported. */
  async stop(timeoutMs = 20_000): Promise<number | null> {
    if (!this.running) return this.exited;
    this.#child.kill('SIGTERM');
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), timeoutMs);
    const code = await this.exited;
    clearTimeout(timer);
    return code;
  }
}

/** Runs a command of the CLI to its end. */
export function runCox(
  args: readonly string[],
  input: string | Buffer = '',
  env: Readonly<Record<string, string>> = {},
) {
  const done = spawnSync(process.execPath, [entry, ...args], {
    input,
    env: { ...process.env, ...env },
    maxBuffer: 1 << 30,
    timeout: 300_000,
  });
  return { code: done.status, stdout: done.stdout, stderr: done.stderr.toString('utf8') };
}

export function alive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

/** Shared-memory segments of ours on this host. */
export function segments(): string[] {
  return existsSync('/dev/shm')
    ? readdirSync('/dev/shm').filter((name) => name.startsWith('cox'))
    : [];
}

/** Processes that still run our programs below this checkout, by pid. */
export function leftovers(): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => pid !== process.pid && cmdlineNamesUs(pid));
}

function cmdlineNamesUs(pid: number): boolean {
  try {
    readlinkSync(`/proc/${pid}/exe`);
    const { stdout } = spawnSync('cat', [`/proc/${pid}/cmdline`]);
    return stdout.toString('utf8').includes(join(root, 'dist'));
  } catch {
    return false;
  }
}

/** A tiny oracle model, generated or copied into the test data folder. */
export function testModel(name: string): string {
  const copied = join(root, 'tests', 'vectors', 'oracle', 'models', `${name}.gguf`);
  if (existsSync(copied)) return copied;
  const directory = join(root, 'tests', '.generated');
  const path = join(directory, `${name}.gguf`);
  if (!existsSync(path)) {
    mkdirSync(directory, { recursive: true });
    const script = join(root, 'tests', 'vectors', 'oracle', 'make-tiny.mjs');
    const made = spawnSync(process.execPath, [script, '--out', directory, name]);
    if (made.status !== 0) throw new Error(made.stderr.toString('utf8'));
  }
  return path;
}

export interface Completion {
  readonly status: number;
  readonly text: string;
  readonly events: readonly Record<string, unknown>[];
}

/** POST, reading the whole SSE stream; `onText` sees the text so far after each delta. */
export async function streamCompletion(
  url: string,
  body: Readonly<Record<string, unknown>>,
  onText: (text: string) => void = () => undefined,
): Promise<Completion> {
  const response = await fetch(`${url}/v1/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ ...body, stream: true }),
    signal: AbortSignal.timeout(120_000),
  });
  const events: Record<string, unknown>[] = [];
  let text = '';
  let buffered = '';
  const decoder = new TextDecoder();
  for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
    buffered += decoder.decode(chunk, { stream: true });
    const frames = buffered.split('\n\n');
    buffered = frames.pop() ?? '';
    for (const frame of frames.filter((candidate) => candidate.startsWith('data: {'))) {
      const event = JSON.parse(frame.slice(6)) as { choices?: { text?: string }[] };
      events.push(event as Record<string, unknown>);
      text += event.choices?.[0]?.text ?? '';
      onText(text);
    }
  }
  return { status: response.status, text, events };
}
