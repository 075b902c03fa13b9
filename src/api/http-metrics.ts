// Prometheus metrics of the HTTP layer. Labels come from closed sets (routes, statuses), never from
// what a client sends. One registry a server: nothing is shared through prom-client's global one.
import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { Exchange } from './exchange.ts';

/** From a cached one-token answer to a cold 100k-token prefill on a laptop. */
const SECONDS_BUCKETS = [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000];

export class HttpMetrics {
  private readonly registry = new Registry();
  private readonly requests = new Counter({
    name: 'coxswain_http_requests_total',
    help: 'Finished HTTP requests; status 499 stands for a client that went away',
    labelNames: ['endpoint', 'status'],
    registers: [this.registry],
  });
  private readonly seconds = new Histogram({
    name: 'coxswain_http_request_seconds',
    help: 'From the arrival of the headers to the end of the response',
    labelNames: ['endpoint'],
    buckets: SECONDS_BUCKETS,
    registers: [this.registry],
  });
  private readonly ttft = new Histogram({
    name: 'coxswain_http_ttft_seconds',
    help: 'From the arrival of the headers to the first text of the answer',
    labelNames: ['endpoint'],
    buckets: SECONDS_BUCKETS,
    registers: [this.registry],
  });
  private readonly tokens = new Counter({
    name: 'coxswain_http_tokens_total',
    help: 'Tokens of finished requests; cached ones are part of prompt',
    labelNames: ['endpoint', 'kind'],
    registers: [this.registry],
  });
  private readonly ignored = new Counter({
    name: 'coxswain_http_ignored_fields_total',
    help: 'Request fields that this server does not know',
    labelNames: ['endpoint'],
    registers: [this.registry],
  });
  private readonly open = new Gauge({
    name: 'coxswain_http_requests_open',
    help: 'Requests whose response has not ended',
    registers: [this.registry],
  });

  started(): void {
    this.open.inc();
  }

  finished(exchange: Exchange, status: number, nowMs: number): void {
    const { endpoint, usage } = exchange;
    this.open.dec();
    this.requests.inc({ endpoint, status });
    this.seconds.observe({ endpoint }, (nowMs - exchange.startedMs) / 1000);
    if (exchange.firstTextMs !== null) {
      this.ttft.observe({ endpoint }, (exchange.firstTextMs - exchange.startedMs) / 1000);
    }
    this.tokens.inc({ endpoint, kind: 'prompt' }, usage.promptTokens);
    this.tokens.inc({ endpoint, kind: 'cached' }, usage.cachedTokens);
    this.tokens.inc({ endpoint, kind: 'completion' }, usage.completionTokens);
    this.ignored.inc({ endpoint }, exchange.ignoredFields);
  }

  text(): Promise<string> {
    return this.registry.metrics();
  }

  get contentType(): string {
    return this.registry.contentType;
  }
}
