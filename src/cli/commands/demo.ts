// cox demo: the main job end to end, as a user would do it. Gets the default model, starts `cox up` with
// two tensor-parallel ranks as a process of its own, asks over HTTP, shows the second turn reusing the
// first, prints what each rank did, stops cleanly.
import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { CommandModule } from 'yargs';
import { CoxswainError } from '../../base/errors.ts';
import { modelFile } from '../models-directory.ts';
import { DEFAULT_MODEL } from '../pull/catalogue.ts';
import type { Flags } from '../settings.ts';
import { createSseReader } from '../sse-reader.ts';
import { bytes, table } from '../table.ts';
import { print, say } from '../terminal.ts';

const PROGRAM = fileURLToPath(new URL('../main.js', import.meta.url));
const READY_MS = 120_000;
const ANSWER_MS = 120_000;
const STOP_MS = 20_000;
/** Ranks tell their counters every 2 s; the last ones must have arrived before they are shown. */
const COUNTERS_MS = 2_500;
const QUESTIONS = ['What is a coxswain? Answer in one sentence.', 'And what does a rower do?'];

interface Turn {
  readonly role: 'user' | 'assistant';
  readonly content: string;
}

export const demoCommand: CommandModule<object, Flags> = {
  command: 'demo',
  describe: 'Show the main job on the default model with two ranks',
  builder: (yargs) =>
    yargs.option('tp', { type: 'number', default: 2, describe: 'Ranks' }) as never,
  handler: async (flags) => {
    const model = await modelFile(DEFAULT_MODEL, process.env);
    const server = new Server(model, Number(flags['tp']));
    try {
      const url = await server.ready();
      const turns: Turn[] = [];
      let rate = 0;
      for (const content of QUESTIONS) {
        turns.push({ role: 'user', content });
        const spoken = await ask(url, turns);
        turns.push({ role: 'assistant', content: spoken.text });
        rate = spoken.tokensPerSecond;
      }
      await report(url, rate);
    } finally {
      await server.stop();
    }
    say('stopped cleanly: no process is left');
  },
};

class Server {
  private readonly child: ChildProcess;
  private readonly ended: Promise<number | null>;

  constructor(model: string, tp: number) {
    say(`starting: cox up ${model} --tp ${tp} --port 0`);
    const args = [
      PROGRAM,
      'up',
      model,
      '--tp',
      String(tp),
      '--port',
      '0',
      '--json',
      '--log-level',
      'warn',
    ];
    this.child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
    this.ended = new Promise((resolve) => this.child.once('close', resolve));
  }

  /** The URL of the ready line. */
  async ready(): Promise<string> {
    const { stdout } = this.child;
    if (stdout === null) throw new CoxswainError('INTERNAL', 'the server has no standard output');
    const lines = createInterface({ input: stdout });
    const timer = setTimeout(() => lines.close(), READY_MS);
    for await (const line of lines) {
      const event = JSON.parse(line) as {
        event: string;
        url: string;
        pid: number;
        ranks: { rank: number; pid: number }[];
      };
      if (event.event !== 'ready') continue;
      clearTimeout(timer);
      say(
        `ready: coordinator pid ${event.pid}, ranks ${event.ranks.map(({ rank, pid }) => `${rank} (pid ${pid})`).join(', ')}`,
      );
      return event.url;
    }
    clearTimeout(timer);
    throw new CoxswainError(
      'JOIN_TIMEOUT',
      'the cluster did not become ready; its messages stand above',
    );
  }

  async stop(): Promise<void> {
    this.child.kill('SIGTERM');
    const timer = setTimeout(() => this.child.kill('SIGKILL'), STOP_MS);
    const code = await this.ended;
    clearTimeout(timer);
    if (code !== 0) throw new CoxswainError('INTERNAL', `the server ended with code ${code}`);
  }
}

interface ChatChunk {
  readonly choices: readonly { readonly delta?: { readonly content?: string } }[];
  readonly usage?: {
    readonly prompt_tokens: number;
    readonly completion_tokens: number;
    readonly prompt_tokens_details?: { readonly cached_tokens?: number };
  } | null;
}

interface Spoken {
  readonly text: string;
  readonly tokensPerSecond: number;
}

async function ask(url: string, messages: readonly Turn[]): Promise<Spoken> {
  print(`\n> ${messages.at(-1)?.content ?? ''}`);
  const start = performance.now();
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({
      messages,
      stream: true,
      stream_options: { include_usage: true },
      temperature: 0,
      max_tokens: 80,
    }),
    signal: AbortSignal.timeout(ANSWER_MS),
  });
  if (!response.ok || response.body === null)
    throw new CoxswainError('INTERNAL', `HTTP ${response.status}: ${await response.text()}`);
  let text = '';
  let first = 0;
  const usage = { prompt: 0, cached: 0, completion: 0 };
  for await (const data of createSseReader(response.body as AsyncIterable<Uint8Array>)) {
    if (data === '[DONE]') break;
    const chunk = JSON.parse(data) as ChatChunk;
    const delta = chunk.choices[0]?.delta?.content ?? '';
    if (delta !== '' && first === 0) first = performance.now();
    process.stdout.write(delta);
    text += delta;
    if (chunk.usage) {
      usage.prompt = chunk.usage.prompt_tokens;
      usage.cached = chunk.usage.prompt_tokens_details?.cached_tokens ?? 0;
      usage.completion = chunk.usage.completion_tokens;
    }
  }
  const tokensPerSecond = (1000 * usage.completion) / (performance.now() - first);
  print('');
  say(
    `prompt ${usage.prompt} tokens, ${usage.cached} reused; first token after ${(first - start).toFixed(0)} ms; ` +
      `${usage.completion} tokens at ${tokensPerSecond.toFixed(1)}/s`,
  );
  return { text, tokensPerSecond };
}

interface ClusterBody {
  readonly steps: { readonly done: number };
  readonly ranks: readonly {
    readonly rank: number;
    readonly pid: number;
    readonly bytes: number;
    readonly threads: number;
    readonly links: readonly {
      readonly peer: number;
      readonly transport: string;
      readonly round_trip_us: number;
    }[];
    readonly collectives: number;
    readonly bytes_sent: number;
    readonly wait_ms: number;
  }[];
}

/** Every rank takes part in every step, so the rate of the cluster is the rate of each rank. */
async function report(url: string, tokensPerSecond: number): Promise<void> {
  await sleep(COUNTERS_MS);
  const response = await fetch(`${url}/v1/cluster`, { signal: AbortSignal.timeout(ANSWER_MS) });
  const { ranks, steps } = (await response.json()) as ClusterBody;
  const header = [
    'rank',
    'pid',
    'holds',
    'threads',
    'tokens/s',
    'collectives/step',
    'sent',
    'waited',
    'links',
  ];
  const rows = ranks.map((rank) => [
    rank.rank,
    rank.pid,
    bytes(rank.bytes),
    rank.threads,
    tokensPerSecond.toFixed(1),
    (rank.collectives / Math.max(1, steps.done)).toFixed(1),
    bytes(rank.bytes_sent),
    `${rank.wait_ms.toFixed(0)} ms`,
    rank.links
      .map(
        ({ peer, transport, round_trip_us }) =>
          `${peer} over ${transport} (${round_trip_us.toFixed(1)} us)`,
      )
      .join(', '),
  ]);
  print(`\n${table([header, ...rows])}`);
}
