// The text of one choice while it is generated: detokenised as ids arrive, cut at the first stop string,
// with the longest end that could still become one held back. Log probabilities travel with the text of
// their token. Pure but for the decoder it owns.
import type { TokenLogprob } from '../../api/backend.ts';
import type { StreamingDecoder } from '../../prompt/prompt-codec.ts';
import type { AcceptedToken } from '../core/events.ts';

export interface TextPiece {
  readonly text: string;
  readonly logprobs: readonly TokenLogprob[];
}

export interface ChoiceTextOptions {
  readonly decoder: StreamingDecoder;
  /** Not empty strings. */
  readonly stops: readonly string[];
  /** null: the request wants no log probabilities. */
  readonly describe: ((token: AcceptedToken) => TokenLogprob) | null;
}

export class ChoiceText {
  private readonly options: ChoiceTextOptions;
  private held = '';
  /** UTF-16 units given out so far: where `held` begins. */
  private emitted = 0;
  private readonly pending: { readonly startsAt: number; readonly logprob: TokenLogprob }[] = [];
  /** Tokens taken, the one that completed a stop string included. */
  tokenCount = 0;
  stopped: boolean = false;

  constructor(options: ChoiceTextOptions) {
    this.options = options;
  }

  /** What may be shown now; null when nothing may. After `stopped` everything is ignored. */
  push(token: AcceptedToken): TextPiece | null {
    if (this.stopped) return null;
    const { decoder, describe, stops } = this.options;
    this.tokenCount += 1;
    const startsAt = this.emitted + this.held.length;
    if (describe !== null) this.pending.push({ startsAt, logprob: describe(token) });
    this.held += decoder.push(token.id);
    const stopAt = firstStop(this.held, stops);
    if (stopAt !== null) {
      this.stopped = true;
      return this.emit(stopAt, false);
    }
    return this.emit(this.held.length - heldBack(this.held, stops), false);
  }

  /** The choice ended by itself: what was held back is text after all. */
  end(): TextPiece | null {
    if (this.stopped) return null;
    this.held += this.options.decoder.flush();
    const stopAt = firstStop(this.held, this.options.stops);
    if (stopAt !== null) this.stopped = true;
    return this.emit(stopAt ?? this.held.length, stopAt === null);
  }

  private emit(length: number, all: boolean): TextPiece | null {
    const text = this.held.slice(0, length);
    this.held = this.held.slice(length);
    this.emitted += text.length;
    const logprobs: TokenLogprob[] = [];
    for (const { startsAt, logprob } of this.pending) {
      if (!all && startsAt >= this.emitted) break;
      logprobs.push(logprob);
    }
    this.pending.splice(0, logprobs.length);
    return text === '' && logprobs.length === 0 ? null : { text, logprobs };
  }
}

/** Where the earliest stop string begins. */
function firstStop(text: string, stops: readonly string[]): number | null {
  let first: number | null = null;
  for (const stop of stops) {
    const at = text.indexOf(stop);
    if (at >= 0 && (first === null || at < first)) first = at;
  }
  return first;
}

/** Length of the longest end of `text` that is a proper prefix of a stop string. */
function heldBack(text: string, stops: readonly string[]): number {
  let longest = 0;
  for (const stop of stops) {
    for (let length = Math.min(stop.length - 1, text.length); length > longest; length -= 1) {
      if (text.endsWith(stop.slice(0, length))) {
        longest = length;
        break;
      }
    }
  }
  return longest;
}
