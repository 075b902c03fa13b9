// `cox up` and `cox coordinator`: a cluster with its HTTP server, until SIGINT or SIGTERM.
import { createServer } from 'node:net';
import { CoxswainError, toCoxswainError } from '../base/errors.ts';
import type { ClusterConfig } from '../config/schema.ts';
import { readApiKeys } from '../config/secrets.ts';
import { serveHttp } from '../coordinator/main.ts';
import { type ClusterStart, withCluster } from './cluster.ts';
import { exposureWarning } from './exposure.ts';
import { print, printJson, say } from './terminal.ts';

export interface ServeOptions {
  readonly start: ClusterStart;
  readonly config: ClusterConfig;
  readonly json: boolean;
}

/** Resolves when a signal ended it, also one that came while ranks were awaited. */
export async function serve(options: ServeOptions): Promise<void> {
  try {
    await serveUntilStopped(options);
  } catch (thrown) {
    if (toCoxswainError(thrown).code !== 'REQUEST_CANCELLED') throw thrown;
  }
}

async function serveUntilStopped({ start, config, json }: ServeOptions): Promise<void> {
  const apiKeys = readApiKeys(config);
  const warning = exposureWarning(config.host, apiKeys.length);
  if (warning !== null) say(warning);
  await tryToListen(config.host, config.port);
  return withCluster(start, async (cluster, signal, log) => {
    const { host, port, bodyMax: bodyBytesMax } = config;
    const http = await serveHttp(cluster, { host, port, apiKeys, bodyBytesMax }, log);
    try {
      if (json)
        printJson({ event: 'ready', url: http.url, pid: process.pid, ranks: cluster.ranks() });
      else {
        print(
          `ready: ${http.url}/v1 (${cluster.ranks().length} ranks, context ${cluster.contextTokens})`,
        );
        say('Stop with Ctrl-C.');
      }
      await aborted(signal);
    } finally {
      await http.close();
    }
  });
}

/** A port that is taken is told now, not after minutes of loading. */
function tryToListen(host: string, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', (cause) => {
      const sentence = `The HTTP server cannot listen on ${host}:${port} (--host, --port): ${cause.message}.`;
      reject(new CoxswainError('CONFIG_INVALID', sentence, { cause, field: 'port' }));
    });
    server.listen(port, host, () => server.close(() => resolve()));
  });
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
