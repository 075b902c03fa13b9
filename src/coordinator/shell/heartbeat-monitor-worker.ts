// The worker thread of heartbeat-monitor.ts: one HeartbeatPort and its messages.
import { parentPort, workerData } from 'node:worker_threads';
import { present } from '../../base/assert.ts';
import { HeartbeatPort, type MonitorRequest } from './heartbeat-port.ts';

const parent = present(parentPort, 'this file runs as a worker thread');
const { host, port } = workerData as { readonly host: string; readonly port: number };
const monitor = await HeartbeatPort.bind(host, port, (verdict) => parent.postMessage({ verdict }));
parent.on('message', (request: MonitorRequest) => {
  monitor.handle(request);
  if (request.type === 'stop') parent.close();
});
parent.postMessage({ port: monitor.port });
