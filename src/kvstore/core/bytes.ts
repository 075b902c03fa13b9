// Byte strings: equality, order, common length. Plain loops: cores import nothing, and at these sizes
// (pages of 1 KiB) they are as fast as a call into the runtime.

export function equalBytes(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && commonBytes(a, b) === a.length;
}

/** Length of the common beginning. */
export function commonBytes(a: Uint8Array, b: Uint8Array): number {
  const limit = Math.min(a.length, b.length);
  let length = 0;
  while (length < limit && a[length] === b[length]) length += 1;
  return length;
}

/** Lexicographic; a beginning comes before what it begins. */
export function compareBytes(a: Uint8Array, b: Uint8Array): number {
  const common = commonBytes(a, b);
  if (common === a.length || common === b.length) return a.length - b.length;
  return (a[common] ?? 0) - (b[common] ?? 0);
}

export function toHex(bytes: Uint8Array): string {
  let text = '';
  for (const byte of bytes) text += byte.toString(16).padStart(2, '0');
  return text;
}
