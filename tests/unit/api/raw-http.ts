// A client that does what fetch hides: reads nothing, reads byte by byte, hangs up, sends bad HTTP.
import { connect, type Socket } from 'node:net';

export interface RawClient {
  readonly socket: Socket;
  /** Everything received so far. */
  text(): string;
  /** Resolves when `part` was received. */
  until(part: string): Promise<void>;
  readonly closed: Promise<void>;
}

export function rawClient(url: string, request: string, options: { paused?: boolean } = {}) {
  const { hostname, port } = new URL(url);
  const socket = connect({ host: hostname, port: Number(port) });
  const chunks: Buffer[] = [];
  const waiting = new Set<() => void>();
  socket.on('error', () => undefined);
  if (options.paused) socket.pause();
  else {
    socket.on('data', (chunk) => {
      chunks.push(chunk);
      for (const check of waiting) check();
    });
  }
  const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()));
  socket.write(request);
  const text = () => Buffer.concat(chunks).toString();
  const client: RawClient = {
    socket,
    text,
    closed,
    until: (part) =>
      new Promise((resolve, reject) => {
        const check = () => {
          if (!text().includes(part)) return;
          waiting.delete(check);
          resolve();
        };
        waiting.add(check);
        socket.once('close', () => reject(new Error(`closed before ${part}: ${text()}`)));
        check();
      }),
  };
  return client;
}

export function rawPost(path: string, body: unknown): string {
  const text = JSON.stringify(body);
  return [
    `POST ${path} HTTP/1.1`,
    'Host: test',
    'Content-Type: application/json',
    `Content-Length: ${Buffer.byteLength(text)}`,
    '',
    text,
  ].join('\r\n');
}
