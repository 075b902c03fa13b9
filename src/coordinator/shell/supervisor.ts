// The local rank processes: one a rank, started again when it ends, with back-off and a limit. Owns the
// processes. They also end by themselves when this process does (their stdin pipe closes).
import { CoxswainError } from '../../base/errors.ts';
import type { ClusterLog, RankExit, RankProcess } from './options.ts';

const BACKOFF_MS = [0, 250, 500, 1000, 2000];
/** More ends than this within ENDS_WINDOW_MS, and starting it again is pointless. */
const ENDS_MAX = 5;
const ENDS_WINDOW_MS = 60_000;
const TERM_GRACE_MS = 3000;

export interface SupervisorOptions {
  readonly count: number;
  readonly launch: (rank: number) => RankProcess;
  readonly log: ClusterLog;
  /** `hopeless`: it will not be started again until forgive(). */
  readonly onExit: (rank: number, sentence: string, hopeless: boolean) => void;
}

interface Child {
  process: RankProcess | null;
  endedAt: number[];
  timer: NodeJS.Timeout | null;
}

export class Supervisor {
  private readonly options: SupervisorOptions;
  private readonly children: Child[];
  private closing: boolean = false;
  /** Off until the first epoch: a rank that cannot even start is an error, not an accident. */
  private restarts: boolean = false;

  constructor(options: SupervisorOptions) {
    this.options = options;
    this.children = Array.from({ length: options.count }, () => ({
      process: null,
      endedAt: [],
      timer: null,
    }));
  }

  startAll(): void {
    for (let rank = 0; rank < this.children.length; rank += 1) this.start(rank);
  }

  allowRestarts(): void {
    this.restarts = true;
  }

  pid(rank: number): number | null {
    return this.children[rank]?.process?.pid ?? null;
  }

  /** A rank that is given up: its process is killed now and started again when it is gone. */
  kill(rank: number): void {
    this.children[rank]?.process?.kill('SIGKILL');
  }

  /** Ranks that were hopeless get another chance. */
  forgive(): void {
    for (const [rank, child] of this.children.entries()) {
      child.endedAt = [];
      if (child.process === null && child.timer === null) this.start(rank);
    }
  }

  /** From now on processes that end stay ended. */
  beginClosing(): void {
    this.closing = true;
    for (const { timer } of this.children) if (timer !== null) clearTimeout(timer);
  }

  /** Ends all processes: asked to first, then killed. Resolves when none is left. */
  async close(): Promise<void> {
    this.beginClosing();
    const ends: Promise<unknown>[] = [];
    for (const child of this.children) {
      const { process } = child;
      if (process === null) continue;
      process.kill('SIGTERM');
      const killer = setTimeout(() => process.kill('SIGKILL'), TERM_GRACE_MS);
      ends.push(process.exited.finally(() => clearTimeout(killer)));
    }
    await Promise.all(ends);
  }

  private start(rank: number): void {
    const child = this.children[rank];
    if (child === undefined || this.closing) return;
    child.timer = null;
    const process = this.options.launch(rank);
    child.process = process;
    this.options.log.info({ rank, rank_pid: process.pid }, 'rank process started');
    process.exited
      .then((exit) => this.onExit(rank, child, exit))
      .catch((thrown: unknown) => {
        throw new CoxswainError('INTERNAL', `Rank ${rank}'s end was not handled.`, {
          cause: thrown,
        });
      });
  }

  private onExit(rank: number, child: Child, exit: RankExit): void {
    child.process = null;
    if (this.closing) return;
    const now = performance.now();
    child.endedAt = [...child.endedAt.filter((at) => now - at < ENDS_WINDOW_MS), now];
    const hopeless = !this.restarts || child.endedAt.length > ENDS_MAX;
    const sentence = describeExit(exit);
    this.options.log.warn({ rank, exit: sentence, restart: !hopeless }, 'rank process ended');
    if (!hopeless) {
      const backoffMs = BACKOFF_MS[Math.min(child.endedAt.length, BACKOFF_MS.length) - 1] ?? 0;
      child.timer = setTimeout(() => this.start(rank), backoffMs);
    }
    this.options.onExit(rank, sentence, hopeless);
  }
}

function describeExit({ code, signal, lastWords }: RankExit): string {
  const how = signal === null ? `ended with code ${code}` : `was killed by ${signal}`;
  return lastWords === '' ? `its process ${how}` : `its process ${how}: ${lastWords}`;
}
