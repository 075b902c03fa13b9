// The main thread's handle on the heartbeats: copies the engine's progress to where the sender reads it.
import { Worker } from 'node:worker_threads';
import type { Progress } from '../../engine/engine.ts';
import { HeartbeatSender, type HeartbeatTarget, PROGRESS_WORDS } from './heartbeat-sender.ts';

const COPY_INTERVAL_MS = 50;

export interface Heartbeats {
  aim(target: HeartbeatTarget): void;
  stop(): Promise<void>;
}

export interface HeartbeatOptions {
  readonly where: 'worker' | 'inline';
  readonly progress: () => Progress;
  readonly onLease: () => void;
}

export function startHeartbeats(options: HeartbeatOptions): Heartbeats {
  const shared = new SharedArrayBuffer(PROGRESS_WORDS * Float64Array.BYTES_PER_ELEMENT);
  const words = new Float64Array(shared);
  const copier = setInterval(() => {
    const { epoch, step, item, busy } = options.progress();
    words.set([epoch, step, item, busy ? 1 : 0]);
  }, COPY_INTERVAL_MS);
  const sender =
    options.where === 'worker' ? onWorker(shared, options.onLease) : inline(words, options.onLease);
  return {
    aim: sender.aim,
    stop: () => {
      clearInterval(copier);
      return sender.stop();
    },
  };
}

function inline(words: Float64Array, onLease: () => void): Heartbeats {
  const sender = new HeartbeatSender(words, onLease);
  return {
    aim: (target) => sender.aim(target),
    stop: () => {
      sender.stop();
      return Promise.resolve();
    },
  };
}

function onWorker(shared: SharedArrayBuffer, onLease: () => void): Heartbeats {
  const worker = new Worker(new URL('./heartbeat-worker.js', import.meta.url), {
    workerData: shared,
  });
  const ended = new Promise<void>((resolve) => worker.once('exit', () => resolve()));
  worker.on('message', onLease);
  return {
    aim: (target) => worker.postMessage(target),
    stop: () => {
      worker.postMessage('stop');
      return ended;
    },
  };
}
