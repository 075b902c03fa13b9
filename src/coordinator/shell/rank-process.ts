// Starts one rank as a child of this process. Its stdin is a pipe that closes when this process ends,
// however it ends: then the rank ends too. Its log lines are passed on; its last words are kept for the
// error sentence. The token goes through the environment, where other users cannot read it.
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import type { ClusterLog, RankExit, RankLaunch, RankProcess } from './options.ts';

const LINE_CHARACTERS_MAX = 2000;
/** pino's level numbers. */
const WARN_LEVEL = 40;
const ERROR_LEVEL = 50;

export interface RankProgram {
  /** Executable and its first arguments: node and dist/rank/main.js, or another program. */
  readonly command: readonly [string, ...string[]];
  readonly environment: Readonly<Record<string, string | undefined>>;
}

export function startRankProcess(program: RankProgram, launch: RankLaunch): RankProcess {
  const [executable, ...first] = program.command;
  const { rank, join, modelPath, threads } = launch;
  const child = spawn(
    executable,
    [
      ...first,
      ...['--join', join, '--model', modelPath, '--rank', String(rank)],
      ...['--threads', String(threads), '--data-host', '127.0.0.1', '--supervised'],
    ],
    {
      stdio: ['pipe', 'pipe', 'pipe'],
      env: { ...program.environment, COX_CLUSTER_TOKEN: launch.token },
    },
  );
  let lastWords = '';
  for (const stream of [child.stdout, child.stderr]) {
    createInterface({ input: stream }).on('line', (line) => {
      lastWords = passOn(line.slice(0, LINE_CHARACTERS_MAX), rank, launch.log) ?? lastWords;
    });
  }
  // A rank that is gone cannot take the end of its stdin.
  child.stdin.on('error', () => undefined);
  const exited = new Promise<RankExit>((resolve) => {
    child.once('error', (error) => resolve({ code: null, signal: null, lastWords: error.message }));
    child.once('close', (code, signal) => resolve({ code, signal, lastWords }));
  });
  return {
    pid: child.pid ?? 0,
    exited,
    kill: (signal) => {
      child.kill(signal);
    },
  };
}

/** Logs a line of the rank at its own level; gives it back when it may explain the rank's end. */
function passOn(line: string, rank: number, log: ClusterLog): string | null {
  const entry = parseLine(line);
  if (entry === null) {
    if (line.trim() === '') return null;
    log.warn({ rank, line }, 'rank wrote');
    return line;
  }
  const { level, msg, fields } = entry;
  if (level >= ERROR_LEVEL) log.error({ ...fields, rank }, msg);
  else if (level >= WARN_LEVEL) log.warn({ ...fields, rank }, msg);
  else log.debug({ ...fields, rank }, msg);
  if (level < ERROR_LEVEL) return null;
  const reason = fields['reason'];
  return typeof reason === 'string' ? `${msg}: ${reason}` : msg;
}

function parseLine(line: string): {
  readonly level: number;
  readonly msg: string;
  readonly fields: Record<string, unknown>;
} | null {
  try {
    const value: unknown = JSON.parse(line);
    if (typeof value !== 'object' || value === null) return null;
    // The coordinator's own fields of these names stand on the line already.
    const {
      level,
      msg,
      time,
      pid,
      proc: _proc,
      hostname,
      ...fields
    } = value as Record<string, unknown>;
    if (typeof level !== 'number' || typeof msg !== 'string') return null;
    return { level, msg, fields: { ...fields, rank_time: time, rank_pid: pid, hostname } };
  } catch {
    return null; // not one of our log lines
  }
}
