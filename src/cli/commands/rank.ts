// cox rank: one rank that joins a coordinator, here or elsewhere.
import { join } from 'node:path';
import { pino } from 'pino';
import type { CommandModule } from 'yargs';
import { CoxswainError } from '../../base/errors.ts';
import { readClusterToken } from '../../config/secrets.ts';
import { startRank } from '../../rank/main.ts';
import { stateDirectory } from '../models-directory.ts';
import { addSettings, type Flags, modelOf, readSettings } from '../settings.ts';
import { EXIT_FAILED, printJson, say } from '../terminal.ts';

const NAMES = ['model', 'threads', 'tokenFile', 'logLevel'] as const;
const JOIN_MS = 10 * 60_000;
const STOP_MS = 10_000;

export const rankCommand: CommandModule<object, Flags> = {
  command: 'rank',
  describe: 'Join a coordinator as one rank',
  builder: (yargs) =>
    addSettings(yargs, NAMES)
      .option('join', {
        type: 'string',
        demandOption: true,
        requiresArg: true,
        describe: "HOST:PORT of the coordinator's --listen",
      })
      .option('data-host', {
        type: 'string',
        requiresArg: true,
        describe:
          'Address of this host that other ranks reach [the one that faces the coordinator]',
      })
      .option('rank', {
        type: 'number',
        requiresArg: true,
        describe: 'Wish for a rank number [any]',
      })
      .option('json', {
        type: 'boolean',
        default: false,
        describe: 'Events as JSON lines',
      }) as never,
  handler: async (flags) => {
    const config = readSettings(flags, NAMES);
    const joinAddress = String(flags['join']);
    const token = readClusterToken(
      { ...config, listen: { host: hostOf(joinAddress), port: 1 } },
      process.env,
    );
    if (token === null) {
      throw new CoxswainError(
        'CONFIG_INVALID',
        'A rank needs the cluster token: set COX_CLUSTER_TOKEN or --token-file.',
        { field: 'token-file' },
      );
    }
    const stop = new AbortController();
    const onSignal = () => {
      stop.abort();
      // A disk or an engine that hangs must not make the process deaf.
      setTimeout(() => process.exit(EXIT_FAILED), STOP_MS).unref();
    };
    process.on('SIGINT', onSignal).on('SIGTERM', onSignal);
    await startRank(
      {
        options: {
          join: joinAddress,
          modelPath: await modelOf(flags, config),
          token,
          dataHost: typeof flags['data-host'] === 'string' ? flags['data-host'] : null,
          rank: typeof flags['rank'] === 'number' ? flags['rank'] : null,
          threads: config.threads ?? 0,
          stateDir: join(stateDirectory(process.env), 'rank'),
          joinTimeoutMs: JOIN_MS,
        },
        log: pino(
          { level: config.logLevel, base: { proc: 'rank', pid: process.pid } },
          pino.destination(2),
        ),
        onJoined: (rank) => {
          if (flags['json'] === true) printJson({ event: 'joined', rank, pid: process.pid });
          else say(`joined as rank ${rank}`);
        },
      },
      stop.signal,
    );
  },
};

/** "[::1]:7070" and "host:7070" without the port. */
function hostOf(address: string): string {
  return address.replace(/:\d+$/, '').replace(/^\[|\]$/g, '');
}
