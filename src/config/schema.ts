// The one schema of a cluster's settings, shared by every command that starts or plans one. Each option
// has one name: the flag without dashes in front, which is also its key in the file; its environment
// variable is COX_ and the name in capitals. docs/config.md is generated from this table.
import {
  type HostPort,
  hostPort,
  integer,
  type LayerRange,
  layerRanges,
  nullable,
  oneOf,
  type Parser,
  size,
  text,
  weights,
  yesNo,
} from './values.ts';

export type Transport = 'auto' | 'shm' | 'tcp' | 'rdma' | 'grpc';
export type KvType = 'f32' | 'f16';
export type LogLevel = 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'fatal' | 'silent';

/** What load.ts gives: parsed, checked, frozen. null: decided later (derive.ts, the model, the host). */
export interface ClusterConfig {
  readonly model: string | null;
  readonly name: string | null;
  readonly host: string;
  readonly port: number;
  readonly apiKeysFile: string | null;
  readonly listen: HostPort;
  readonly ranks: number | null;
  readonly tokenFile: string | null;
  readonly tp: number | null;
  readonly split: readonly number[] | null;
  readonly pp: number | null;
  readonly layers: readonly LayerRange[] | null;
  readonly transport: Transport;
  readonly threads: number | null;
  readonly ctx: number | null;
  readonly kvType: KvType;
  readonly kvMem: number | null;
  readonly exact: boolean;
  readonly slots: number;
  readonly queue: number;
  readonly bodyMax: number;
  readonly logLevel: LogLevel;
}

export interface Option<T> {
  /** Without the leading dashes; the key in the file too. */
  readonly flag: string;
  readonly parse: Parser<T>;
  /** As it would be written; null: see `unset`. */
  readonly fallback: string | null;
  /** What happens without a value, where there is no default to print. */
  readonly unset?: string;
  /** The values it takes, for the documentation and for help texts. */
  readonly takes: string;
  /** One sentence: meaning, unit, and the failure it prevents where there is one. */
  readonly help: string;
  /** A flag without a value means yes. */
  readonly boolean?: boolean;
}

const RANKS_MAX = 64;
/** The planner's own bound (kStagesMax): stages + 1 steps are in flight, and an engine queues 64. */
const STAGES_MAX = 63;
/** The engine's own bound. */
const THREADS_MAX = 256;
const CONTEXT_MAX = 16_777_216;
const SLOTS_MAX = 1024;
const QUEUE_MAX = 65_536;
const MEBIBYTE = 2 ** 20;

export const OPTIONS: { readonly [K in keyof ClusterConfig]: Option<ClusterConfig[K]> } = {
  model: {
    flag: 'model',
    parse: nullable(text(4096)),
    fallback: null,
    unset: 'given as the argument MODEL',
    takes: 'path of a GGUF file, or a name known to `cox pull`',
    help: 'The model to serve.',
  },
  name: {
    flag: 'name',
    parse: nullable(text(256)),
    fallback: null,
    unset: "the model file's name without .gguf",
    takes: 'text',
    help: 'The name under which the HTTP APIs offer the model.',
  },
  host: {
    flag: 'host',
    parse: text(255),
    fallback: '127.0.0.1',
    takes: 'address or host name',
    help: 'Where the HTTP server listens; anything but loopback wants api-keys-file.',
  },
  port: {
    flag: 'port',
    parse: integer(0, 65_535),
    fallback: '8080',
    takes: '0 to 65535; 0 picks a free one',
    help: 'TCP port of the HTTP server.',
  },
  apiKeysFile: {
    flag: 'api-keys-file',
    parse: nullable(text(4096)),
    fallback: null,
    unset: 'no key is asked for',
    takes: 'path',
    help: 'File with one API key a line (# starts a comment); clients must send one of them.',
  },
  listen: {
    flag: 'listen',
    parse: hostPort(),
    fallback: '127.0.0.1:0',
    takes: 'HOST:PORT; port 0 picks a free one',
    help: 'Where the coordinator waits for ranks; off loopback a cluster token is required.',
  },
  ranks: {
    flag: 'ranks',
    parse: nullable(integer(1, RANKS_MAX)),
    fallback: null,
    unset: 'the number that the topology needs',
    takes: `1 to ${RANKS_MAX}`,
    help: 'How many ranks make up the cluster; must equal tp x pp where those are given.',
  },
  tokenFile: {
    flag: 'token-file',
    parse: nullable(text(4096)),
    fallback: null,
    unset: 'COX_CLUSTER_TOKEN, or on loopback a random token',
    takes: 'path',
    help: 'File with the cluster token by which coordinator and ranks prove themselves.',
  },
  tp: {
    flag: 'tp',
    parse: nullable(integer(1, RANKS_MAX)),
    fallback: null,
    unset: '1, or the length of split',
    takes: `1 to ${RANKS_MAX}`,
    help: 'Tensor parallel: how many ranks share every layer.',
  },
  split: {
    flag: 'split',
    parse: nullable(weights(RANKS_MAX)),
    fallback: null,
    unset: 'equal shares',
    takes: 'positive weights, such as 2,1',
    help: 'Uneven tensor parallel: the share of each rank; 2,1 gives the first two thirds.',
  },
  pp: {
    flag: 'pp',
    parse: nullable(integer(1, STAGES_MAX)),
    fallback: null,
    unset: '1, or the number of ranges in layers',
    takes: `1 to ${STAGES_MAX}`,
    help: 'Pipeline parallel: how many stages the layers are cut into.',
  },
  layers: {
    flag: 'layers',
    parse: nullable(layerRanges(STAGES_MAX)),
    fallback: null,
    unset: 'cut so that every stage reads about the same bytes a token',
    takes: 'inclusive ranges, such as 0-14,15-29',
    help: 'The layers of each stage, from 0 and without gaps.',
  },
  transport: {
    flag: 'transport',
    parse: oneOf(['auto', 'shm', 'tcp', 'rdma', 'grpc']),
    fallback: 'auto',
    takes: 'auto, shm, tcp, rdma or grpc',
    help: 'How ranks exchange activations; auto takes the best that both ends prove.',
  },
  threads: {
    flag: 'threads',
    parse: nullable(integer(1, THREADS_MAX)),
    fallback: null,
    unset: "the host's cores divided by the ranks on it",
    takes: `1 to ${THREADS_MAX}`,
    help: 'Engine threads of each rank.',
  },
  ctx: {
    flag: 'ctx',
    parse: nullable(integer(1, CONTEXT_MAX)),
    fallback: null,
    unset: "the model's own",
    takes: `tokens, 1 to ${CONTEXT_MAX}`,
    help: 'Longest session, prompt and answer together.',
  },
  kvType: {
    flag: 'kv-type',
    parse: oneOf(['f32', 'f16']),
    fallback: 'f16',
    takes: 'f32 or f16',
    help: 'Number format of the KV cache; f32 costs twice the memory.',
  },
  kvMem: {
    flag: 'kv-mem',
    parse: nullable(size(MEBIBYTE)),
    fallback: null,
    unset: 'eight full contexts, within a quarter of the memory left beside the weights',
    takes: 'size, such as 8GB or 512MiB',
    help: 'Memory of each rank for its KV cache.',
  },
  exact: {
    flag: 'exact',
    parse: yesNo(),
    fallback: 'false',
    takes: 'true or false',
    help: 'Compute with f32 activations instead of a8: slower, and closer to the reference.',
    boolean: true,
  },
  slots: {
    flag: 'slots',
    parse: integer(1, SLOTS_MAX),
    fallback: '32',
    takes: `1 to ${SLOTS_MAX}`,
    help: 'Sessions that are live in the engine at once.',
  },
  queue: {
    flag: 'queue',
    parse: integer(0, QUEUE_MAX),
    fallback: '256',
    takes: `0 to ${QUEUE_MAX}`,
    help: 'Requests that may wait for a slot; more are told 429, so that a flood stays cheap.',
  },
  bodyMax: {
    flag: 'body-max',
    parse: size(1024),
    fallback: '32MiB',
    takes: 'size, such as 32MiB',
    help: 'Largest HTTP request body; larger ones are told 413 before they are read.',
  },
  logLevel: {
    flag: 'log-level',
    parse: oneOf(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent']),
    fallback: 'info',
    takes: 'trace, debug, info, warn, error, fatal or silent',
    help: 'Least severe log lines that are written (JSON, standard error).',
  },
};

export function envName(flag: string): string {
  return `COX_${flag.replaceAll('-', '_').toUpperCase()}`;
}
