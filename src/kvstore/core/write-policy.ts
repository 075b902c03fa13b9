// When a prefix is written: only at natural boundaries that the work passes anyway. Nothing is ever
// rolled back to make an entry, and every moment that is passed over says why.
//
//   prompt   0 ---- anchor ---- common ---- interval ---- input end - prompt end   output ---- output end
//
// Pure: prompt positions in, list of moments out. Positions are token counts.
import type { SaveReason } from './model.ts';
import { PAGE_TOKENS } from './model.ts';

export interface WriteOptions {
  /** Shorter prefixes are not worth a file. */
  readonly minTokens: number;
  /** Distance of units inside long inputs and outputs. 0: none. */
  readonly intervalTokens: number;
  /** Share of the context that an interval may be at most. */
  readonly intervalOfContext: number;
  /** An interval costs at least so many times less than the tokens it saves. */
  readonly intervalOverFixed: number;
  /** Cold anchors are saved for prompts up to this length. 0: none. */
  readonly anchorPromptMax: number;
}

export const WRITE_OPTIONS: WriteOptions = {
  minTokens: 512,
  intervalTokens: 10_240,
  intervalOfContext: 0.25,
  intervalOverFixed: 5,
  anchorPromptMax: 30_000,
};

export interface SaveMoment {
  readonly tokens: number;
  readonly reason: SaveReason;
}

export type SkipCause =
  | 'too-short'
  | 'exists'
  | 'already-computed'
  | 'cancelled'
  | 'side-request'
  | 'no-write'
  | 'no-space'
  | 'busy'
  | 'parent-gone'
  | 'pinned-bytes';

export interface SkippedMoment extends SaveMoment {
  readonly cause: SkipCause;
}

export interface InputFacts {
  readonly promptTokens: number;
  /** State exists up to here: nothing before it can be saved. */
  readonly restoredTokens: number;
  /** Cut before the assistant header, where the template has one. */
  readonly inputEnd: number | null;
  /** The last boundary shared with something known, and whether it ends a message. */
  readonly common: { readonly tokens: number; readonly endsMessage: boolean } | null;
  /** The last user marker before the first assistant marker. */
  readonly anchor: number | null;
  /** Tokens whose rows take as many bytes as the boundary state of one unit. */
  readonly fixedTokens: number;
  readonly context: number;
  /** A title or summary that nobody will continue. */
  readonly sideRequest: boolean;
}

export interface SavePlan {
  /** Ascending, each position once. */
  readonly moments: readonly SaveMoment[];
  readonly skipped: readonly SkippedMoment[];
}

/** Distance of interval units: a multiple of 256 tokens, or 0 for none. */
export function intervalTokens(
  options: WriteOptions,
  facts: Pick<InputFacts, 'fixedTokens' | 'context'>,
): number {
  if (options.intervalTokens === 0) return 0;
  const wanted = Math.max(options.intervalTokens, options.intervalOverFixed * facts.fixedTokens);
  const most = Math.floor(facts.context * options.intervalOfContext);
  return Math.max(PAGE_TOKENS, aligned(Math.min(wanted, most)));
}

/** Where prefill stops to save. `exists` knows units of this very prefix by their token count. */
export function planInput(
  options: WriteOptions,
  facts: InputFacts,
  exists: (tokens: number) => boolean,
): SavePlan {
  const skipped: SkippedMoment[] = [];
  const moments = new Map<number, SaveMoment>();
  for (const wish of wishes(options, facts)) {
    const cause = refusal(options, facts, wish) ?? (exists(wish.tokens) ? 'exists' : null);
    if (cause !== null) skipped.push({ tokens: wish.tokens, reason: wish.reason, cause });
    else if (!moments.has(wish.tokens)) {
      moments.set(wish.tokens, { tokens: wish.tokens, reason: wish.reason });
    }
  }
  const ascending = [...moments.values()].sort((a, b) => a.tokens - b.tokens);
  return { moments: ascending, skipped };
}

interface Wish extends SaveMoment {
  /** Kept though shorter than the minimum. */
  readonly short: boolean;
}

/** In order of strength: of two reasons for one position the first is recorded. */
function wishes(options: WriteOptions, facts: InputFacts): Wish[] {
  const found: Wish[] = [];
  const { promptTokens, common, anchor, inputEnd } = facts;
  const add = (tokens: number, reason: SaveReason, short = false) => {
    if (tokens > 0 && tokens <= promptTokens) found.push({ tokens, reason, short });
  };
  if (common !== null) add(common.tokens, 'common-prefix', common.endsMessage);
  if (anchor !== null && promptTokens <= options.anchorPromptMax) add(aligned(anchor), 'anchor');
  if (inputEnd !== null) add(inputEnd, 'input-end');
  add(promptTokens, 'prompt-end');
  const step = intervalTokens(options, facts);
  if (step > 0) {
    const first = facts.restoredTokens - (facts.restoredTokens % step) + step;
    for (let at = first; at <= promptTokens; at += step) add(at, 'interval');
  }
  return found;
}

function refusal(options: WriteOptions, facts: InputFacts, wish: Wish): SkipCause | null {
  // At the restored length itself the unit is there; below it the state has passed by.
  if (wish.tokens <= facts.restoredTokens) return 'already-computed';
  if (wish.tokens < options.minTokens && !wish.short) return 'too-short';
  return facts.sideRequest && wish.reason !== 'common-prefix' ? 'side-request' : null;
}

export interface OutputFacts {
  /** Length at which the slot was last saved or restored. */
  readonly savedTokens: number;
  readonly fixedTokens: number;
  readonly context: number;
}

/** The next length inside an output at which an interval unit is due; null for none. */
export function nextInterval(
  options: WriteOptions,
  from: number,
  facts: OutputFacts,
): number | null {
  const step = intervalTokens(options, facts);
  return step === 0 ? null : from - (from % step) + step;
}

export type SlotMoment = 'output-end' | 'slot-evicted' | 'shutdown';

/**
 * Whether a slot of `tokens` computed rows is saved when an answer ends, its memory is taken, or the
 * program stops. A cancelled answer is nobody's beginning; its slot is kept when it is evicted all the
 * same, since an identical retry goes on from there.
 */
export function planSlot(
  options: WriteOptions,
  moment: SlotMoment,
  slot: {
    readonly tokens: number;
    readonly savedTokens: number;
    readonly cancelled: boolean;
    readonly sideRequest: boolean;
  },
): SaveMoment | SkippedMoment {
  const wish = { tokens: slot.tokens, reason: moment };
  if (slot.tokens < options.minTokens) return { ...wish, cause: 'too-short' };
  if (slot.tokens <= slot.savedTokens) return { ...wish, cause: 'exists' };
  if (slot.sideRequest) return { ...wish, cause: 'side-request' };
  if (slot.cancelled && moment === 'output-end') return { ...wish, cause: 'cancelled' };
  return wish;
}

function aligned(tokens: number): number {
  return tokens - (tokens % PAGE_TOKENS);
}
