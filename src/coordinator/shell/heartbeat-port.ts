// The UDP port of the heartbeats around a HeartbeatWatch: socket, clock, ticks. Runs on a worker thread
// (heartbeat-monitor-worker.ts), or on the caller's in tests.
import { createSocket, type Socket } from 'node:dgram';
import { HeartbeatWatch, TICK_MS, type Verdict } from './heartbeat-watch.ts';

export type MonitorRequest =
  | {
      readonly type: 'watch';
      readonly rank: number;
      readonly stage: number;
      readonly key: Uint8Array;
    }
  | { readonly type: 'rekey'; readonly rank: number; readonly key: Uint8Array }
  | { readonly type: 'unwatch'; readonly rank: number }
  | { readonly type: 'stall-limit'; readonly ms: number }
  | { readonly type: 'stop' };

export class HeartbeatPort {
  private readonly watch = new HeartbeatWatch();
  private readonly socket: Socket;
  private readonly timer: NodeJS.Timeout;

  private constructor(socket: Socket, onVerdict: (verdict: Verdict) => void) {
    this.socket = socket;
    socket.on('message', (bytes, from) => {
      const answer = this.watch.take(bytes, performance.now());
      if (answer !== null) socket.send(answer, from.port, from.address);
    });
    this.timer = setInterval(() => {
      for (const verdict of this.watch.tick(performance.now())) onVerdict(verdict);
    }, TICK_MS);
  }

  /** On the wished port, or on any when that is taken. */
  static async bind(
    host: string,
    port: number,
    onVerdict: (verdict: Verdict) => void,
  ): Promise<HeartbeatPort> {
    const socket = await bindUdp(host, port).catch(() => bindUdp(host, 0));
    // Answers to ranks that are gone come back as errors; their silence is noticed anyway.
    socket.on('error', () => undefined);
    return new HeartbeatPort(socket, onVerdict);
  }

  get port(): number {
    return this.socket.address().port;
  }

  handle(request: MonitorRequest): void {
    switch (request.type) {
      case 'watch':
        this.watch.watch(request.rank, request.stage, request.key, performance.now());
        return;
      case 'rekey':
        this.watch.rekey(request.rank, request.key);
        return;
      case 'unwatch':
        this.watch.unwatch(request.rank);
        return;
      case 'stall-limit':
        this.watch.stallMs = request.ms;
        return;
      case 'stop':
        clearInterval(this.timer);
        this.socket.close();
        return;
    }
  }
}

function bindUdp(host: string, port: number): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = createSocket(host.includes(':') ? 'udp6' : 'udp4');
    socket.once('error', (error) => {
      socket.close();
      reject(error);
    });
    socket.bind(port, host, () => {
      socket.removeAllListeners('error');
      resolve(socket);
    });
  });
}
