// One rank from its start to its clean end.
import { localAddressTowards, parseAddress } from './host-facts.ts';
import type { RankDependencies, RankOptions } from './options.ts';
import { RankRuntime } from './rank-runtime.ts';

/**
 * Joins the coordinator and obeys it until `signal` aborts or the coordinator says Shutdown; then closes
 * engine, sockets and threads and resolves.
 * @throws CoxswainError AUTH_FAILED, HANDSHAKE_REFUSED, JOIN_TIMEOUT, CONFIG_INVALID, USAGE_INVALID.
 */
export async function runRank(
  options: RankOptions,
  dependencies: RankDependencies,
  signal: AbortSignal,
): Promise<void> {
  const { host, port } = parseAddress(options.join);
  const dataHost = options.dataHost ?? (await localAddressTowards(host, port));
  const runtime = new RankRuntime({ ...options, dataHost }, dependencies);
  const stop = () => runtime.stop('this rank was told to end');
  signal.addEventListener('abort', stop, { once: true });
  if (signal.aborted) stop();
  try {
    await runtime.run();
  } finally {
    signal.removeEventListener('abort', stop);
  }
}
