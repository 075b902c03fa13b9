// Marks that tell a client's text from the template's, through everything a template does to strings.
// Each UTF-16 unit of a client's text that could be part of a special token is exchanged one for one for
// a lone low surrogate. Positions, lengths, white space and concatenation stay as they are; comparisons
// are the interpreter's affair (marking-interpreter.ts). Well-formed text has no lone surrogates, so a
// client cannot write a mark, nor anything that turns into one.

const MARK_BASE = 0xdc00;
const MARKS_MAX = 0x400;
const UNMARKABLE = /[\p{White_Space}\p{Surrogate}]/u;
const MARK = /\p{Surrogate}/gu;
const ANY_MARK = /\p{Surrogate}/u;

/**
 * The units of these texts that can be marked, as one string, most frequent first; capital and small
 * letters together, because templates change case.
 */
export function markAlphabet(texts: readonly string[]): string {
  const counts = new Map<string, number>();
  for (const text of texts) {
    for (const unit of new Set(text.split(''))) {
      for (const form of new Set([unit, unit.toLowerCase(), unit.toUpperCase()])) {
        if (form.length !== 1 || UNMARKABLE.test(form)) continue;
        counts.set(form, (counts.get(form) ?? 0) + 1);
      }
    }
  }
  const units = [...counts.keys()].sort((a, b) => (counts.get(b) ?? 0) - (counts.get(a) ?? 0));
  return units.slice(0, MARKS_MAX).join('');
}

export class Marks {
  private readonly alphabet: string;
  private readonly markOf = new Map<number, number>();

  constructor(alphabet: string) {
    this.alphabet = alphabet;
    for (let at = 0; at < alphabet.length; at += 1) {
      this.markOf.set(alphabet.charCodeAt(at), MARK_BASE + at);
    }
  }

  canMark(text: string): boolean {
    for (const unit of text.split('')) if (this.alphabet.includes(unit)) return true;
    return false;
  }

  /** Marks every unit it can; marked units stay marked. */
  mark(text: string): string {
    if (text === '') return text;
    const units = new Uint16Array(text.length);
    for (let at = 0; at < text.length; at += 1) {
      const unit = text.charCodeAt(at);
      units[at] = this.markOf.get(unit) ?? unit;
    }
    return Buffer.from(units.buffer).toString('utf16le');
  }

  unmark(text: string): string {
    return text.replace(MARK, (mark) => this.alphabet[mark.charCodeAt(0) - MARK_BASE] ?? mark);
  }

  static isMarked(text: string): boolean {
    return ANY_MARK.test(text);
  }
}
