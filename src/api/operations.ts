// The endpoints that are not inference: models, health, metrics, cluster. Bodies only; http-server
// owns routes and statuses.
import { CoxswainError } from '../base/errors.ts';
import type { Backend, ModelCard } from './backend.ts';
import type { HttpMetrics } from './http-metrics.ts';

export function modelList(backend: Backend) {
  return { object: 'list', data: backend.models().map(modelObject) };
}

export function oneModel(backend: Backend, id: string) {
  const card = backend.models().find((model) => model.id === id);
  if (card !== undefined) return modelObject(card);
  throw new CoxswainError('MODEL_NOT_FOUND', 'This server does not have that model.', {
    field: 'model',
  });
}

export function healthBody(backend: Backend) {
  const { ok, state } = backend.health();
  return { status: ok ? 'ok' : 'unavailable', state };
}

/** The backend's own families first, then those of the HTTP layer; Prometheus text. */
export async function metricsText(backend: Backend, metrics: HttpMetrics): Promise<string> {
  const [cluster, http] = await Promise.all([backend.metrics(), metrics.text()]);
  return cluster === '' || cluster.endsWith('\n') ? cluster + http : `${cluster}\n${http}`;
}

function modelObject(card: ModelCard) {
  return {
    id: card.id,
    object: 'model',
    created: card.createdSeconds,
    owned_by: 'coxswain',
    // Two spellings, since clients look for either.
    context_length: card.contextTokens,
    max_model_len: card.contextTokens,
  };
}
