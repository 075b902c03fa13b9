// The typed face of the addon's quantiser: one model file into another of fewer bits.
// Failures are CoxswainErrors with the native code.
import { nativeExport } from './addon.ts';
import { toCoxswainError } from './errors.ts';

export interface QuantizeOptions {
  /** GGUF file; any part of a split model. */
  readonly path: string;
  /** "Q4_K_M", "Q8_0", ...; upper or lower case. */
  readonly type: string;
  readonly out: string;
  /** One type for all matrices, the output matrix included. */
  readonly pure: boolean;
  /** Replace an existing file. */
  readonly force: boolean;
  /** Make the plan only; nothing is written. */
  readonly dryRun: boolean;
  /** 1 to 1024. */
  readonly threads: number;
}

export interface QuantizedTensor {
  readonly name: string;
  /** First the contiguous dimension. */
  readonly dims: readonly number[];
  readonly from: string;
  readonly to: string;
  readonly from_bytes: number;
  readonly bytes: number;
  /** Why it is not the type that was asked for; empty otherwise. */
  readonly note: string;
}

export interface Quantized {
  readonly file_bytes: number;
  /** Tensors that were quantised already get the error of a second rounding. */
  readonly requantizes: boolean;
  readonly tensors: readonly QuantizedTensor[];
}

/** Elements (weights) done, and of all tensors. */
export type QuantizeProgress = (done: number, total: number) => void;

interface QuantizeJob {
  readonly done: Promise<Quantized>;
  cancel(): void;
}

type NativeQuantize = (options: QuantizeOptions, onProgress: QuantizeProgress) => QuantizeJob;

/**
 * Writes `out` whole or not at all. USAGE_INVALID, GGUF_*, FILE_UNREADABLE, DISK_FULL, ADDON_MISSING;
 * REQUEST_CANCELLED once `signal` aborts.
 */
export async function quantizeModel(
  options: QuantizeOptions,
  onProgress: QuantizeProgress,
  signal: AbortSignal,
): Promise<Quantized> {
  try {
    signal.throwIfAborted();
    const job = nativeExport<NativeQuantize>('quantize')(options, onProgress);
    const cancel = () => job.cancel();
    signal.addEventListener('abort', cancel);
    try {
      return await job.done;
    } finally {
      signal.removeEventListener('abort', cancel);
    }
  } catch (error) {
    throw toCoxswainError(error);
  }
}
