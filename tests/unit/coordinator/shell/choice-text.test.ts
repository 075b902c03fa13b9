// The text of a choice: stop strings, held-back ends, log probabilities.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ChoiceText } from '../../../../src/coordinator/shell/choice-text.ts';

/** Ids index into `words`; '' stands for a token that completes no character yet. */
function choice(words: readonly string[], stops: readonly string[], logprobs = false): ChoiceText {
  return new ChoiceText({
    decoder: { push: (id) => words[id] ?? '', flush: () => '', pendingBytes: 0 },
    stops,
    describe: logprobs
      ? (token) => ({ text: words[token.id] ?? '', bytes: [], logprob: token.logprob, top: [] })
      : null,
  });
}

const token = (id: number) => ({ id, logprob: -id, top: [] });

function run(text: ChoiceText, count: number): string[] {
  const pieces: string[] = [];
  for (let id = 0; id < count; id += 1) pieces.push(text.push(token(id))?.text ?? '-');
  pieces.push(text.end()?.text ?? '-');
  return pieces;
}

describe('the text of a choice', () => {
  it('passes text on as it comes where no stop string is near', () => {
    expect(run(choice(['Hel', 'lo ', 'you'], ['xyz']), 3)).toEqual(['Hel', 'lo ', 'you', '-']);
  });

  it('holds back the longest end that may become a stop string, and no more', () => {
    const text = choice(['one E', 'N', 'x END', ' more'], ['END']);
    expect(run(text, 4)).toEqual(['one ', '-', 'ENx ', '-', '-']);
    expect(text.stopped).toBe(true);
    expect(text.tokenCount).toBe(3);
  });

  it('gives held text out when the choice ends by itself', () => {
    expect(run(choice(['a EN'], ['END']), 1)).toEqual(['a ', 'EN']);
  });

  it('finds a stop string that is spread over many tokens', () => {
    const text = choice(['a', 'b', 'c', 'd', 'e'], ['bcd']);
    expect(run(text, 5)).toEqual(['a', '-', '-', '-', '-', '-']);
    expect(text.tokenCount).toBe(4);
  });

  it('stops at the earliest of several stop strings', () => {
    expect(run(choice(['say foo or bar'], ['bar', 'foo']), 1)).toEqual(['say ', '-']);
  });

  it('shows exactly what a search over the whole text would leave, however it is cut', () => {
    const letters = fc.stringMatching(/^[ab]{0,3}$/);
    const stops = fc.array(fc.stringMatching(/^[ab]{1,4}$/), { maxLength: 3 });
    fc.assert(
      fc.property(fc.array(letters, { maxLength: 12 }), stops, (words, list) => {
        const whole = words.join('');
        const at = list.map((stop) => whole.indexOf(stop)).filter((index) => index >= 0);
        // A stop found early ends the choice before a later token could complete an earlier-starting one.
        const text = choice(words, list);
        const shown = run(text, words.length)
          .filter((piece) => piece !== '-')
          .join('');
        if (at.length === 0) expect(shown).toBe(whole);
        else expect(whole.startsWith(shown)).toBe(true);
        for (const stop of list) expect(shown.includes(stop)).toBe(false);
        expect(text.stopped).toBe(at.length > 0);
      }),
    );
  });

  it('gives log probabilities with their text, in order, none for cut tokens', () => {
    const text = choice(['a', '', 'b', 'S', 'T', 'c'], ['ST'], true);
    const seen: string[] = [];
    for (let id = 0; id < 6; id += 1) {
      const piece = text.push(token(id));
      if (piece) seen.push(`${piece.text}:${piece.logprobs.map(({ logprob }) => -logprob).join()}`);
    }
    expect(seen).toEqual(['a:0', 'b:1,2']);
    expect(text.end()).toBeNull();
  });

  it('gives all log probabilities out at the end of the choice', () => {
    const text = choice(['a', 'S'], ['ST'], true);
    text.push(token(0));
    expect(text.push(token(1))).toBeNull();
    expect(text.end()).toEqual({
      text: 'S',
      logprobs: [{ text: 'S', bytes: [], logprob: -1, top: [] }],
    });
  });
});
