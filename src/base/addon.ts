// The one place that loads the native addon, and the typed face of what it says about model files.
// src/engine asks nativeExport() for its own part. Failures are CoxswainErrors with the native code.
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { CoxswainError, toCoxswainError } from './errors.ts';

/** Sizes of a model that this engine can run. */
export interface ModelShape {
  readonly layers: number;
  readonly hidden: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly ffn: number;
  readonly vocab: number;
  readonly context: number;
  /** The embedding is the output matrix too. */
  readonly tiedOutput: boolean;
}

export interface TensorEntry {
  readonly name: string;
  /** As llama.cpp prints it: "F32", "Q4_K". */
  readonly type: string;
  /** First the contiguous dimension. */
  readonly dims: readonly number[];
  readonly bytes: number;
}

export interface Inspection {
  /** All parts of a split model. */
  readonly fileBytes: number;
  /** 64 hex digits; the same model has the same one on every host, whatever its path. */
  readonly fingerprint: string;
  readonly architecture: string;
  readonly name: string;
  readonly tensors: readonly TensorEntry[];
  /** null where this engine cannot run the model; `problem` then says why. */
  readonly shape: ModelShape | null;
  readonly problem: { readonly code: string; readonly message: string } | null;
}

/** Integers are numbers up to 2^53, bigints beyond; text that is no valid UTF-8 is a Buffer. */
export type MetadataValue =
  | number
  | bigint
  | boolean
  | string
  | Buffer
  | Uint32Array
  | Int32Array
  | Float64Array
  | readonly (number | bigint | boolean | string | Buffer)[];

/** The planner's argument, field for field that of src/engine/engine.ts. */
export interface PlanTopology {
  readonly split: readonly number[];
  readonly pp: number;
  readonly layers: readonly (readonly [first: number, last: number])[];
  readonly kvType: 'f32' | 'f16';
  readonly exact: boolean;
  readonly context: number;
}

/** Half-open: [begin, end). */
export type Range = readonly [begin: number, end: number];

/** One rank of a plan: counts, and the ranges that they count. */
export interface PlannedRank {
  readonly rank: number;
  readonly stage: number;
  readonly tp_index: number;
  readonly layers: number;
  readonly heads: number;
  readonly kv_heads: number;
  readonly ffn_columns: number;
  readonly vocab_rows: number;
  readonly ranges: {
    readonly layers: Range;
    readonly heads: Range;
    readonly kv_heads: Range;
    readonly ffn_columns: Range;
    readonly vocab_rows: Range;
  };
  readonly weight_bytes: number;
  readonly kv_bytes_per_token: number;
}

/** What `cox plan --json` prints. */
export interface Plan {
  readonly ranks: readonly PlannedRank[];
  readonly tp: number;
  readonly pp: number;
  /** Inclusive layer ranges, one a stage, as --layers takes them. */
  readonly layers: readonly (readonly [first: number, last: number])[];
  readonly context: number;
  readonly per_token: { readonly collectives: number; readonly wire_bytes: number };
  readonly memory: {
    readonly installed: number;
    readonly admitted: number;
    readonly needed: number;
    readonly largest_model: number;
  };
  /** 64 hex digits, or empty when refused. */
  readonly hash: string;
  /** One sentence that says why the topology is impossible. */
  readonly refused: string | null;
}

interface InspectExports {
  inspect(path: string): Promise<Inspection>;
  readMetadata(path: string): Promise<[string, MetadataValue][]>;
  plan(path: string, topology: PlanTopology): Promise<Plan>;
}

/** src/base and dist/base are equally deep below the package's root. */
const ADDON_PATH = join(
  dirname(fileURLToPath(import.meta.url)),
  '../../native/build/Release/coxswain.node',
);

let loaded: Readonly<Record<string, unknown>> | undefined;

function load(): Readonly<Record<string, unknown>> {
  if (loaded !== undefined) return loaded;
  if (!existsSync(ADDON_PATH)) {
    throw new CoxswainError(
      'ADDON_MISSING',
      `the native engine is not built (${ADDON_PATH} is missing): run \`npm run build:native\``,
    );
  }
  try {
    loaded = createRequire(import.meta.url)(ADDON_PATH) as Readonly<Record<string, unknown>>;
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new CoxswainError(
      'ADDON_MISSING',
      `the native engine cannot be loaded (${reason}): run \`npm run build:native\` again`,
      { cause: error },
    );
  }
  return loaded;
}

/** An export of the addon, typed by the caller who mirrors it. Throws ADDON_MISSING. */
export function nativeExport<T>(name: string): T {
  const value = load()[name];
  if (value === undefined) {
    throw new CoxswainError(
      'ADDON_MISSING',
      `the native engine is older than this code (it has no ${name}): run \`npm run build:native\``,
    );
  }
  return value as T;
}

async function translated<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw toCoxswainError(error);
  }
}

/** Tensor directory, fingerprint and shape. GGUF_*, FILE_UNREADABLE, ADDON_MISSING. */
export function inspectModel(path: string): Promise<Inspection> {
  return translated(() => nativeExport<InspectExports['inspect']>('inspect')(path));
}

/** All metadata by GGUF key. A Map, since a file may name a key "__proto__". */
export function readModelMetadata(path: string): Promise<ReadonlyMap<string, MetadataValue>> {
  return translated(
    async () => new Map(await nativeExport<InspectExports['readMetadata']>('readMetadata')(path)),
  );
}

/** Who holds what. An impossible topology resolves with `refused`; a model that cannot run rejects. */
export function planModel(path: string, topology: PlanTopology): Promise<Plan> {
  return translated(() => nativeExport<InspectExports['plan']>('plan')(path, topology));
}

/** The instruction set the kernels use here, and those this CPU has. */
export interface HostKernels {
  readonly isa: string;
  readonly available: readonly string[];
}

/** ISA_UNAVAILABLE when COX_ISA names a set that this CPU lacks; ADDON_MISSING. */
export function hostKernels(): HostKernels {
  try {
    return nativeExport<() => HostKernels>('host')();
  } catch (error) {
    throw toCoxswainError(error);
  }
}

/** Operations a second (two: a multiplication and an addition), and the instruction that reached them. */
export interface ArithmeticPeak {
  readonly opsPerSecond: number;
  readonly instruction: string;
}

/** What this machine can do at most with that many threads. null: it has no such instruction. */
export interface MachineLimits {
  readonly threads: number;
  readonly readBytesPerSecond: number;
  readonly int8: ArithmeticPeak | null;
  readonly bf16: ArithmeticPeak | null;
  readonly f32: ArithmeticPeak | null;
}

/** Keeps `threads` cores busy for about two seconds. MEMORY_EXHAUSTED, ADDON_MISSING. */
export function measureLimits(threads: number): Promise<MachineLimits> {
  return translated(() =>
    nativeExport<(threads: number) => Promise<MachineLimits>>('measureLimits')(threads),
  );
}
