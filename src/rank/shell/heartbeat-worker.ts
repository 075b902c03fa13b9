// The worker thread of heartbeat.ts: nothing but a HeartbeatSender and its two messages.
import { parentPort, workerData } from 'node:worker_threads';
import { present } from '../../base/assert.ts';
import { HeartbeatSender, type HeartbeatTarget } from './heartbeat-sender.ts';

const port = present(parentPort, 'this file runs as a worker thread');
const sender = new HeartbeatSender(new Float64Array(workerData as SharedArrayBuffer), () =>
  port.postMessage('lease-expired'),
);
port.on('message', (target: HeartbeatTarget | 'stop') => {
  if (target !== 'stop') return sender.aim(target);
  sender.stop();
  port.close();
});
