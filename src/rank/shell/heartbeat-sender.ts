// Sends a heartbeat every 100 ms and watches for the coordinator's answers. Owns the socket and the
// counter. Runs on a worker thread (heartbeat-worker.ts), so that neither a busy main thread nor a full
// control stream can make a living rank look dead; tests run it on the main thread.
import { createSocket, type Socket } from 'node:dgram';
import {
  decodeHeartbeat,
  encodeHeartbeat,
  HEARTBEAT_INTERVAL_MS,
} from '../../wire/heartbeat-codec.ts';

/** Without an answer for so long a rank fences itself: someone else may command its peers by now. */
export const LEASE_MS = 10_000;

/** epoch, step, item, busy: written by the main thread, read here. A torn read is one odd beat. */
export const PROGRESS_WORDS = 4;

export interface HeartbeatTarget {
  readonly host: string;
  readonly port: number;
  readonly rank: number;
  readonly key: Uint8Array;
}

export class HeartbeatSender {
  private readonly progress: Float64Array;
  private readonly onLease: () => void;
  private readonly timer: NodeJS.Timeout;
  /** The latest socket, and the same once it is connected. */
  private pending: Socket | null = null;
  private socket: Socket | null = null;
  private target: HeartbeatTarget | null = null;
  private counter = 0;
  /** Of the newest answer: an old one, played back, does not prolong the lease. */
  private answered = 0;
  private answeredAt = 0;
  private tickedAt = 0;
  private expired: boolean = false;

  constructor(progress: Float64Array, onLease: () => void) {
    this.progress = progress;
    this.onLease = onLease;
    this.timer = setInterval(() => this.tick(performance.now()), HEARTBEAT_INTERVAL_MS);
  }

  /** From now on to this address under this key: a new control connection. */
  aim(target: HeartbeatTarget): void {
    this.pending?.close();
    this.target = target;
    this.answeredAt = performance.now();
    this.expired = false;
    const socket = createSocket(target.host.includes(':') ? 'udp6' : 'udp4');
    // Unreachable hosts show as errors of later sends; silence is what tells the coordinator.
    socket.on('error', () => undefined);
    socket.on('message', (bytes) => this.take(bytes));
    // Connected, the kernel drops datagrams of everyone but the coordinator. A failed look-up is told here
    // too: that socket can send nothing.
    socket.connect(target.port, target.host, (failure?: Error) => {
      if (failure || this.target !== target) return;
      this.socket = socket;
      this.tick(performance.now());
    });
    this.socket = null;
    this.pending = socket;
  }

  stop(): void {
    clearInterval(this.timer);
    this.pending?.close();
    this.pending = null;
    this.socket = null;
    this.target = null;
  }

  private take(bytes: Buffer): void {
    if (this.target === null) return;
    const answer = decodeHeartbeat(bytes, this.target.key);
    if (answer?.kind !== 'answer' || answer.counter > this.counter) return;
    if (answer.counter <= this.answered) return;
    this.answered = answer.counter;
    this.answeredAt = performance.now();
    this.expired = false;
  }

  private tick(now: number): void {
    const { target, socket } = this;
    // Time in which this process did not run is no silence of the coordinator.
    const pausedMs = this.tickedAt === 0 ? 0 : now - this.tickedAt - HEARTBEAT_INTERVAL_MS;
    if (pausedMs > HEARTBEAT_INTERVAL_MS) this.answeredAt += pausedMs;
    this.tickedAt = now;
    if (target === null || socket === null) return;
    if (!this.expired && now - this.answeredAt > LEASE_MS) {
      this.expired = true;
      this.onLease();
    }
    this.counter += 1;
    const [epoch = 0, step = 0, item = 0, busy = 0] = this.progress;
    const beat = {
      kind: 'beat' as const,
      rank: target.rank,
      counter: this.counter,
      epoch,
      step,
      item,
      busy: busy === 1,
    };
    // A refused datagram is an error of the socket, heard and ignored: silence is what tells.
    socket.send(encodeHeartbeat(beat, target.key), () => undefined);
  }
}
