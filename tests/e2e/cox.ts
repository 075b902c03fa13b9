// Starts real `cox` processes for end-to-end tests: waits for their ready lines, talks HTTP to them,
// signals and reaps them, and finds what they leave behind.
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
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

/** A test that fails must not leave its processes to the next one. */
const running = new Set<ChildProcess>();
process.once('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});

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
    running.add(this.#child);
    this.exited = new Promise((resolve) => {
      this.#child.once('close', (code) => {
        running.delete(this.#child);
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
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}

/** Waits until `condition` holds; false when it does not in time. */
export async function until(
  condition: () => boolean | Promise<boolean>,
  timeoutMs: number,
): Promise<boolean> {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    if (await condition()) return true;
    if (performance.now() > deadline) return false;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

export interface Listener {
  readonly protocol: 'tcp' | 'udp';
  readonly port: number;
}

/** The ports on which a process takes connections or datagrams. */
export function listeners(pid: number): Listener[] {
  const own = new Set(
    readdirSync(`/proc/${pid}/fd`).map((fd) => {
      try {
        return readlinkSync(`/proc/${pid}/fd/${fd}`);
      } catch {
        return ''; // closed in between
      }
    }),
  );
  return ['tcp', 'tcp6', 'udp', 'udp6'].flatMap((table) => {
    const protocol = table.startsWith('tcp') ? 'tcp' : 'udp';
    // A listening TCP socket is in state 0A; a UDP socket that is not connected in state 07.
    const wanted = protocol === 'tcp' ? '0A' : '07';
    const lines = readFileSync(`/proc/${pid}/net/${table}`, 'utf8').trim().split('\n').slice(1);
    return lines.flatMap((line) => {
      const [, local = '', , state, , , , , , inode] = line.trim().split(/\s+/);
      if (state !== wanted || !own.has(`socket:[${inode}]`)) return [];
      return { protocol, port: Number.parseInt(local.split(':').at(-1) ?? '', 16) } as const;
    });
  });
}

/** Resident memory of a process in bytes. */
export function residentBytes(pid: number): number {
  const [, kilobytes] =
    /^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? [];
  return Number(kilobytes) * 1024;
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

/** `logit_bias` that forbids the tiny models' control tokens, so that answers have their full length. */
export const NO_CONTROL_TOKENS: Readonly<Record<string, number>> = Object.fromEntries(
  Array.from({ length: 16 }, (_, index) => [String(496 + index), -100]),
);

/** What GET /v1/cluster says, as far as tests look at it. */
export interface ClusterState {
  readonly epoch: number;
  readonly state: string;
  readonly epochs_lost: number;
  readonly preemptions: number;
  readonly ranks: readonly { readonly rank: number; readonly pid: number }[];
  readonly requests: { readonly active: number; readonly waiting: number };
}

export async function clusterState(url: string): Promise<ClusterState> {
  const response = await fetch(`${url}/v1/cluster`, { signal: AbortSignal.timeout(30_000) });
  return (await response.json()) as ClusterState;
}

/** The answer to a request that is not streamed. */
export async function postJson<T>(
  url: string,
  path: string,
  body: unknown,
): Promise<{ readonly status: number; readonly body: T }> {
  const response = await fetch(`${url}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(120_000),
  });
  return { status: response.status, body: (await response.json()) as T };
}

export interface StreamEvent {
  readonly choices?: readonly { readonly text?: string; readonly finish_reason?: string | null }[];
  readonly usage?: Readonly<Record<string, unknown>> | null;
  readonly error?: { readonly message: string; readonly code: string };
}

export interface Completion {
  readonly status: number;
  readonly text: string;
  readonly events: readonly StreamEvent[];
  /** The stream's terminal marker came. */
  readonly done: boolean;
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
  const events: StreamEvent[] = [];
  let text = '';
  let buffered = '';
  let done = false;
  const decoder = new TextDecoder();
  for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
    buffered += decoder.decode(chunk, { stream: true });
    const frames = buffered.split('\n\n');
    buffered = frames.pop() ?? '';
    done ||= frames.includes('data: [DONE]');
    for (const frame of frames.filter((candidate) => candidate.startsWith('data: {'))) {
      const event = JSON.parse(frame.slice(6)) as StreamEvent;
      events.push(event);
      text += event.choices?.[0]?.text ?? '';
      onText(text);
    }
  }
  return { status: response.status, text, events, done };
}
