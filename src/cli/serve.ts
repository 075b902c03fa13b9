// `cox up` and `cox coordinator`: a cluster with its HTTP server, until SIGINT or SIGTERM.

import { toCoxswainError } from '../base/errors.ts';
import type { ClusterConfig } from '../config/schema.ts';
import { readApiKeys } from '../config/secrets.ts';
import { serveHttp } from '../coordinator/main.ts';
import { type ClusterStart, withCluster } from './cluster.ts';
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

function serveUntilStopped({ start, config, json }: ServeOptions): Promise<void> {
  const apiKeys = readApiKeys(config);
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

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
