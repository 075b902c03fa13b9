// A small seeded generator (xoshiro128**) for simulations and tests, and for cores that take their
// randomness as an argument. Not for secrets.

export interface Prng {
  u32(): number;
  /** In [0, 1). */
  uniform(): number;
  /** Integer in [0, bound). */
  below(bound: number): number;
  chance(probability: number): boolean;
}

export function createPrng(seed: number): Prng {
  let state = seed | 0;
  const splitmix = () => {
    state = (state + 0x9e3779b9) | 0;
    let t = state ^ (state >>> 16);
    t = Math.imul(t, 0x21f0aaad);
    t ^= t >>> 15;
    t = Math.imul(t, 0x735a2d97);
    return (t ^ (t >>> 15)) >>> 0;
  };
  let [a, b, c, d] = [splitmix(), splitmix(), splitmix(), splitmix()];
  const u32 = () => {
    const m = Math.imul(b, 5);
    const result = Math.imul((m << 7) | (m >>> 25), 9) >>> 0;
    const t = b << 9;
    c ^= a;
    d ^= b;
    b ^= c;
    a ^= d;
    c ^= t;
    d = (d << 11) | (d >>> 21);
    return result;
  };
  const uniform = () => u32() / 4294967296;
  return {
    u32,
    uniform,
    below: (bound) => Math.floor(uniform() * bound),
    chance: (probability) => uniform() < probability,
  };
}
