// Finds whole special tokens in text. As in llama.cpp, longer tokens (in bytes) are taken first, each
// from left to right, and a shorter one only where nothing was taken yet. One pass over the text with a
// trie finds what occurs at all, so cost does not grow with the number of special tokens.
import { isSpecial, type Vocabulary } from './vocabulary.ts';

/** A stretch of text: a special token (id) or plain text (id null). */
export interface Stretch {
  readonly start: number;
  readonly end: number;
  readonly id: number | null;
}

/** Whether this occurrence of a special token may be taken as one. */
export type Admission = (id: number, start: number, end: number) => boolean;

interface TrieNode {
  id: number | null;
  readonly next: Map<number, TrieNode>;
}

export class SpecialTokens {
  private readonly root: TrieNode = { id: null, next: new Map() };
  private readonly firstUnits: RegExp | null;
  private readonly texts: readonly string[];
  private readonly bytes = new Map<number, number>();

  constructor(vocabulary: Vocabulary) {
    this.texts = vocabulary.texts;
    const firsts = new Set<string>();
    vocabulary.texts.forEach((text, id) => {
      if (text === '' || !isSpecial(vocabulary.kinds[id])) return;
      this.insert(text, id);
      this.bytes.set(id, Buffer.byteLength(text));
      firsts.add(`\\u${text.charCodeAt(0).toString(16).padStart(4, '0')}`);
    });
    this.firstUnits = firsts.size === 0 ? null : new RegExp(`[${[...firsts].join('')}]`, 'g');
  }

  private insert(text: string, id: number): void {
    let node = this.root;
    for (let at = 0; at < text.length; at += 1) {
      const unit = text.charCodeAt(at);
      let next = node.next.get(unit);
      if (next === undefined) {
        next = { id: null, next: new Map() };
        node.next.set(unit, next);
      }
      node = next;
    }
    node.id = id;
  }

  /** Cuts text into special tokens and the plain text between them, in order, without empty stretches. */
  partition(text: string, admit: Admission): Stretch[] {
    const found = this.occurrences(text);
    if (found.size === 0) return text === '' ? [] : [{ start: 0, end: text.length, id: null }];
    const taken = this.take(text, found, admit);
    const stretches: Stretch[] = [];
    let at = 0;
    for (const special of taken) {
      if (special.start > at) stretches.push({ start: at, end: special.start, id: null });
      stretches.push(special);
      at = special.end;
    }
    if (at < text.length) stretches.push({ start: at, end: text.length, id: null });
    return stretches;
  }

  /** Whether any special token is spelled in the text. */
  occursIn(text: string): boolean {
    return this.occurrences(text).size > 0;
  }

  /** Start positions, ascending, of every special token that occurs. */
  private occurrences(text: string): Map<number, number[]> {
    const found = new Map<number, number[]>();
    if (this.firstUnits === null) return found;
    const firstUnits = this.firstUnits;
    firstUnits.lastIndex = 0;
    while (firstUnits.test(text)) {
      const start = firstUnits.lastIndex - 1;
      let node: TrieNode | undefined = this.root;
      for (let at = start; node !== undefined; at += 1) {
        if (node.id !== null) {
          const starts = found.get(node.id);
          if (starts === undefined) found.set(node.id, [start]);
          else starts.push(start);
        }
        // charCodeAt beyond the end is NaN, which no node has.
        node = node.next.get(text.charCodeAt(at));
      }
    }
    return found;
  }

  private take(text: string, found: Map<number, number[]>, admit: Admission): Stretch[] {
    const ids = [...found.keys()].sort(
      (a, b) => (this.bytes.get(b) ?? 0) - (this.bytes.get(a) ?? 0) || a - b,
    );
    const covered = new Uint8Array(text.length);
    const taken: Stretch[] = [];
    for (const id of ids) {
      const length = this.texts[id]?.length ?? 0;
      for (const start of found.get(id) ?? []) {
        const end = start + length;
        // What was taken before is at least as long, so an overlap shows at one of our ends.
        if (covered[start] === 1 || covered[end - 1] === 1 || !admit(id, start, end)) continue;
        covered.fill(1, start, end);
        taken.push({ start, end, id });
      }
    }
    return taken.sort((a, b) => a.start - b.start);
  }
}
