// The supervision of local ranks: started again with back-off, given up at a limit, ended without rest.
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import type { RankExit, RankProcess } from '../../../../src/coordinator/shell/options.ts';
import { startRankProcess } from '../../../../src/coordinator/shell/rank-process.ts';
import { Supervisor } from '../../../../src/coordinator/shell/supervisor.ts';
import { type LogLine, loggerTo } from './fake-cluster.ts';

class FakeProcess implements RankProcess {
  readonly pid: number;
  readonly signals: string[] = [];
  readonly exited: Promise<RankExit>;
  private readonly obeysTerm: boolean;
  private resolve: (exit: RankExit) => void = () => undefined;

  constructor(pid: number, obeysTerm: boolean) {
    this.pid = pid;
    this.obeysTerm = obeysTerm;
    this.exited = new Promise((resolve) => {
      this.resolve = resolve;
    });
  }

  end(code: number, lastWords = ''): void {
    this.resolve({ code, signal: null, lastWords });
  }

  kill(signal: 'SIGTERM' | 'SIGKILL'): void {
    this.signals.push(signal);
    if (signal === 'SIGKILL' || this.obeysTerm) this.resolve({ code: null, signal, lastWords: '' });
  }
}

function supervised(obeysTerm = true) {
  const processes: FakeProcess[] = [];
  const exits: string[] = [];
  const supervisor = new Supervisor({
    count: 2,
    launch: (rank) => {
      const process = new FakeProcess(rank * 1000 + processes.length, obeysTerm);
      processes.push(process);
      return process;
    },
    log: loggerTo([]),
    onExit: (rank, sentence, hopeless) => exits.push(`${rank} ${hopeless} ${sentence}`),
  });
  supervisor.startAll();
  return { supervisor, processes, exits };
}

describe('the supervisor', () => {
  it('does not start a rank again that ended before the cluster ever ran', async () => {
    const { processes, exits } = supervised();
    processes[1]?.end(1, 'no such file');
    await sleep(20);
    expect(processes.length).toBe(2);
    expect(exits).toEqual(['1 true its process ended with code 1: no such file']);
  });

  it('starts a rank again at once the first time, and gives up after five more ends in a minute', async () => {
    const { supervisor, processes, exits } = supervised();
    supervisor.allowRestarts();
    supervisor.kill(0);
    await sleep(30);
    expect(processes.length).toBe(3);
    expect(exits).toEqual(['0 false its process was killed by SIGKILL']);
    expect(supervisor.pid(0)).toBe(processes[2]?.pid);
    const started = performance.now();
    while (!exits.at(-1)?.includes('true') && performance.now() - started < 15_000) {
      if (supervisor.pid(0) !== null) supervisor.kill(0);
      await sleep(10);
    }
    expect(exits.length).toBe(6);
    expect(performance.now() - started).toBeGreaterThan(3000);
    expect(supervisor.pid(0)).toBeNull();
    supervisor.forgive();
    expect(supervisor.pid(0)).not.toBeNull();
    await supervisor.close();
  });

  it('ends all ranks, those that do not listen by force, and starts none again', async () => {
    const { supervisor, processes, exits } = supervised(false);
    supervisor.allowRestarts();
    await supervisor.close();
    expect(processes.map(({ signals }) => signals)).toEqual([
      ['SIGTERM', 'SIGKILL'],
      ['SIGTERM', 'SIGKILL'],
    ]);
    expect(processes.length).toBe(2);
    expect(exits).toEqual([]);
  });
});

describe('a rank process', () => {
  const launch = (logs: LogLine[]) => ({
    rank: 3,
    join: '127.0.0.1:1',
    modelPath: '/models/x.gguf',
    token: 'the secret token',
    threads: 2,
    log: loggerTo(logs),
  });

  it('gets its token in the environment only, and its log lines are passed on', async () => {
    const logs: LogLine[] = [];
    const script = `
      const line = { level: 50, msg: 'rank ends', reason: 'argv ' + process.argv.slice(1).join(' ') };
      console.error(JSON.stringify(line));
      console.error(JSON.stringify({ level: 30, msg: 'token', length: process.env.COX_CLUSTER_TOKEN.length }));
      process.exit(3);`;
    const program = { command: [process.execPath, '-e', script, '--'] as const, environment: {} };
    const exit = await startRankProcess({ ...program, command: [...program.command] }, launch(logs))
      .exited;
    expect(exit.code).toBe(3);
    expect(exit.lastWords).toMatch(/^rank ends: argv .*--rank 3 --threads 2/);
    expect(exit.lastWords).not.toContain('secret');
    expect(logs.map(({ level, message }) => `${level} ${message}`)).toEqual([
      'error rank ends',
      'debug token',
    ]);
    expect(logs[1]?.fields['length']).toBe('the secret token'.length);
  });

  it('that cannot be started ends with the reason', async () => {
    const program = { command: ['/no/such/program'] as const, environment: {} };
    const exit = await startRankProcess({ ...program, command: [...program.command] }, launch([]))
      .exited;
    expect(exit.lastWords).toMatch(/ENOENT/);
  });
});
