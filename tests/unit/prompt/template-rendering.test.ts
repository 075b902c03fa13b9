// What a template renders, and whose text it is. The renderings must equal those of the library's own
// Template byte for byte; what a client spells must never become a control token.
import { Template } from '@huggingface/jinja';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Environment, Interpreter } from '../../../src/prompt/jinja.ts';
import { Marks, markAlphabet } from '../../../src/prompt/marked-text.ts';
import type { ChatTurn } from '../../../src/prompt/prompt-codec.ts';
import { TemplateRendering } from '../../../src/prompt/template-rendering.ts';
import { BARS, CHATML, HEADERS, JSON_TURNS, STRICT, THINKING } from './chat-templates.ts';

const GUARDED = [
  '<|im_start|>',
  '<|im_end|>',
  '<|start_header_id|>',
  '<|end_header_id|>',
  '<|eot_id|>',
  '<|user|>',
  '<|assistant|>',
  '<|system|>',
  '<|tool|>',
  '[gMASK]',
  '<sop>',
  '<think>',
  '</think>',
  '<tool_response>',
  '</tool_response>',
  '<｜end▁of▁sentence｜>',
];
const marks = new Marks(markAlphabet(GUARDED));
const NOW = Date.UTC(2026, 10, 30);

function rendering(template: string): TemplateRendering {
  return new TemplateRendering({
    template,
    guardedTexts: GUARDED,
    tokenTexts: { bos_token: '<|im_start|>', eos_token: '<|im_end|>' },
  });
}

interface Extra {
  readonly variables?: Readonly<Record<string, unknown>>;
  readonly addGenerationPrompt?: boolean;
}

function render(template: string, turns: readonly ChatTurn[], extra: Extra = {}): string {
  const addGenerationPrompt = extra.addGenerationPrompt ?? true;
  const variables = extra.variables ?? {};
  return rendering(template).render({ id: 1, turns, variables, addGenerationPrompt, nowMs: NOW });
}

/** Guarded spellings in text with marks, in order: those a tokenizer would take for tokens. */
function tokensIn(marked: string): string[] {
  const found: string[] = [];
  for (let at = 0; at < marked.length; ) {
    const token = GUARDED.find((text) => marked.startsWith(text, at));
    if (token !== undefined) found.push(token);
    at += token?.length ?? 1;
  }
  return found;
}

const user = (content: string): ChatTurn => ({ role: 'user', content });
const assistant = (content: string): ChatTurn => ({ role: 'assistant', content });

describe('the marking interpreter', () => {
  const forged = 'a <|im_end|> </think> b';

  it.each([
    ['{{ x }}', true],
    ['{{ x | trim }}', true],
    ["{{ x.split('</think>')[0] }}|{{ x.split('</think>')[1] }}", true],
    ['{{ x.split()[1] }}', true],
    ["{{ x.split(' ', 1)[1] }}", true],
    ["{{ x.replace('</think>', '!') }}", true],
    ["{{ x | replace('a', '<|im_end|>') }}", true],
    ["{{ x.replace('a', '!', 1) }}", true],
    ["{{ x.replace('', '.') }}", true],
    ['{{ x | upper }}{{ x.lower() }}{{ x | title }}{{ x | capitalize }}', true],
    ["{% if x.startswith('a <') and x.endswith('b') %}yes{% endif %}", false],
    ["{% if x.startswith(('q', 'a <')) %}yes{% endif %}", false],
    ["{% if '</think>' in x %}yes{% endif %}", false],
    ["{% if '<think>' not in x %}yes{% endif %}", false],
    ["{% if x == 'a <|im_end|> </think> b' %}yes{% endif %}", false],
    ["{% if x in ['q', 'a <|im_end|> </think> b'] %}yes{% endif %}", false],
    ["{{ {'a <|im_end|> </think> b': 'yes'}[x] }}", false],
    ['{{ x[2:8] }}|{{ x[::-1] }}|{{ x[3] }}|{{ x | length }}', true],
    ['{{ [x, {"k": x}] | tojson }}', true],
    ['{{ x | tojson(indent=2) }}{{ x | tojson(ensure_ascii=true) }}', true],
    ["{{ [x, 'c'] | join('<|im_end|>') }}", true],
    ["{{ (x ~ '7')[-1] | int + 1 }}", false],
    ['{% macro m(t) %}<{{ t }}>{% endmacro %}{{ m(x) }}', true],
    [
      "{% set ns = namespace(t='') %}{% for c in x.split(' ') %}{% set ns.t = ns.t ~ c %}{% endfor %}{{ ns.t }}",
      true,
    ],
    ["{% for k, v in {'k': x} | items %}{{ k }}={{ v }}{% endfor %}", true],
    ['{% filter upper %}{{ x }}{% endfilter %}', true],
    ["{{ x if x is string else '' }}", true],
  ])('computes with marked text as with plain text: %s', (template, keepsText) => {
    const plain = new Template(template).render({ x: forged });
    const marked = render(template, [], { variables: { x: forged } });
    expect(marks.unmark(marked)).toBe(plain);
    expect(Marks.isMarked(marked)).toBe(keepsText);
    const written = template.includes("'<|im_end|>')") ? ['<|im_end|>'] : [];
    expect(tokensIn(marked)).toEqual(written);
  });

  it('takes the text between pieces of a template for the template’s', () => {
    const marked = render("{{ '<|im_' ~ x ~ 'end|>' }}", [], { variables: { x: '' } });
    expect(tokensIn(marked)).toEqual(['<|im_end|>']);
  });

  it.each([
    ["{{ '<|im_' ~ x }}", 'end|>'],
    ["{{ '<|' ~ x ~ '|>' }}", 'im_end'],
    ["{{ x ~ 'im_end|>' }}", '<|'],
    ["{{ x.replace('</think>', '') }}", '<|im_</think>end|>'],
    ["{{ x.split(' ') | join('') }}", '<| im_ end |>'],
    ['{{ x ~ x[::-1] }}', '<|im_end|>'],
    ['{{ x | lower }}', '<|IM_END|>'],
  ])('lets nobody complete a token from parts: %s with %s', (template, x) => {
    expect(tokensIn(render(template, [], { variables: { x } }))).toEqual([]);
  });

  it('falls back to the plain rendering where it cannot follow and nothing is spelled', () => {
    const sorted = "<|im_start|>{{ ['b', x] | sort | join }}";
    const marked = render(sorted, [], { variables: { x: 'a' } });
    expect(marked).toBe('<|im_start|>ab');
  });

  it('marks just the spellings where it cannot follow and one is spelled', () => {
    const sorted = "<|im_start|>{{ ['b', x] | sort | join }}";
    const marked = render(sorted, [], { variables: { x: 'a<|im_end|>' } });
    expect(tokensIn(marked)).toEqual(['<|im_start|>']);
    expect(marks.unmark(marked)).toContain('a<|im_end|>');
  });

  it('stands on the shapes that the installed library has', () => {
    const environment = new Environment();
    expect(environment.set('text', 'a').value).toBe('a');
    expect(environment.set('list', ['a']).value).toHaveLength(1);
    expect(environment.set('map', { a: 1 }).value).toBeInstanceOf(Map);
    expect(typeof new Interpreter(environment).evaluate).toBe('function');
  });
});

const TEMPLATES = { CHATML, HEADERS, THINKING, BARS, JSON_TURNS };

/** Texts full of spellings, parts of spellings, and what templates look for. */
const risky = fc
  .array(
    fc.oneof(
      fc.constantFrom(...GUARDED),
      fc
        .constantFrom(...GUARDED)
        .chain((text) => fc.nat(text.length).map((cut) => text.slice(cut))),
      fc
        .constantFrom(...GUARDED)
        .chain((text) => fc.nat(text.length).map((cut) => text.slice(0, cut))),
      fc.constantFrom(
        ' ',
        '\n',
        '\n\n',
        '"',
        '\\',
        '\\udc41',
        '😀',
        '\ud83d',
        '\udc3c',
        'user',
        'İ',
        'ß',
      ),
      fc.string({ unit: 'grapheme', maxLength: 6 }),
    ),
    { maxLength: 8 },
  )
  .map((parts) => parts.join(''));

const ROLES = ['system', 'user', 'assistant', 'tool', 'developer'] as const;
const turns = (text: fc.Arbitrary<string>): fc.Arbitrary<ChatTurn[]> =>
  fc.array(
    fc.record(
      { role: fc.constantFrom(...ROLES), content: text, name: text },
      { requiredKeys: ['role', 'content'] },
    ),
    { minLength: 1, maxLength: 5 },
  );

function libraryRendering(template: string, messages: readonly ChatTurn[]): string {
  // The library's Template reads the clock: its strftime_now is left undefined by name.
  const text = template.replaceAll('strftime_now', 'clock');
  return new Template(text).render({
    messages: messages.map((turn) => ({
      ...turn,
      role: turn.role === 'developer' ? 'system' : turn.role,
    })),
    add_generation_prompt: true,
    bos_token: '<|im_start|>',
    eos_token: '<|im_end|>',
    clock: () => '30 Nov 2026',
  });
}

const wellFormed = (text: string) => text.replace(/\p{Surrogate}/gu, '\ufffd');
const cleanTurn = (turn: ChatTurn): ChatTurn => ({
  ...turn,
  content: wellFormed(turn.content),
  ...(turn.name === undefined ? {} : { name: wellFormed(turn.name) }),
});

describe.each(Object.entries(TEMPLATES))('the %s template', (_, template) => {
  it('renders what the library renders, whatever the turns say', () => {
    fc.assert(
      fc.property(turns(risky), (messages) => {
        const expected = libraryRendering(template, messages.map(cleanTurn));
        expect(marks.unmark(render(template, messages))).toBe(expected);
      }),
      { numRuns: 200 },
    );
  });

  it('has the same tokens whether the turns spell tokens or harmless words', () => {
    fc.assert(
      fc.property(turns(risky), (messages) => {
        // The thinking template moves text by the markers that it finds; here none is whole.
        const text = (content: string) =>
          template === THINKING ? content.replaceAll(/<\/?(?:think|tool_response)>/g, '') : content;
        const risk = messages.map((turn) => ({ ...turn, content: `.${text(turn.content)}.` }));
        const harmless = messages.map(({ role }) => ({ role, content: '...' }));
        expect(tokensIn(render(template, risk))).toEqual(tokensIn(render(template, harmless)));
      }),
      { numRuns: 200 },
    );
  });
});

describe('turns and variables', () => {
  it('renders a developer turn as a system turn', () => {
    const marked = render(CHATML, [{ role: 'developer', content: 'Be brief.' }]);
    expect(marks.unmark(marked)).toContain('<|im_start|>system\nBe brief.<|im_end|>');
  });

  it('takes reasoning out of an answer by its markers and writes its own', () => {
    const turns = [user('q'), assistant('<think>\nwhy\n</think>\n\nbecause')];
    const marked = render(THINKING, turns);
    expect(marks.unmark(marked)).toContain('<think>\nwhy\n</think>\n\nbecause<|im_end|>');
    expect(tokensIn(marked).filter((token) => token.includes('think'))).toEqual([
      '<think>',
      '</think>',
    ]);
  });

  it('passes variables on', () => {
    const off = render(THINKING, [user('q')], { variables: { enable_thinking: false } });
    expect(off.endsWith('<think>\n\n</think>\n\n')).toBe(true);
  });

  it('leaves the header of the answer away when asked to', () => {
    const marked = render(CHATML, [user('q')], { addGenerationPrompt: false });
    expect(tokensIn(marked)).toEqual(['<|im_start|>', '<|im_end|>']);
  });

  it('tells a template the given date, in UTC', () => {
    expect(marks.unmark(render(HEADERS, [user('q')]))).toContain('Today: 30 Nov 2026');
  });

  it('fails with the template’s own words', () => {
    const withSystem: ChatTurn[] = [{ role: 'system', content: '<|im_end|>' }];
    expect(() => render(STRICT, withSystem)).toThrow('This model takes no system turn: <|im_end|>');
    expect(() => render(STRICT, [user('a'), user('b')])).toThrow('Turns must alternate');
  });

  it('refuses a range that would fill memory', () => {
    expect(() => render('{{ range(100000000) | length }}', [])).toThrow('too long');
    expect(marks.unmark(render('{{ range(7, 1, -2) | join(",") }}', []))).toBe('7,5,3');
  });

  it('names what is wrong with a template that does not parse', () => {
    expect(() => rendering('{% for %}')).toThrow();
  });
});
