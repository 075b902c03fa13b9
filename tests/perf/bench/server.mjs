// A `cox up` of the benchmark: started, asked over HTTP, watched in /proc, ended. Owns the child until stop().
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { program } from './ours.mjs';
import { root } from './run.mjs';

const READY_MS = 120_000;
const LOG_TRIES = 100;
const LOG_POLL_MS = 20;

export class Server {
  /** `flags`: of the topology. `readyMs`: from the start of the program to its ready line. */
  static async start(model, flags) {
    const started = performance.now();
    const child = spawn(
      process.execPath,
      [program, 'up', model, '--port', 0, '--json', '--log-level', 'info', ...flags].map(String),
      { cwd: root, stdio: ['ignore', 'pipe', 'pipe'] },
    );
    let said = '';
    child.stderr.on('data', (chunk) => {
      said += chunk.toString('utf8');
    });
    const timer = setTimeout(() => child.kill(), READY_MS);
    try {
      for await (const line of createInterface({ input: child.stdout })) {
        const ready = JSON.parse(line);
        return new Server(child, ready, {
          readyMs: performance.now() - started,
          log: () => said,
        });
      }
    } finally {
      clearTimeout(timer);
    }
    throw new Error(`cox up ended before it was ready: ${said.slice(-1000)}`);
  }

  constructor(child, ready, { readyMs, log }) {
    this.child = child;
    this.url = ready.url;
    this.pids = { coordinator: ready.pid, ranks: ready.ranks.map(({ pid }) => pid) };
    this.readyMs = readyMs;
    this.log = log;
  }

  /** What the first rank said of its loading: {weight_bytes, load_ms}. The log comes by a pipe of its own. */
  async load() {
    for (let tries = 0; tries < LOG_TRIES; tries++) {
      const line = this.log()
        .split('\n')
        .slice(0, -1)
        .find((text) => text.includes('"load_ms"'));
      if (line !== undefined) return JSON.parse(line);
      await delay(LOG_POLL_MS);
    }
    throw new Error('no rank said how long it took to load');
  }

  async cluster() {
    const response = await fetch(`${this.url}/v1/cluster`);
    return response.json();
  }

  async complete(body) {
    const response = await this.post({ temperature: 0, ignore_eos: true, ...body });
    return response.json();
  }

  /** Tokens a second between the first and the last event of a stream of `tokens` tokens. */
  async streamedRate(prompt, tokens) {
    const body = { prompt, max_tokens: tokens, temperature: 0, ignore_eos: true, stream: true };
    const response = await this.post(body);
    let first = 0;
    let last = 0;
    for await (const _chunk of response.body) {
      last = performance.now();
      if (first === 0) first = last;
    }
    return ((tokens - 1) * 1000) / (last - first);
  }

  async post(body) {
    const response = await fetch(`${this.url}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`);
    return response;
  }

  async stop() {
    this.child.kill('SIGTERM');
    if (this.child.exitCode === null && this.child.signalCode === null)
      await once(this.child, 'exit');
  }
}

/** Nanoseconds of processor time of each thread, by thread id. Linux. */
export function threadTimes(pid) {
  const times = new Map();
  for (const thread of readdirSync(`/proc/${pid}/task`)) {
    const [ns] = readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ');
    times.set(Number(thread), Number(ns));
  }
  return times;
}

/** Bytes of a field of /proc/PID/smaps_rollup. */
export function memoryOf(pid, field) {
  const text = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8');
  return Number(new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(text)[1]) * 1024;
}
