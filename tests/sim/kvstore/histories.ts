// What clients send: token histories that begin like others, their key bytes, and the texts and tails
// that the coordinator stores of them.
import type { Prng } from '../../../src/base/prng.ts';

const HISTORIES_KEPT = 12;
const TOKENS_MAX = 700;

export const TAIL = {
  logits: Float32Array.of(1, 2),
  witness: { token: 1, logits: Float32Array.of(3, 4) },
};

/** Two key bytes a token, no two ids alike. */
export function keyOf(ids: Int32Array): Uint8Array {
  const key = new Uint8Array(ids.length * 2);
  ids.forEach((id, at) => {
    key[at * 2] = 32 + (id % 64);
    key[at * 2 + 1] = 32 + Math.floor(id / 64);
  });
  return key;
}

export function textOf(ids: Int32Array) {
  return {
    ids,
    ends: Uint32Array.from(ids, (_, at) => at * 2 + 2),
    whole: new Uint8Array(ids.length).fill(1),
    control: new Uint8Array(ids.length),
    key: keyOf(ids),
  };
}

export class Histories {
  private readonly prng: Prng;
  private readonly kept: Int32Array[] = [];

  constructor(prng: Prng) {
    this.prng = prng;
  }

  /** Mostly a known one that goes on, sometimes from its middle, sometimes something new. */
  draw(): Int32Array {
    const { prng } = this;
    const base = this.kept[prng.below(Math.max(1, this.kept.length))];
    const common = base === undefined ? 0 : this.commonWith(base);
    const ids = new Int32Array(Math.min(TOKENS_MAX, common + 1 + prng.below(300)));
    ids.set(base?.subarray(0, common) ?? []);
    for (let at = common; at < ids.length; at += 1) ids[at] = prng.below(400);
    const place = this.kept.length < HISTORIES_KEPT ? this.kept.length : prng.below(HISTORIES_KEPT);
    this.kept[place] = ids;
    return ids;
  }

  private commonWith(base: Int32Array): number {
    const { prng } = this;
    if (prng.chance(0.15)) return 0;
    return prng.chance(0.7) ? Math.min(base.length, TOKENS_MAX - 1) : prng.below(base.length);
  }
}
