// Server-sent events on one response: headers at once, `data:` frames, comment lines while nothing is
// said, and exactly one end. A slow reader holds at most the response's own buffer: write() waits for
// it to drain, and a reader that does not drain in time is cut off. Nothing is ever written after end().
import type { ServerResponse } from 'node:http';
import { CoxswainError } from '../base/errors.ts';

export interface SseOptions {
  /** Silence after which a comment line is sent. */
  readonly keepaliveMs: number;
  /** How long a reader may take to drain what was written. */
  readonly drainTimeoutMs: number;
}

export class SseWriter {
  private readonly response: ServerResponse;
  private readonly options: SseOptions;
  private keepalive: NodeJS.Timeout | null = null;

  constructor(response: ServerResponse, options: SseOptions) {
    this.response = response;
    this.options = options;
  }

  open(headers: Readonly<Record<string, string>>): void {
    this.response.writeHead(200, {
      ...headers,
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-cache',
      'x-accel-buffering': 'no',
    });
    this.response.flushHeaders();
    // Deltas are small; without this each waits for the acknowledgement of the one before.
    this.response.socket?.setNoDelay(true);
    this.keepalive = setInterval(() => this.comment('keepalive'), this.options.keepaliveMs);
    this.keepalive.unref();
  }

  /** One `data:` frame a value; resolves when the reader can take more. */
  async data(values: readonly object[]): Promise<void> {
    if (values.length === 0) return;
    await this.write(values.map((value) => `data: ${JSON.stringify(value)}\n\n`).join(''));
  }

  /** A line every client ignores. Skipped while the reader is behind: it has bytes to read. */
  comment(text: string): void {
    if (this.response.writableNeedDrain || !this.isOpen()) return;
    this.response.write(`: ${text}\n\n`);
  }

  /** The last frames, then the end of the response; resolves when all of it has left. */
  async end(values: readonly object[]): Promise<void> {
    this.stopKeepalive();
    if (!this.isOpen()) return;
    const frames = values.map((value) => `data: ${JSON.stringify(value)}\n\n`);
    this.response.end(`${frames.join('')}data: [DONE]\n\n`);
    await this.settled('finish');
  }

  /** Stops timers; for a response that is gone. */
  dispose(): void {
    this.stopKeepalive();
  }

  private isOpen(): boolean {
    return !this.response.destroyed && !this.response.writableEnded;
  }

  private async write(text: string): Promise<void> {
    if (!this.isOpen()) throw gone();
    this.keepalive?.refresh();
    if (!this.response.write(text)) await this.settled('drain');
  }

  private async settled(event: 'drain' | 'finish'): Promise<void> {
    const outcome = await this.next(event);
    if (outcome === 'stalled') this.response.destroy();
    if (outcome !== event) throw gone();
  }

  private next(event: 'drain' | 'finish'): Promise<string> {
    return new Promise((resolve) => {
      const settle = (outcome: string) => {
        clearTimeout(timer);
        this.response.off(event, onEvent);
        this.response.off('close', onClose);
        resolve(outcome);
      };
      const onEvent = () => settle(event);
      const onClose = () => settle('closed');
      const timer = setTimeout(() => settle('stalled'), this.options.drainTimeoutMs);
      this.response.on(event, onEvent);
      this.response.on('close', onClose);
    });
  }

  private stopKeepalive(): void {
    if (this.keepalive !== null) clearInterval(this.keepalive);
    this.keepalive = null;
  }
}

function gone(): CoxswainError {
  return new CoxswainError('REQUEST_CANCELLED', 'The client went away or stopped reading.');
}
