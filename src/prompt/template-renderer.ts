// Renders chat templates in a worker thread: a template comes out of a model file that nobody vouches
// for, and may loop or fill memory. One job at a time, each with a deadline; a worker that misses it is
// ended and the next job gets a fresh one. Owns the worker, its timer and the queue.
import { Worker } from 'node:worker_threads';
import { present } from '../base/assert.ts';
import { CoxswainError } from '../base/errors.ts';
import type { TemplateJob, TemplateReply, TemplateSetup } from './template-job.ts';

export interface TemplateLimits {
  /** For one rendering, from when the worker takes it. */
  readonly renderMs: number;
  /** For starting the worker: generous, the machine may be busy. */
  readonly startMs: number;
  readonly queueJobs: number;
  readonly inputUnits: number;
  readonly outputUnits: number;
  readonly heapMegabytes: number;
}

export const TEMPLATE_LIMITS: TemplateLimits = {
  renderMs: 5_000,
  startMs: 30_000,
  queueJobs: 1_024,
  inputUnits: 32 * 1024 * 1024,
  outputUnits: 64 * 1024 * 1024,
  heapMegabytes: 1_024,
};

interface Waiting {
  readonly job: TemplateJob;
  readonly resolve: (marked: string) => void;
  readonly reject: (error: CoxswainError) => void;
}

interface Running {
  readonly worker: Worker;
  ready: boolean;
  active: Waiting | null;
}

export class TemplateRenderer {
  private readonly setup: TemplateSetup;
  private readonly limits: TemplateLimits;
  private readonly entry: URL;
  private readonly queue: Waiting[] = [];
  private running: Running | null = null;
  private timer: NodeJS.Timeout | null = null;
  private nextId = 1;
  /** What late callers hear; null while open. */
  private closing: CoxswainError | null = null;

  constructor(setup: TemplateSetup, limits: TemplateLimits = TEMPLATE_LIMITS) {
    this.setup = setup;
    this.limits = limits;
    this.entry = workerEntry();
  }

  /** The marked rendering. Rejects with TEMPLATE_FAILED, QUEUE_FULL, REQUEST_CANCELLED, SHUTTING_DOWN. */
  render(job: Omit<TemplateJob, 'id'>, signal?: AbortSignal): Promise<string> {
    const refusal = this.refusal(job, signal);
    if (refusal !== null) return Promise.reject(refusal);
    const full: TemplateJob = { ...job, id: this.nextId };
    this.nextId += 1;
    const { promise, resolve, reject } = withResolvers<string>();
    this.queue.push({ job: full, resolve, reject });
    this.advance();
    if (signal === undefined) return promise;
    const abort = () => this.abandon(full.id);
    signal.addEventListener('abort', abort, { once: true });
    return promise.finally(() => signal.removeEventListener('abort', abort));
  }

  async close(): Promise<void> {
    const closing = new CoxswainError('SHUTTING_DOWN', 'the server is shutting down');
    this.closing = closing;
    for (const waiting of this.queue.splice(0)) waiting.reject(closing);
    await this.endWorker(closing);
  }

  private refusal(job: Omit<TemplateJob, 'id'>, signal?: AbortSignal): CoxswainError | null {
    if (this.closing !== null) return this.closing;
    if (signal?.aborted === true) return cancelled();
    if (this.queue.length >= this.limits.queueJobs) {
      return new CoxswainError('QUEUE_FULL', 'too many chat prompts wait to be rendered', {
        retryAfterSeconds: 1,
      });
    }
    const units = unitsOf(job.turns) + unitsOf(job.variables);
    if (units <= this.limits.inputUnits) return null;
    return new CoxswainError(
      'CONTEXT_EXCEEDED',
      `the messages have ${units} characters, more than ${this.limits.inputUnits}`,
      { field: 'messages' },
    );
  }

  /** Starts a worker, or hands it the next job, when either can be done. */
  private advance(): void {
    if (this.queue.length === 0) return;
    this.running ??= this.startWorker();
    const { running } = this;
    if (!running.ready || running.active !== null) return;
    const waiting = present(this.queue.shift(), 'the queue is not empty');
    running.active = waiting;
    running.worker.postMessage(waiting.job);
    const { renderMs } = this.limits;
    this.arm(renderMs, `the chat template ran longer than ${renderMs} ms`);
  }

  private startWorker(): Running {
    const worker = new Worker(this.entry, {
      workerData: this.setup,
      resourceLimits: { maxOldGenerationSizeMb: this.limits.heapMegabytes },
    });
    const running: Running = { worker, ready: false, active: null };
    worker.unref();
    worker.on('message', (reply: TemplateReply) => this.take(running, reply));
    worker.on('error', (error) => this.lose(running, failureOf(error, this.limits)));
    worker.on('exit', () => this.lose(running, failed('the chat template ended its worker')));
    this.arm(this.limits.startMs, `the template worker did not start in ${this.limits.startMs} ms`);
    return running;
  }

  private take(running: Running, reply: TemplateReply): void {
    if (running !== this.running) return;
    this.disarm();
    if (reply.kind === 'ready') running.ready = true;
    else {
      const { active } = running;
      running.active = null;
      if (active !== null) this.settle(active, reply);
    }
    this.advance();
  }

  private settle(waiting: Waiting, reply: TemplateReply): void {
    if (reply.kind === 'failed') waiting.reject(failed(`chat template: ${reply.message}`));
    else if (reply.kind === 'rendered' && reply.marked.length <= this.limits.outputUnits) {
      waiting.resolve(reply.marked);
    } else waiting.reject(failed('the chat template wrote too much text'));
  }

  /** A client is gone: its job is dropped if it still waits, else its result is. */
  private abandon(id: number): void {
    const at = this.queue.findIndex((waiting) => waiting.job.id === id);
    const [waiting] = at < 0 ? [] : this.queue.splice(at, 1);
    const { running } = this;
    if (waiting !== undefined) waiting.reject(cancelled());
    else if (running?.active?.job.id === id) running.active.reject(cancelled());
  }

  private arm(ms: number, fact: string): void {
    this.disarm();
    this.timer = setTimeout(() => {
      const { running } = this;
      if (running !== null) this.lose(running, failed(fact));
    }, ms);
  }

  private disarm(): void {
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = null;
  }

  /** The worker is of no use any more: its job fails, and so does a first one that it never took. */
  private lose(running: Running, error: CoxswainError): void {
    if (running !== this.running) return;
    if (!running.ready) running.active = this.queue.shift() ?? null;
    this.endWorker(error).catch(() => undefined);
    this.advance();
  }

  private async endWorker(error: CoxswainError): Promise<void> {
    const { running } = this;
    this.running = null;
    this.disarm();
    running?.active?.reject(error);
    await running?.worker.terminate();
  }
}

/** Beside this file when built. A test runner runs the sources, but no worker thread can: it gets the built one. */
function workerEntry(): URL {
  const built = import.meta.url.endsWith('.ts')
    ? '../../dist/prompt/template-worker.js'
    : './template-worker.js';
  return new URL(built, import.meta.url);
}

const failed = (fact: string) => new CoxswainError('TEMPLATE_FAILED', fact);
const cancelled = () => new CoxswainError('REQUEST_CANCELLED', 'the client is gone');

function failureOf(error: unknown, limits: TemplateLimits): CoxswainError {
  const code = error instanceof Error && 'code' in error ? error.code : '';
  if (code === 'ERR_WORKER_OUT_OF_MEMORY') {
    return failed(`the chat template needed more than ${limits.heapMegabytes} MB`);
  }
  if (code === 'MODULE_NOT_FOUND' || code === 'ERR_MODULE_NOT_FOUND') {
    return new CoxswainError('INTERNAL', `the template worker is not built: ${String(error)}`);
  }
  return new CoxswainError('INTERNAL', `template worker: ${String(error)}`, { cause: error });
}

/** Characters of all strings in a JSON value. */
function unitsOf(value: unknown): number {
  if (typeof value === 'string') return value.length;
  if (typeof value !== 'object' || value === null) return 0;
  let units = 0;
  for (const [key, item] of Object.entries(value)) units += key.length + unitsOf(item);
  return units;
}

function withResolvers<T>() {
  let resolve: (value: T) => void = () => undefined;
  let reject: (error: CoxswainError) => void = () => undefined;
  const promise = new Promise<T>((accept, refuse) => {
    resolve = accept;
    reject = refuse;
  });
  return { promise, resolve, reject };
}
