// What share of the machine's own limits a rate is: a decoded token reads every weight and the cache once,
// a prefilled one multiplies with every weight but the embeddings. Pure arithmetic over what the file holds.
import type { Inspection, MachineLimits, TensorEntry } from '../base/addon.ts';

/** A rate beside the limit that applies to it. */
export interface MachineShare {
  readonly limit: 'read bandwidth' | 'int8 peak' | 'f32 peak';
  /** Bytes read, or operations done (two: a multiplication and an addition), a token. */
  readonly per_token: number;
  /** Of one second, at most: bytes or operations. */
  readonly limit_per_second: number;
  /** 1: as fast as the machine allows. */
  readonly share: number;
}

/** Tokens a second of all streams together. */
export interface MeasuredRate {
  readonly tokensPerSecond: number;
  readonly streams: number;
}

const EMBEDDING = 'token_embd.weight';
const OUTPUT = 'output.weight';
const FLOAT_TYPES: readonly string[] = ['F32', 'F16', 'BF16'];

/** Weights that a step reads: all of them, but of an embedding of its own only the rows looked up. */
export function weightBytesPerStep(model: Inspection): number {
  const tied = model.shape?.tiedOutput ?? false;
  return sum(model.tensors.filter((tensor) => tied || tensor.name !== EMBEDDING).map(bytesOf));
}

/** Two for every weight of a matrix that all tokens of a prompt pass: embeddings and output do not count. */
export function operationsPerToken(model: Inspection): number {
  return 2 * sum(trunkMatrices(model).map((tensor) => tensor.dims.reduce((a, b) => a * b, 1)));
}

/**
 * Decode with `kvBytes` of cache to read for each stream's token. The streams share one reading of the weights.
 */
export function decodeShare(
  model: Inspection,
  limits: MachineLimits,
  rate: MeasuredRate & { readonly kvBytes: number },
): MachineShare {
  const perToken = weightBytesPerStep(model) / rate.streams + rate.kvBytes;
  return shareOf('read bandwidth', perToken, limits.readBytesPerSecond, rate.tokensPerSecond);
}

/** Prefill beside the int8 peak, or beside the f32 peak where most of the weights are floats. */
export function prefillShare(
  model: Inspection,
  limits: MachineLimits,
  rate: MeasuredRate,
): MachineShare | null {
  const matrices = trunkMatrices(model);
  const floats = matrices.filter((tensor) => FLOAT_TYPES.includes(tensor.type));
  const isFloat = 2 * sum(floats.map(bytesOf)) > sum(matrices.map(bytesOf));
  const peak = isFloat ? limits.f32 : limits.int8;
  if (peak === null) return null;
  const limit = isFloat ? 'f32 peak' : 'int8 peak';
  return shareOf(limit, operationsPerToken(model), peak.opsPerSecond, rate.tokensPerSecond);
}

function shareOf(
  limit: MachineShare['limit'],
  perToken: number,
  limitPerSecond: number,
  tokensPerSecond: number,
): MachineShare {
  const share = (perToken * tokensPerSecond) / limitPerSecond;
  return { limit, per_token: perToken, limit_per_second: limitPerSecond, share };
}

function trunkMatrices(model: Inspection): TensorEntry[] {
  return model.tensors.filter(
    ({ name, dims }) => dims.length > 1 && name !== EMBEDDING && name !== OUTPUT,
  );
}

const bytesOf = (tensor: TensorEntry) => tensor.bytes;
const sum = (values: readonly number[]) => values.reduce((a, b) => a + b, 0);
