// The HTTP face of a cluster: routes, limits, authentication, errors, shutdown. It decides nothing
// about inference (serve.ts) or wire shapes (the API folders). Where to bind is the caller's decision;
// nothing here opens a port before listen().
import type { AddressInfo, Socket } from 'node:net';
import fastify, { type FastifyError, type FastifyInstance, type FastifyReply } from 'fastify';
import type { Logger } from 'pino';
import { CoxswainError, toCoxswainError } from '../base/errors.ts';
import { ApiKeys } from './auth.ts';
import type { Backend } from './backend.ts';
import { type HttpError, toHttpError } from './errors.ts';
import { Exchange } from './exchange.ts';
import { HttpMetrics } from './http-metrics.ts';
import { BodyBudget, BodyShare, decodeBody, parseJson, tooLarge } from './request-body.ts';
import { logRequest } from './request-log.ts';
import { addRoute, allRoutes, freshId, type Route } from './routes.ts';
import { CallServer, LiveCalls } from './serve.ts';

declare module 'fastify' {
  interface FastifyRequest {
    exchange: Exchange;
    bodyShare: BodyShare;
  }
}

export interface HttpServerOptions {
  readonly backend: Backend;
  readonly log: Logger;
  /** Empty: no authentication. */
  readonly apiKeys: readonly string[];
  readonly limits?: Partial<HttpLimits>;
}

export interface HttpLimits {
  /** One request body after decoding. */
  readonly bodyBytesMax: number;
  /** All bodies of requests in progress together. */
  readonly bodiesBytesMax: number;
  /** Connections beyond this are closed at once. */
  readonly connectionsMax: number;
  readonly keepaliveMs: number;
  readonly headersAfterMs: number;
  readonly drainTimeoutMs: number;
  /** How long close() lets streams deliver their last frames. */
  readonly closeGraceMs: number;
}

const DEFAULT_HTTP_LIMITS: HttpLimits = {
  bodyBytesMax: 32 * 2 ** 20,
  bodiesBytesMax: 256 * 2 ** 20,
  connectionsMax: 4096,
  // Proxies and clients give up after 20 to 60 s of silence.
  keepaliveMs: 15_000,
  headersAfterMs: 2_000,
  drainTimeoutMs: 60_000,
  closeGraceMs: 5_000,
};

export interface HttpServer {
  /**
   * Resolves with the URL when requests are accepted; port 0 picks a free one.
   * @throws CoxswainError CONFIG_INVALID when the address cannot be listened on.
   */
  listen(port: number, host: string): Promise<string>;
  /** Refuses new work, ends streams in-band, then closes every connection. */
  close(): Promise<void>;
}

/** Pooled clients reuse idle connections for about a minute; closing earlier races with them. */
const IDLE_CONNECTION_MS = 75_000;
/** For a whole request to arrive: a slow uplink may send 32 MiB, a stranger may not dawdle for ever. */
const UPLOAD_MS = 300_000;
/** Waiting to be accepted, so that a burst of clients is not refused by the kernel. */
const BACKLOG = 2048;
const CLIENT_REQUEST_ID = /^[\w.:-]{1,128}$/;

const BAD_HTTP_STATUS: Readonly<Record<string, string>> = {
  ERR_HTTP_REQUEST_TIMEOUT: '408 Request Timeout',
  HPE_HEADER_OVERFLOW: '431 Request Header Fields Too Large',
};

export function createHttpServer(options: HttpServerOptions): HttpServer {
  const limits = { ...DEFAULT_HTTP_LIMITS, ...options.limits };
  const live = new LiveCalls();
  const metrics = new HttpMetrics();
  const app = createApp(limits);
  const calls = new CallServer(options.backend, live, limits);
  const routes = allRoutes(options.backend, calls, metrics);
  addHooks(app, { ...options, limits, metrics, routes });
  addBodies(app, limits);
  addErrors(app);
  for (const route of routes) addRoute(app, route);
  return {
    listen: async (port, host) => {
      await app.listen({ port, host, backlog: BACKLOG }).catch((cause: Error) => {
        const sentence = `The HTTP server cannot listen on ${host}:${port}: ${cause.message}.`;
        throw new CoxswainError('CONFIG_INVALID', sentence, { cause, field: 'port' });
      });
      return urlOf(app.server.address() as AddressInfo);
    },
    close: () => close(app, live, limits.closeGraceMs),
  };
}

function createApp(limits: HttpLimits): FastifyInstance {
  const app = fastify({
    logger: false,
    bodyLimit: limits.bodyBytesMax,
    requestTimeout: UPLOAD_MS,
    keepAliveTimeout: IDLE_CONNECTION_MS,
    // Streams last as long as their answers: no timeout on a connection in use.
    connectionTimeout: 0,
    forceCloseConnections: 'idle',
    return503OnClosing: false,
    genReqId: (raw) => {
      const offered = raw.headers['x-request-id'];
      return typeof offered === 'string' && CLIENT_REQUEST_ID.test(offered) ? offered : freshId();
    },
    clientErrorHandler: refuseBadHttp,
    frameworkErrors: (error, request, reply) => {
      void sendError(reply, toHttpError(ofFramework(error, limits), request.id));
    },
  });
  app.server.maxConnections = limits.connectionsMax;
  return app;
}

/** What cannot become a request gets the same error shape, written by hand, and no connection. */
function refuseBadHttp(error: NodeJS.ErrnoException, socket: Socket): void {
  if (socket.writable && error.code !== 'ECONNRESET') {
    const sentence =
      'The request is not valid HTTP, too long in its headers, or was sent too slowly.';
    const { body } = toHttpError(new CoxswainError('REQUEST_INVALID', sentence), '');
    const text = JSON.stringify(body);
    const head = [
      `HTTP/1.1 ${BAD_HTTP_STATUS[error.code ?? ''] ?? '400 Bad Request'}`,
      'content-type: application/json; charset=utf-8',
      `content-length: ${Buffer.byteLength(text)}`,
      'connection: close',
    ];
    socket.write(`${head.join('\r\n')}\r\n\r\n${text}`);
  }
  socket.destroy(error);
}

interface HookContext extends HttpServerOptions {
  readonly limits: HttpLimits;
  readonly metrics: HttpMetrics;
  readonly routes: readonly Route[];
}

function addHooks(app: FastifyInstance, context: HookContext): void {
  const keys = new ApiKeys(context.apiKeys);
  const { bodiesBytesMax, bodyBytesMax } = context.limits;
  const budget = new BodyBudget(Math.max(bodiesBytesMax, bodyBytesMax));
  const open = new Set(context.routes.filter((route) => route.public).flatMap((r) => r.paths));
  app.addHook('onRequest', async (request, reply) => {
    const endpoint = request.routeOptions.url ?? 'unmatched';
    const exchange = new Exchange(request.id, endpoint, performance.now());
    const share = new BodyShare(budget);
    request.exchange = exchange;
    request.bodyShare = share;
    context.metrics.started();
    reply.header('x-request-id', request.id);
    // 'close' comes for every response, sent or cut off, and exactly once.
    reply.raw.once('close', () => {
      share.release();
      const status = reply.raw.writableFinished ? reply.raw.statusCode : 499;
      const nowMs = performance.now();
      context.metrics.finished(exchange, status, nowMs);
      logRequest(context.log, exchange, status, nowMs);
    });
    if (!open.has(endpoint)) exchange.keyIdentity = keys.identify(request.headers);
  });
}

function addBodies(app: FastifyInstance, limits: HttpLimits): void {
  app.addHook('preParsing', async (request, _reply, payload) => {
    const encoding = (request.headers['content-encoding'] ?? '').trim().toLowerCase();
    if (Number(request.headers['content-length'] ?? 0) > limits.bodyBytesMax) {
      throw tooLarge(limits.bodyBytesMax);
    }
    // Read as JSON whatever it says, even where it is no media type at all.
    if (request.headers['content-type'] !== undefined) {
      request.headers['content-type'] = 'application/json';
    }
    const bytesMax = limits.bodyBytesMax;
    return decodeBody(payload, encoding, { share: request.bodyShare, bytesMax });
  });
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', { parseAs: 'buffer' }, async (_request: unknown, body: Buffer) =>
    parseJson(body),
  );
}

function addErrors(app: FastifyInstance): void {
  app.setErrorHandler((thrown: unknown, request, reply) => {
    const error = ofFramework(thrown, null);
    request.exchange.error = error;
    // The rest of the body is not wanted.
    if (error.code === 'REQUEST_TOO_LARGE') reply.header('connection', 'close');
    // The client that would read it is gone.
    if (reply.raw.destroyed) return reply.hijack();
    return sendError(reply, toHttpError(error, request.id));
  });
  app.setNotFoundHandler((request, reply) => {
    const error = new CoxswainError('ROUTE_NOT_FOUND', 'Nothing is served under this URL.');
    request.exchange.error = error;
    // Clients that probe for a WebSocket fall back to HTTP at once on 426, slowly on 404.
    if (request.headers.upgrade !== undefined) reply.code(426).header('upgrade', 'HTTP/1.1');
    const { status, body } = toHttpError(error, request.id);
    return reply.code(reply.statusCode === 426 ? 426 : status).send(body);
  });
}

function sendError(reply: FastifyReply, error: HttpError): FastifyReply {
  return reply.code(error.status).headers(error.headers).send(error.body);
}

/** Fastify's own errors (limits, bad URLs) in our terms. */
function ofFramework(thrown: unknown, limits: HttpLimits | null): CoxswainError {
  const { code, statusCode } = thrown as Partial<FastifyError>;
  if (thrown instanceof CoxswainError) return thrown;
  if (code === 'FST_ERR_CTP_BODY_TOO_LARGE') {
    return tooLarge((limits ?? DEFAULT_HTTP_LIMITS).bodyBytesMax);
  }
  if (code?.startsWith('FST_') && statusCode !== undefined && statusCode < 500) {
    return new CoxswainError('REQUEST_INVALID', (thrown as Error).message, { cause: thrown });
  }
  return toCoxswainError(thrown);
}

async function close(app: FastifyInstance, live: LiveCalls, graceMs: number): Promise<void> {
  live.stop();
  const timer = setTimeout(() => app.server.closeAllConnections(), graceMs);
  try {
    await app.close();
    // No connection is left, so every call has been told to stop.
    await live.idle();
  } finally {
    clearTimeout(timer);
  }
}

function urlOf(address: AddressInfo): string {
  const host = address.family === 'IPv6' ? `[${address.address}]` : address.address;
  return `http://${host}:${address.port}`;
}
