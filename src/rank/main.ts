// A rank as a program and as a function. The coordinator starts `node dist/rank/main.js` for its own
// ranks (--supervised: the end of stdin is the end of the parent, and so of the rank); `cox rank` calls
// startRank. Log lines go to stderr as JSON.
import { realpathSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { pino } from 'pino';
import { inspectModel } from '../base/addon.ts';
import { CoxswainError, toCoxswainError } from '../base/errors.ts';
import { NativeEngine } from '../engine/native-engine.ts';
import { buildId, NUMERICS_CONTRACT } from '../wire/build-id.ts';
import type { RankLog, RankOptions } from './shell/options.ts';
import { runRank } from './shell/run-rank.ts';

const FROM_SOURCES = import.meta.url.endsWith('.ts');
/** A parent that is gone cannot wait; neither do we for long. */
const ORPHAN_EXIT_MS = 3000;
const SUPERVISED_JOIN_MS = 30_000;

export interface RankStart {
  readonly options: RankOptions;
  readonly log: RankLog;
  /** Called once the coordinator assigned a rank number. */
  readonly onJoined?: (rank: number) => void;
}

/**
 * Runs one real rank until `signal` aborts or the coordinator shuts it down.
 * @throws CoxswainError: see runRank; and what the model file may be refused for.
 */
export async function startRank(start: RankStart, signal: AbortSignal): Promise<void> {
  const { options, log, onJoined } = start;
  const { fingerprint } = await inspectModel(options.modelPath);
  await runRank(
    options,
    {
      identity: { fingerprint, buildId: buildId(), numericsContract: NUMERICS_CONTRACT },
      createEngine: () => new NativeEngine(),
      log,
      heartbeats: FROM_SOURCES ? 'inline' : 'worker',
      ...(onJoined === undefined ? {} : { onJoined }),
    },
    signal,
  );
}

function optionsFromArguments(): { options: RankOptions; supervised: boolean } {
  const { values } = parseArgs({
    options: {
      join: { type: 'string' },
      model: { type: 'string' },
      rank: { type: 'string' },
      threads: { type: 'string', default: '0' },
      'data-host': { type: 'string' },
      supervised: { type: 'boolean', default: false },
    },
  });
  const token = process.env['COX_CLUSTER_TOKEN'] ?? '';
  if (values.join === undefined || values.model === undefined) {
    throw new CoxswainError('USAGE_INVALID', 'Give --join HOST:PORT and --model PATH.');
  }
  return {
    supervised: values.supervised,
    options: {
      join: values.join,
      modelPath: values.model,
      token,
      dataHost: values['data-host'] ?? null,
      rank: values.rank === undefined ? null : Number(values.rank),
      threads: Number(values.threads),
      stateDir: null,
      joinTimeoutMs: SUPERVISED_JOIN_MS,
    },
  };
}

async function main(): Promise<void> {
  const log = pino({ base: { proc: 'rank', pid: process.pid } }, pino.destination(2));
  const stop = new AbortController();
  process.on('SIGTERM', () => stop.abort());
  // A broken invariant ends the process; whoever supervises it starts another.
  process.on('uncaughtException', (error) => {
    log.fatal({ reason: error.message, stack: error.stack }, 'rank crashed');
    process.exit(1);
  });
  try {
    const { options, supervised } = optionsFromArguments();
    // An interrupt of the terminal reaches all processes of a group; the parent ends its ranks itself.
    process.on('SIGINT', () => {
      if (!supervised) stop.abort();
    });
    if (supervised) {
      process.stdin.once('close', () => {
        stop.abort();
        setTimeout(() => process.exit(1), ORPHAN_EXIT_MS).unref();
      });
      process.stdin.resume();
    }
    await startRank({ options, log }, stop.signal);
    process.exitCode = 0;
  } catch (thrown) {
    const { code, message } = toCoxswainError(thrown);
    log.error({ code, reason: message }, 'rank ends');
    process.exitCode = 1;
  }
  // Stdin would keep the process alive; and a second SIGTERM while Node takes itself down would kill it.
  process.exit();
}

const invokedAs = process.argv[1];
if (invokedAs !== undefined && realpathSync(invokedAs) === fileURLToPath(import.meta.url)) {
  await main();
}
