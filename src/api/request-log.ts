// The one row a request leaves in the log. Lengths and times only: never text, keys or user ids. What the
// server could not do has a row of its own with the whole reason, which clients do not get.
import type { Logger } from 'pino';
import type { Exchange } from './exchange.ts';

/** Endpoints that machines poll: their rows are for debugging. */
const POLLED = new Set(['/health', '/metrics', '/']);

export function logRequest(log: Logger, exchange: Exchange, status: number, nowMs: number): void {
  const row = requestRow(exchange, status, nowMs);
  logFailure(log, exchange);
  if (POLLED.has(exchange.endpoint) && status < 400) log.debug(row, 'request');
  else log.info(row, 'request');
}

function logFailure(log: Logger, { id: req, error }: Exchange): void {
  if (error === null || error.traits.httpStatus < 500) return;
  if (error.traits.httpStatus === 500) log.error({ req, err: error }, 'call failed');
  else log.warn({ req, code: error.code, reason: error.message }, 'call failed');
}

function requestRow(exchange: Exchange, status: number, nowMs: number) {
  const { usage } = exchange;
  const ttftMs = exchange.firstTextMs === null ? null : exchange.firstTextMs - exchange.startedMs;
  return {
    req: exchange.id,
    endpoint: exchange.endpoint,
    model: exchange.model,
    prompt_tokens: usage.promptTokens,
    cached_percent: percent(usage.cachedTokens, usage.promptTokens),
    ttft_ms: ttftMs === null ? null : Math.round(ttftMs),
    completion_tokens: usage.completionTokens,
    tokens_per_second: tokensPerSecond(exchange, nowMs),
    finish: finishOf(exchange, status),
    total_ms: Math.round(nowMs - exchange.startedMs),
    status,
  };
}

function finishOf(exchange: Exchange, status: number): string | null {
  if (exchange.error !== null) return exchange.error.code;
  if (status === 499) return 'cancelled';
  const reasons = [...new Set(exchange.finishes)];
  return reasons.length === 0 ? null : reasons.join(',');
}

/** Decode rate: the first text marks the end of prefill, so its token is not counted. */
function tokensPerSecond(exchange: Exchange, nowMs: number): number | null {
  const tokens = exchange.usage.completionTokens - 1;
  if (exchange.firstTextMs === null || tokens < 1) return null;
  const seconds = (nowMs - exchange.firstTextMs) / 1000;
  return seconds > 0 ? Math.round((tokens / seconds) * 10) / 10 : null;
}

function percent(part: number, whole: number): number {
  return whole > 0 ? Math.round((part / whole) * 100) : 0;
}
