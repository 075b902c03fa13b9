// Every route of the server, with its handler. Each path answers all other methods with 405 and `Allow`.
import { randomUUID } from 'node:crypto';
import type { FastifyInstance, FastifyReply, FastifyRequest, HTTPMethods } from 'fastify';
import { CoxswainError } from '../base/errors.ts';
import type { Backend } from './backend.ts';
import type { CallParser } from './call.ts';
import type { HttpMetrics } from './http-metrics.ts';
import { parseChatCall } from './openai-chat/to-request.ts';
import { parseCompletionCall } from './openai-completions/to-request.ts';
import { healthBody, metricsText, modelList, oneModel } from './operations.ts';
import type { CallServer } from './serve.ts';

export interface Route {
  readonly method: 'GET' | 'POST';
  readonly paths: readonly string[];
  /** Answers without an API key. */
  readonly public?: boolean;
  readonly handler: (request: FastifyRequest, reply: FastifyReply) => Promise<unknown>;
}

const METHODS: readonly HTTPMethods[] = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'];

export function allRoutes(
  backend: Backend,
  calls: CallServer,
  metrics: HttpMetrics,
): readonly Route[] {
  return [
    ...operationRoutes(backend, metrics),
    callRoute('/chat/completions', parseChatCall, { calls, backend }),
    callRoute('/completions', parseCompletionCall, { calls, backend }),
  ];
}

export function addRoute(app: FastifyInstance, route: Route): void {
  const allowed = route.method === 'GET' ? ['GET', 'HEAD'] : [route.method];
  for (const url of route.paths) {
    app.route({ method: route.method, url, handler: route.handler });
    app.route({
      method: METHODS.filter((method) => method !== route.method),
      url,
      handler: async (_request, reply) => {
        reply.header('allow', allowed.join(', '));
        throw new CoxswainError('METHOD_NOT_ALLOWED', `Use ${allowed[0]} here.`);
      },
    });
  }
}

/** Clients are set up with and without /v1 in their base URL. */
const both = (path: string) => [`/v1${path}`, path];

function operationRoutes(backend: Backend, metrics: HttpMetrics): readonly Route[] {
  return [
    { method: 'GET', paths: ['/'], public: true, handler: async () => healthBody(backend) },
    {
      method: 'GET',
      paths: ['/health'],
      public: true,
      handler: async (_request, reply) => {
        const body = healthBody(backend);
        return reply.code(body.status === 'ok' ? 200 : 503).send(body);
      },
    },
    {
      method: 'GET',
      paths: ['/metrics'],
      handler: async (_request, reply) =>
        reply.type(metrics.contentType).send(await metricsText(backend, metrics)),
    },
    { method: 'GET', paths: ['/v1/cluster'], handler: () => backend.cluster() },
    { method: 'GET', paths: both('/models'), handler: async () => modelList(backend) },
    {
      method: 'GET',
      // Names may hold slashes.
      paths: both('/models/*'),
      handler: async (request) => oneModel(backend, (request.params as { '*': string })['*']),
    },
  ];
}

function callRoute(
  path: string,
  parse: CallParser,
  { calls, backend }: { calls: CallServer; backend: Backend },
): Route {
  const handler = async (request: FastifyRequest, reply: FastifyReply): Promise<unknown> => {
    const { exchange } = request;
    const call = parse(request.body, {
      callId: freshId(),
      keyIdentity: exchange.keyIdentity,
      models: backend.models(),
      nowSeconds: Math.floor(Date.now() / 1000),
    });
    exchange.model = call.requests[0]?.model ?? null;
    exchange.ignoredFields = call.ignoredFields;
    const headers = { 'x-request-id': request.id };
    const served = { call, exchange, response: reply.raw, headers };
    if (!call.streamed) return calls.answer(served);
    await calls.stream(served, () => reply.hijack());
    return reply;
  };
  return { method: 'POST', paths: both(path), handler };
}

export function freshId(): string {
  return randomUUID().replaceAll('-', '');
}
