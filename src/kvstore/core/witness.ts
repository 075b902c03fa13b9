// Verification after a restore: the logits of one fixed extra token, evaluated on a fork at the unit's end,
// against those stored when it was saved. Within the bound the best token is the same wherever the stored
// gap exceeds twice the bound, so it needs no check of its own. It works in every model family and touches no live state.

export interface WitnessBound {
  /** Same plan and numerics: every bit. */
  readonly bitwise: boolean;
  /** Else the greatest difference of a logit that re-cutting may bring (calibrated). */
  readonly most: number;
}

/** null: the restored state is sound. Else a sentence for the log, without any text of the prompt. */
export function witnessFault(
  stored: Float32Array,
  repeated: Float32Array,
  bound: WitnessBound,
): string | null {
  if (stored.length !== repeated.length) {
    return `${repeated.length} logits, ${stored.length} were stored`;
  }
  if (bound.bitwise) return bitFault(stored, repeated);
  for (let id = 0; id < stored.length; id += 1) {
    const [was, is] = [stored[id] ?? 0, repeated[id] ?? 0];
    // NaN compares false with everything: only a difference within the bound, or equality, passes.
    if (!(Math.abs(was - is) <= bound.most || was === is)) {
      return `logit ${id} is ${is}, was ${was}: more than ${bound.most} apart`;
    }
  }
  return null;
}

function bitFault(stored: Float32Array, repeated: Float32Array): string | null {
  const a = new Uint32Array(stored.buffer, stored.byteOffset, stored.length);
  const b = new Uint32Array(repeated.buffer, repeated.byteOffset, repeated.length);
  const id = a.findIndex((bits, index) => bits !== b[index]);
  return id < 0 ? null : `logit ${id} is ${repeated[id]}, was ${stored[id]}`;
}
