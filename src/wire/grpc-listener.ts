// One listening TCP port that speaks one bidirectional gRPC method and shrugs off strangers: a limit on
// connections that have proved nothing, a deadline for the proof, and every oddity ends that connection
// only. Owns the port and its sockets. The proof itself is made by whoever handles `onPipe`, who then
// calls proved().
import { type AddressInfo, createServer, type Server as NetServer, type Socket } from 'node:net';
import {
  type ConnectionInjector,
  type handleBidiStreamingCall,
  Server,
  ServerCredentials,
  type ServerDuplexStream,
} from '@grpc/grpc-js';
import { assert } from '../base/assert.ts';
import { CoxswainError } from '../base/errors.ts';
import { GrpcPipe, type MessagePipe } from './grpc-pipe.ts';
import { MESSAGE_BYTES_MAX } from './messages.ts';
import { UNPROVED_CONNECTIONS_MAX, UNPROVED_MS_MAX } from './proof.ts';

/** MAC, sequence number and protobuf framing around a body. */
const FRAME_OVERHEAD_BYTES = 1024;
const FLOW_WINDOW_BYTES = 4 * 1024 * 1024;
const CLOSE_GRACE_MS = 500;

export interface ListenerLog {
  warn(fields: object, message: string): void;
}

export interface GrpcListenerOptions {
  readonly host: string;
  /** 0: any free port. */
  readonly port: number;
  readonly path: string;
  readonly log: ListenerLog;
  /** A new stream; `proved` lifts the limits on its connection. */
  readonly onPipe: (pipe: MessagePipe, proved: () => void) => void;
}

export const GRPC_CHANNEL_LIMITS = {
  'grpc.max_receive_message_length': MESSAGE_BYTES_MAX + FRAME_OVERHEAD_BYTES,
  'grpc.max_send_message_length': MESSAGE_BYTES_MAX + FRAME_OVERHEAD_BYTES,
  'grpc-node.flow_control_window': FLOW_WINDOW_BYTES,
} as const;

export class GrpcListener {
  private readonly options: GrpcListenerOptions;
  private readonly net: NetServer;
  private readonly grpc: Server;
  private readonly injector: ConnectionInjector;
  private readonly sockets = new Map<string, Socket>();
  private readonly unproved = new Map<Socket, NodeJS.Timeout>();

  private constructor(options: GrpcListenerOptions) {
    this.options = options;
    // One stream a connection, or a stranger's one connection could hold any number of messages.
    this.grpc = new Server({ ...GRPC_CHANNEL_LIMITS, 'grpc.max_concurrent_streams': 1 });
    const handle: handleBidiStreamingCall<Buffer, Buffer> = (call) => this.accept(call);
    const identity = (bytes: Buffer) => bytes;
    this.grpc.addService(
      {
        stream: {
          path: options.path,
          requestStream: true,
          responseStream: true,
          requestSerialize: identity,
          requestDeserialize: identity,
          responseSerialize: identity,
          responseDeserialize: identity,
        },
      },
      { stream: handle },
    );
    this.injector = this.grpc.createConnectionInjector(ServerCredentials.createInsecure());
    this.net = createServer((socket) => this.admit(socket));
  }

  /** @throws CoxswainError CONFIG_INVALID when the address cannot be listened on. */
  static async listen(options: GrpcListenerOptions): Promise<GrpcListener> {
    const listener = new GrpcListener(options);
    await new Promise<void>((resolve, reject) => {
      listener.net.once('error', (cause) =>
        reject(
          new CoxswainError(
            'CONFIG_INVALID',
            `Cannot listen on ${options.host}:${options.port}: ${cause.message}.`,
            { cause },
          ),
        ),
      );
      listener.net.listen(options.port, options.host, resolve);
    });
    listener.net.on('error', (error) =>
      options.log.warn({ error: error.message }, 'listener error'),
    );
    return listener;
  }

  get port(): number {
    const address: AddressInfo | string | null = this.net.address();
    assert(address !== null && typeof address !== 'string', 'the listener has a TCP port');
    return address.port;
  }

  /** Ends all streams; what is not gone after a short grace is cut. */
  async close(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.net.close(() => resolve()));
    this.injector.drain(CLOSE_GRACE_MS);
    const cut = setTimeout(() => {
      for (const socket of this.sockets.values()) socket.destroy();
    }, CLOSE_GRACE_MS);
    await closed;
    clearTimeout(cut);
    this.injector.destroy();
    this.grpc.forceShutdown();
  }

  private admit(socket: Socket): void {
    const peer = `${socket.remoteAddress}:${socket.remotePort}`;
    socket.on('error', () => socket.destroy());
    if (this.unproved.size >= UNPROVED_CONNECTIONS_MAX) {
      this.options.log.warn({ peer }, 'connection refused: too many without proof');
      socket.destroy();
      return;
    }
    socket.setNoDelay(true);
    this.sockets.set(peer, socket);
    const timer = setTimeout(() => {
      this.options.log.warn({ peer, waited_ms: UNPROVED_MS_MAX }, 'connection cut: no proof');
      socket.destroy();
    }, UNPROVED_MS_MAX);
    this.unproved.set(socket, timer);
    socket.once('close', () => {
      this.forget(socket);
      this.sockets.delete(peer);
    });
    this.injector.injectConnection(socket);
  }

  private accept(call: ServerDuplexStream<Buffer, Buffer>): void {
    const pipe = new GrpcPipe(call, true);
    this.options.onPipe(pipe, () => {
      const socket = this.sockets.get(pipe.peer);
      if (socket) this.forget(socket);
    });
  }

  private forget(socket: Socket): void {
    clearTimeout(this.unproved.get(socket));
    this.unproved.delete(socket);
  }
}
