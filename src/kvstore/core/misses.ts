// What a request is told about the cache: usage that adds up, the source of what was reused, and for
// what was not the reason and the place of the first difference. No prompt text: offsets and names only.
import { assert } from '../../base/assert.ts';

export type CacheSource =
  | 'live-slot'
  | 'shared-blocks'
  | 'unit-loaded'
  | 'unit-rebuilt'
  | 'alias'
  | 'attached'
  | 'none';

/** Why tokens had to be computed that a longer prefix could have saved. */
export type MissClass =
  /** Nothing of this scope and model begins like this prompt. */
  | 'unknown'
  /** Everything known was reused; the prompt goes on with something new. */
  | 'extended'
  /** Known prefixes differ from the prompt inside this section of it. */
  | 'tools'
  | 'system'
  | 'message'
  | 'reasoning'
  | 'tail'
  /** A beginning is known, but no state was kept there. */
  | 'no-unit'
  | 'writing'
  | 'unavailable'
  | 'damaged'
  /** The stored ids do not go on into this text. */
  | 'cut-refused'
  /** Prefill was predicted to be faster. */
  | 'cheaper'
  | 'too-short';

/** Where the sections of a prompt end, in key bytes, ascending. */
export interface PromptSection {
  readonly kind: 'tools' | 'system' | 'message' | 'reasoning' | 'tail';
  /** Number of the message, where the section is one. */
  readonly message: number | null;
  readonly end: number;
}

export interface MissFacts {
  readonly promptBytes: number;
  /** Key bytes shared with the nearest known prefix, and that prefix's length; null: nothing known. */
  readonly common: { readonly bytes: number; readonly sourceBytes: number } | null;
  readonly usedBytes: number;
  /** Why the longest covering source was not used. */
  readonly refused: 'writing' | 'unavailable' | 'damaged' | 'cut-refused' | 'cheaper' | null;
  readonly sections: readonly PromptSection[];
  readonly minBytes: number;
}

export interface MissReport {
  readonly class: MissClass;
  /** Key offset of the first byte that is not shared; null where nothing is known. */
  readonly offset: number | null;
  readonly message: number | null;
}

export function classifyMiss(facts: MissFacts): MissReport {
  const { common } = facts;
  if (common === null) return { class: 'unknown', offset: null, message: null };
  const at = { offset: common.bytes, message: null };
  if (facts.refused !== null) return { class: facts.refused, ...at };
  if (common.bytes >= common.sourceBytes && facts.usedBytes >= common.bytes) {
    return { class: 'extended', ...at };
  }
  if (common.bytes < common.sourceBytes && common.bytes < facts.promptBytes) {
    const section = facts.sections.find(({ end }) => common.bytes < end);
    if (section !== undefined) {
      return { class: section.kind, offset: common.bytes, message: section.message };
    }
  }
  return { class: common.bytes < facts.minBytes ? 'too-short' : 'no-unit', ...at };
}

export interface CacheUsage {
  readonly promptTokens: number;
  /** Tokens whose state was live or loaded. Rebuilt from ids counts as missed. */
  readonly hitTokens: number;
  readonly missTokens: number;
  readonly source: CacheSource;
}

export function cacheUsage(promptTokens: number, reused: number, source: CacheSource): CacheUsage {
  assert(reused >= 0 && reused <= promptTokens, 'no more is reused than there is');
  const hitTokens = source === 'unit-rebuilt' || source === 'none' ? 0 : reused;
  return { promptTokens, hitTokens, missTokens: promptTokens - hitTokens, source };
}
