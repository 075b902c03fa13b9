// What a person should know before the HTTP API is open to others.
import { isLoopback } from '../config/derive.ts';

/** One line for the terminal; null: only this host reaches the API, or a key is asked for. */
export function exposureWarning(host: string, apiKeys: number): string | null {
  if (apiKeys > 0 || isLoopback(host)) return null;
  return (
    `Warning: --host ${host} lets everyone who reaches this host use the model without a key; ` +
    'set --api-keys-file, or listen on 127.0.0.1.'
  );
}
