// Assertions for facts that only a bug can break. They stay on in production: the process logs the
// fact and ends, its supervisor restarts it, sessions are restored.

export class BrokenInvariant extends Error {
  constructor(fact: string) {
    super(`broken invariant: ${fact}`);
    this.name = 'BrokenInvariant';
  }
}

export function assert(condition: unknown, fact: string): asserts condition {
  if (!condition) throw new BrokenInvariant(fact);
}

/** The value, or a broken invariant when it is null or undefined. */
export function present<T>(value: T | null | undefined, fact: string): T {
  assert(value !== null && value !== undefined, fact);
  return value;
}
