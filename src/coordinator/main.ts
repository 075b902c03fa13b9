// Builds a real coordinator: model facts and plan from the addon, tokenizer from the model's metadata,
// rank processes of this installation. The CLI calls openCluster; everything it needs is an argument.
import { stat } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import type { Logger } from 'pino';
import { createHttpServer } from '../api/http-server.ts';
import { inspectModel, planModel, readModelMetadata } from '../base/addon.ts';
import { CoxswainError, toCoxswainError } from '../base/errors.ts';
import { createPromptCodec } from '../prompt/prompt.ts';
import { buildId, NUMERICS_CONTRACT } from '../wire/build-id.ts';
import { type Cluster, openClusterWith } from './shell/open-cluster.ts';
import type { ClusterLog, ClusterOptions } from './shell/options.ts';
import { startRankProcess } from './shell/rank-process.ts';

/** Run from its sources (tests), this file finds the built rank program and keeps off worker threads. */
const FROM_SOURCES = import.meta.url.endsWith('.ts');
const RANK_PROGRAM = fileURLToPath(
  new URL(FROM_SOURCES ? '../../dist/rank/main.js' : '../rank/main.js', import.meta.url),
);

/**
 * Opens a cluster over the model at options.modelPath and resolves when it can compute.
 * @throws CoxswainError: see openClusterWith; and GGUF_*, MODEL_UNSUPPORTED, TOKENIZER_UNSUPPORTED,
 * FILE_UNREADABLE, ADDON_MISSING of the model file.
 */
export async function openCluster(
  options: ClusterOptions,
  log: ClusterLog,
  signal: AbortSignal,
): Promise<Cluster> {
  const { modelPath, topology } = options;
  const inspection = await inspectModel(modelPath);
  const { shape, problem } = inspection;
  if (shape === null) {
    const message = problem?.message ?? `${modelPath} holds a model that this engine cannot run.`;
    throw toCoxswainError(Object.assign(new Error(message), { code: problem?.code }));
  }
  const plan = await planModel(modelPath, topology);
  if (plan.refused !== null) throw new CoxswainError('PLAN_IMPOSSIBLE', plan.refused);
  const codec = createPromptCodec(await readModelMetadata(modelPath));
  const { mtimeMs } = await stat(modelPath);
  return openClusterWith(
    options,
    {
      model: {
        fingerprint: inspection.fingerprint,
        numericsContract: NUMERICS_CONTRACT,
        buildId: buildId(),
        context: plan.context,
        vocab: shape.vocab,
        createdSeconds: Math.floor(mtimeMs / 1000),
      },
      plan,
      codec,
      log,
      heartbeats: FROM_SOURCES ? 'inline' : 'worker',
      launch: (launch) =>
        startRankProcess(
          { command: [process.execPath, RANK_PROGRAM], environment: process.env },
          launch,
        ),
    },
    signal,
  );
}

export interface HttpOptions {
  readonly host: string;
  /** 0: any free port. */
  readonly port: number;
  readonly apiKeys: readonly string[];
  readonly bodyBytesMax: number;
}

export interface HttpFace {
  readonly url: string;
  close(): Promise<void>;
}

/** Puts the HTTP APIs in front of a cluster. */
export async function serveHttp(
  cluster: Cluster,
  options: HttpOptions,
  log: Logger,
): Promise<HttpFace> {
  const { host, port, apiKeys, bodyBytesMax } = options;
  const { backend } = cluster;
  const server = createHttpServer({ backend, log, apiKeys, limits: { bodyBytesMax } });
  return { url: await server.listen(port, host), close: () => server.close() };
}
