// The coordinator's handle on the heartbeat monitor: on a worker thread, so that a busy main thread
// neither delays a verdict nor makes one.
import { Worker } from 'node:worker_threads';
import { CoxswainError } from '../../base/errors.ts';
import { HeartbeatPort, type MonitorRequest } from './heartbeat-port.ts';
import type { Verdict } from './heartbeat-watch.ts';

export interface HeartbeatMonitor {
  readonly port: number;
  request(request: Exclude<MonitorRequest, { type: 'stop' }>): void;
  stop(): Promise<void>;
}

export interface MonitorOptions {
  readonly where: 'worker' | 'inline';
  readonly host: string;
  readonly port: number;
  readonly onVerdict: (verdict: Verdict) => void;
}

export function startHeartbeatMonitor(options: MonitorOptions): Promise<HeartbeatMonitor> {
  return options.where === 'worker' ? onWorker(options) : inline(options);
}

async function inline({ host, port, onVerdict }: MonitorOptions): Promise<HeartbeatMonitor> {
  const monitor = await HeartbeatPort.bind(host, port, onVerdict);
  return {
    port: monitor.port,
    request: (request) => monitor.handle(request),
    stop: () => Promise.resolve(monitor.handle({ type: 'stop' })),
  };
}

function onWorker({ host, port, onVerdict }: MonitorOptions): Promise<HeartbeatMonitor> {
  const worker = new Worker(new URL('./heartbeat-monitor-worker.js', import.meta.url), {
    workerData: { host, port },
  });
  const ended = new Promise<void>((resolve) => worker.once('exit', () => resolve()));
  return new Promise((resolve, reject) => {
    let isStarted = false;
    worker.once('error', (cause) => {
      const error = new CoxswainError('INTERNAL', 'The heartbeat monitor ended.', { cause });
      // Without it no dead rank would be noticed any more: that ends the process.
      if (isStarted) throw error;
      reject(error);
    });
    worker.on('message', (message: { port?: number; verdict?: Verdict }) => {
      if (message.verdict !== undefined) onVerdict(message.verdict);
      if (message.port === undefined) return;
      isStarted = true;
      resolve({
        port: message.port,
        request: (request) => worker.postMessage(request),
        stop: () => {
          worker.postMessage({ type: 'stop' } satisfies MonitorRequest);
          return ended;
        },
      });
    });
  });
}
