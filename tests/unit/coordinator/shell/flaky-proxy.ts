// A TCP proxy on loopback whose connections a test can cut: a network that breaks.
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';

export class FlakyProxy {
  private readonly server: Server;
  private readonly sockets = new Set<Socket>();
  private refusing: boolean = false;

  private constructor(targetPort: number) {
    this.server = createServer((socket) => {
      if (this.refusing) {
        socket.destroy();
        return;
      }
      const upstream = connect(targetPort, '127.0.0.1');
      for (const each of [socket, upstream]) {
        this.sockets.add(each);
        each.on('error', () => each.destroy());
        each.once('close', () => {
          this.sockets.delete(each);
          socket.destroy();
          upstream.destroy();
        });
      }
      socket.pipe(upstream);
      upstream.pipe(socket);
    });
  }

  static async listen(targetPort: number): Promise<FlakyProxy> {
    const proxy = new FlakyProxy(targetPort);
    await new Promise<void>((resolve) => proxy.server.listen(0, '127.0.0.1', resolve));
    return proxy;
  }

  get port(): number {
    return (this.server.address() as AddressInfo).port;
  }

  /** Cuts every connection; new ones are let in unless `refuse`. */
  cut(refuse: boolean): void {
    this.refusing = refuse;
    for (const socket of this.sockets) socket.destroy();
  }

  allow(): void {
    this.refusing = false;
  }

  close(): Promise<void> {
    this.cut(true);
    return new Promise((resolve) => this.server.close(() => resolve()));
  }
}
