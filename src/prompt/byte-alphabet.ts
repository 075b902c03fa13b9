// The alphabet of byte-level BPE: every byte is a printable character. 0x21-0x7E, 0xA1-0xAC and
// 0xAE-0xFF stand for themselves, the other 68 bytes in order for U+0100 onwards (a space is U+0120).

function alphabet(): string[] {
  const characters: string[] = [];
  let shifted = 0x100;
  for (let byte = 0; byte < 256; byte += 1) {
    const isPlain =
      (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    characters.push(String.fromCharCode(isPlain ? byte : shifted));
    if (!isPlain) shifted += 1;
  }
  return characters;
}

export const BYTE_CHARACTERS: readonly string[] = alphabet();

const BYTES: ReadonlyMap<string, number> = new Map(
  BYTE_CHARACTERS.map((character, byte) => [character, byte]),
);

/** The text of a normal token -> the bytes it stands for; characters outside the alphabet as UTF-8. */
export function bytesFromAlphabet(text: string): Uint8Array {
  const out: number[] = [];
  for (const character of text) {
    const byte = BYTES.get(character);
    if (byte === undefined) out.push(...Buffer.from(character));
    else out.push(byte);
  }
  return Uint8Array.from(out);
}

export function alphabetFromBytes(bytes: Uint8Array): string {
  let text = '';
  for (const byte of bytes) text += BYTE_CHARACTERS[byte];
  return text;
}
