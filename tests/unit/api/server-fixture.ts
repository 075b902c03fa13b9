// A server over a FakeBackend on a free port, with its log rows in memory.
import { Writable } from 'node:stream';
import { pino } from 'pino';
import { createHttpServer, type HttpLimits } from '../../../src/api/http-server.ts';
import { FakeBackend, type FakeBehaviour } from './fake-backend.ts';

export interface ServerFixture {
  readonly url: string;
  readonly backend: FakeBackend;
  readonly rows: Record<string, unknown>[];
  readonly rawLog: () => string;
  close(): Promise<void>;
}

export interface FixtureOptions {
  readonly behaviour?: FakeBehaviour;
  readonly apiKeys?: readonly string[];
  readonly limits?: Partial<HttpLimits>;
}

export async function startServer(options: FixtureOptions = {}): Promise<ServerFixture> {
  const backend = new FakeBackend(options.behaviour);
  const rows: Record<string, unknown>[] = [];
  const lines: string[] = [];
  const sink = new Writable({
    write(chunk: Buffer, _encoding, done) {
      lines.push(chunk.toString());
      rows.push(JSON.parse(chunk.toString()) as Record<string, unknown>);
      done();
    },
  });
  const server = createHttpServer({
    backend,
    log: pino({ level: 'debug' }, sink),
    apiKeys: options.apiKeys ?? [],
    ...(options.limits === undefined ? {} : { limits: options.limits }),
  });
  const url = await server.listen(0, '127.0.0.1');
  return { url, backend, rows, rawLog: () => lines.join(''), close: () => server.close() };
}

export async function post(url: string, body: unknown, headers: Record<string, string> = {}) {
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
  const text = await response.text();
  return { status: response.status, headers: response.headers, text, json: tryJson(text) };
}

// biome-ignore lint/suspicious/noExplicitAny: tests read bodies whose shape is what they check
function tryJson(text: string): any {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

export async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const item of items) all.push(item);
  return all;
}
