// A whole cluster in one process: the real coordinator shell and real rank shells over real sockets on
// loopback, with FakeEngines and a one-character-a-token codec. Ranks are killed by ending their runtime
// and engine without a word, as a killed process would.

import type { Plan } from '../../../../src/base/addon.ts';
import { CoxswainError } from '../../../../src/base/errors.ts';
import { type Cluster, openClusterWith } from '../../../../src/coordinator/shell/open-cluster.ts';
import type {
  ClusterDependencies,
  ClusterOptions,
  RankExit,
  RankLaunch,
  RankProcess,
} from '../../../../src/coordinator/shell/options.ts';
import { FakeEngine, type FakeWorld } from '../../../../src/engine/fake-engine.ts';
import { FakePlane } from '../../../../src/engine/fake-plane.ts';
import type { PromptCodec } from '../../../../src/prompt/prompt-codec.ts';
import type { RankDependencies } from '../../../../src/rank/shell/options.ts';
import { runRank } from '../../../../src/rank/shell/run-rank.ts';
import { decodeStepRecord, encodeStepResult } from '../../../../src/wire/step-codec.ts';
import { CLUSTER_DEFAULTS } from '../../../cluster-defaults.ts';

const ALPHABET = 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 $';
export const VOCAB = ALPHABET.length;
/** The dollar sign ends a generation. */
const END = ALPHABET.length - 1;
const CONTEXT = 1024;

export interface LogLine {
  readonly level: string;
  readonly message: string;
  readonly fields: Record<string, unknown>;
}

export interface FakeClusterOptions {
  readonly tp?: number;
  readonly pp?: number;
  readonly cluster?: Partial<ClusterOptions>;
  readonly stepUs?: (rows: number) => number;
  readonly identity?: (rank: number) => Partial<RankDependencies['identity']>;
  readonly plan?: Partial<Plan>;
  readonly engine?: (rank: number, world: FakeWorld) => FakeEngine;
  readonly dies?: FakeWorld['dies'];
}

export interface FakeCluster {
  readonly options: ClusterOptions;
  readonly dependencies: ClusterDependencies;
  readonly logs: LogLine[];
  readonly engines: Map<number, FakeEngine>;
  readonly launches: RankLaunch[];
  /** SIGKILL of the process that fills the rank now. */
  kill(rank: number): void;
  open(signal?: AbortSignal): Promise<Cluster>;
}

export function fakeCluster(given: FakeClusterOptions = {}): FakeCluster {
  const { tp = 2, pp = 1 } = given;
  const logs: LogLine[] = [];
  const log = loggerTo(logs);
  const engines = new Map<number, FakeEngine>();
  const launches: RankLaunch[] = [];
  const killers = new Map<number, () => void>();
  const world: FakeWorld = {
    shape: { layers: 4, heads: 4, vocab: VOCAB },
    plane: new FakePlane(tp * pp, pp),
    codec: { decodeRecord: decodeStepRecord, encodeResult: encodeStepResult },
    after: (ms, run) => void setTimeout(run, ms).unref(),
    stepUs: given.stepUs ?? (() => 200),
    ...(given.dies === undefined ? {} : { dies: given.dies }),
  };
  const split = Array.from({ length: tp }, () => 1);
  const options: ClusterOptions = {
    ...CLUSTER_DEFAULTS,
    modelPath: 'fake.gguf',
    modelName: 'fake',
    topology: { ...CLUSTER_DEFAULTS.topology, split, pp, context: CONTEXT },
    transport: 'fake',
    slots: 8,
    queueMax: 16,
    stepRowsMax: 64,
    joinTimeoutMs: 5000,
    ...given.cluster,
  };
  const identity = { fingerprint: 'fingerprint-a', buildId: 'build-a', numericsContract: 'n-1' };
  const launch = (launched: RankLaunch): RankProcess => {
    launches.push(launched);
    return startFakeRank(launched, {
      dependencies: {
        identity: { ...identity, ...given.identity?.(launched.rank) },
        createEngine: () => {
          const engine = given.engine?.(launched.rank, world) ?? new FakeEngine(world);
          engines.set(launched.rank, engine);
          return engine;
        },
        log,
        heartbeats: 'inline',
      },
      killers,
      kill: () => engines.get(launched.rank)?.kill(),
    });
  };
  const dependencies: ClusterDependencies = {
    model: { ...identity, context: CONTEXT, vocab: VOCAB, createdSeconds: 1_700_000_000 },
    plan: fakePlan(split, pp, given.plan),
    codec: characterCodec(),
    launch,
    log,
    heartbeats: 'inline',
  };
  return {
    options,
    dependencies,
    logs,
    engines,
    launches,
    kill: (rank) => killers.get(rank)?.(),
    open: (signal = new AbortController().signal) => openClusterWith(options, dependencies, signal),
  };
}

interface FakeRankParts {
  readonly dependencies: RankDependencies;
  readonly killers: Map<number, () => void>;
  readonly kill: () => void;
}

let nextPid = 100_000;

function startFakeRank(launch: RankLaunch, parts: FakeRankParts): RankProcess {
  const stop = new AbortController();
  let resolveExit: (exit: RankExit) => void = () => undefined;
  const exited = new Promise<RankExit>((resolve) => {
    resolveExit = resolve;
  });
  nextPid += 1;
  const kill = () => {
    parts.kill();
    stop.abort();
    resolveExit({ code: null, signal: 'SIGKILL', lastWords: '' });
  };
  parts.killers.set(launch.rank, kill);
  runRank(
    {
      join: launch.join,
      modelPath: launch.modelPath,
      token: launch.token,
      dataHost: '127.0.0.1',
      rank: launch.rank,
      threads: 1,
      stateDir: null,
      joinTimeoutMs: 5000,
    },
    parts.dependencies,
    stop.signal,
  ).then(
    () => resolveExit({ code: 0, signal: null, lastWords: '' }),
    (thrown: unknown) =>
      resolveExit({
        code: 1,
        signal: null,
        lastWords: thrown instanceof CoxswainError ? thrown.message : String(thrown),
      }),
  );
  return {
    pid: nextPid,
    exited,
    kill: (signal) => (signal === 'SIGKILL' ? kill() : stop.abort()),
  };
}

export function fakePlan(split: readonly number[], pp: number, more: Partial<Plan> = {}): Plan {
  const tp = split.length;
  const range = [0, 1] as const;
  return {
    tp,
    pp,
    hash: `fake-${split.join(',')}-${pp}-${tp * pp}`,
    layers: Array.from({ length: pp }, (_, stage) => [stage, stage] as const),
    context: CONTEXT,
    per_token: { collectives: 2, wire_bytes: 64 },
    memory: { installed: 0, admitted: 0, needed: 0, largest_model: 0 },
    refused: null,
    ranks: Array.from({ length: tp * pp }, (_, rank) => ({
      rank,
      stage: Math.floor(rank / tp),
      tp_index: rank % tp,
      layers: 1,
      heads: 1,
      kv_heads: 1,
      ffn_columns: 32,
      vocab_rows: 1,
      ranges: {
        layers: range,
        heads: range,
        kv_heads: range,
        ffn_columns: range,
        vocab_rows: range,
      },
      weight_bytes: 1000,
      kv_bytes_per_token: 16,
    })),
    ...more,
  };
}

function characterCodec(): PromptCodec {
  const encoder = new TextEncoder();
  const text = (id: number) => ALPHABET[id] ?? '';
  const encode: PromptCodec['encode'] = (input) => {
    const whole = typeof input === 'string' ? input : decodeSegments(input);
    return [...whole].map((character) => Math.max(0, ALPHABET.indexOf(character)));
  };
  return {
    vocabSize: VOCAB,
    bos: null,
    eos: END,
    addBos: false,
    addEos: false,
    endOfGeneration: new Set([END]),
    hasChatTemplate: true,
    renderChat: (turns) =>
      Promise.resolve(turns.map(({ content }) => ({ text: `${content} `, trusted: false }))),
    encode,
    decode: (ids) => encoder.encode(ids.map(text).join('')),
    decoder: () => ({ push: text, flush: () => '', pendingBytes: 0 }),
    tokenBytes: (id) => encoder.encode(text(id)),
    tokenText: text,
    tokensAtLeast: (characters) => characters,
    close: () => Promise.resolve(),
  };
}

function decodeSegments(input: Uint8Array | readonly { readonly text: string }[]): string {
  if (input instanceof Uint8Array) return new TextDecoder().decode(input);
  return input.map((segment) => segment.text).join('');
}

export function loggerTo(logs: LogLine[]): ClusterDependencies['log'] {
  const at = (level: string) => (fields: object, message: string) =>
    void logs.push({ level, message, fields: { ...fields } });
  return { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') };
}
