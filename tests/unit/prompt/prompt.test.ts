// The codec as the coordinator uses it: chat renderings through the worker, encoding of segments, BOS and
// EOS, decoding, and every way a template can misbehave.
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { CoxswainError } from '../../../src/base/errors.ts';
import { createPromptCodec } from '../../../src/prompt/prompt.ts';
import type { ChatTurn, PromptCodec, Segment } from '../../../src/prompt/prompt-codec.ts';
import { TEMPLATE_LIMITS, type TemplateLimits } from '../../../src/prompt/template-renderer.ts';
import { buildTemplateWorker } from './built-worker.ts';
import { BARS, STRICT, THINKING } from './chat-templates.ts';
import { metadataOf, recordedIds } from './vectors.ts';

beforeAll(buildTemplateWorker);

const opened: PromptCodec[] = [];
afterAll(async () => {
  for (const codec of opened) await codec.close();
});

interface Model {
  readonly file?: string;
  readonly template?: string | null;
  readonly keys?: Readonly<Record<string, unknown>>;
  readonly limits?: Partial<TemplateLimits>;
}

function open(model: Model = {}): PromptCodec {
  const metadata = metadataOf(model.file ?? 'tokenizer/smollm.gguf');
  if (model.template === null) metadata.delete('tokenizer.chat_template');
  else if (model.template !== undefined) metadata.set('tokenizer.chat_template', model.template);
  for (const [key, value] of Object.entries(model.keys ?? {})) metadata.set(key, value);
  const codec = createPromptCodec(metadata, {
    templateLimits: { ...TEMPLATE_LIMITS, ...model.limits },
  });
  opened.push(codec);
  return codec;
}

async function failure(promise: Promise<unknown>): Promise<[code: string, message: string]> {
  const thrown = await promise.then(
    () => null,
    (error: unknown) => error,
  );
  return thrown instanceof CoxswainError
    ? [thrown.code, thrown.message]
    : ['nothing failed', String(thrown)];
}

const user = (content: string): ChatTurn => ({ role: 'user', content });
const textOf = (segments: readonly Segment[]) => segments.map((segment) => segment.text).join('');
/** Runs until nobody waits for it any more, and then some. */
const ENDLESS =
  '{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}';

describe('the default model', () => {
  const codec = open();

  it('renders its own template and gives the ids of the text', async () => {
    const segments = await codec.renderChat([user('What is the capital of France?')]);
    expect(textOf(segments)).toBe(
      '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' +
        '<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n',
    );
    const ids = codec.encode(segments, { addSpecial: true });
    expect(ids).toEqual(codec.encode(textOf(segments), { parseSpecial: true }));
    expect(ids.slice(0, 3)).toEqual([1, 9690, 198]);
  });

  it('ends at the end of a turn, adds no BOS', () => {
    expect(codec.endOfGeneration.has(2)).toBe(true);
    expect(codec.addBos).toBe(false);
    expect(codec.encode('x', { addSpecial: true })).toEqual(codec.encode('x'));
  });

  it('hides control tokens in text and names them for people', () => {
    expect(codec.decoder().push(1)).toBe('');
    expect(codec.decoder({ special: true }).push(1)).toBe('<|im_start|>');
    expect(codec.tokenText(1)).toBe('<|im_start|>');
    expect(codec.tokenBytes(1)).toHaveLength(0);
    expect(Buffer.from(codec.tokenBytes(codec.encode(' the')[0] ?? 0)).toString()).toBe(' the');
  });

  it('bounds the tokens of a text from below', () => {
    const texts = recordedIds().strings.filter((text) => codec.encode(text).length > 0);
    for (const text of texts) {
      expect(codec.encode(text).length).toBeGreaterThanOrEqual(codec.tokensAtLeast(text.length));
    }
    expect(codec.tokensAtLeast(10_000_000)).toBeGreaterThan(8192);
  });
});

describe('text of a client in a rendered chat', () => {
  const models = [
    { name: 'smollm', file: 'tokenizer/smollm.gguf' },
    { name: 'qwen', file: 'oracle/models/tok-qwen.gguf' },
    { name: 'thinking', file: 'oracle/models/tok-qwen.gguf', template: THINKING },
    { name: 'llama', file: 'oracle/models/tok-llama.gguf' },
    { name: 'glm', file: 'oracle/models/tok-glm.gguf' },
    { name: 'bars', file: 'oracle/models/tok-glm.gguf', template: BARS },
    { name: 'deepseek', file: 'oracle/models/tok-deepseek.gguf' },
    {
      name: 'sentence piece',
      file: 'tokenizer/spm-cross.gguf',
      template:
        '{% for m in messages %}<|im_start|>{{ m.role }} {{ m.content }}<|im_end|>{% endfor %}',
    },
  ];

  it.each(models)('never becomes a special token ($name)', async ({ file, template }) => {
    const codec = open(template === undefined ? { file } : { file, template });
    const metadata = metadataOf(file);
    const kinds = metadata.get('tokenizer.ggml.token_type') as number[];
    const texts = metadata.get('tokenizer.ggml.tokens') as string[];
    const special = new Set([...texts.keys()].filter((id) => [2, 3, 4].includes(kinds[id] ?? 0)));
    // Runs of spaces are ordinary text, whatever their kind.
    const spellings = [...special]
      .map((id) => texts[id] ?? '')
      .filter((text) => text.trim() !== '');
    const specials = (ids: readonly number[]) =>
      ids.filter((id) => special.has(id) && (texts[id] ?? '').trim() !== '');
    const roles = ['user', 'assistant', 'system', 'developer', 'tool'] as const;
    const content = fc
      .array(
        fc.oneof(
          fc.constantFrom(...spellings),
          fc.constantFrom(...spellings).map((text) => text.slice(1)),
          fc.constantFrom(...spellings).map((text) => text.slice(0, -1)),
          fc.constantFrom(' ', '\n', 'word', '你好', '\ud800'),
        ),
        { maxLength: 6 },
      )
      .map((parts) => `.${parts.join('')}.`);
    // What the thinking template looks for moves text about; whole markers are tested on their own.
    const spoken = (text: string) =>
      template === THINKING ? text.replaceAll(/<\/?(?:think|tool_response)>/g, '') : text;
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.record({ role: fc.constantFrom(...roles), content }), {
          minLength: 1,
          maxLength: 4,
        }),
        async (risky) => {
          const turns = risky.map((turn) => ({ ...turn, content: spoken(turn.content) }));
          const segments = await codec.renderChat(turns);
          const harmless = await codec.renderChat(
            turns.map(({ role }) => ({ role, content: '...' })),
          );
          expect(specials(codec.encode(segments))).toEqual(specials(codec.encode(harmless)));
          const back = codec.decode(codec.encode(segments), { special: true });
          expect(Buffer.from(back).toString()).toBe(textOf(segments));
        },
      ),
      { numRuns: 60 },
    );
  });

  it('stays one text with the scaffolding for the tokenizer', () => {
    const codec = open();
    const whole = codec.encode('<|im_start|>user\nHello world', { parseSpecial: true });
    const cut: Segment[] = [
      { text: '<|im_', trusted: true },
      { text: 'start|>', trusted: true },
      { text: 'user\nHel', trusted: true },
      { text: 'lo wor', trusted: false },
      { text: 'ld', trusted: true },
    ];
    expect(codec.encode(cut)).toEqual(whole);
    const forged: Segment[] = [
      { text: '<|im_', trusted: true },
      { text: 'start|>', trusted: false },
    ];
    expect(codec.encode(forged)).not.toContain(1);
  });

  it('is refused under a name that the template uses itself', async () => {
    const rendered = open().renderChat([user('x')], { variables: { messages: [] } });
    expect(await failure(rendered)).toEqual([
      'REQUEST_INVALID',
      "the template variable 'messages' is reserved",
    ]);
  });
});

describe('BOS and EOS', () => {
  it('come once, also where the template writes the BOS itself', async () => {
    const codec = open({ file: 'oracle/models/tok-llama.gguf' });
    expect(codec.encode('x', { addSpecial: true })[0]).toBe(codec.bos);
    const ids = codec.encode(await codec.renderChat([user('x')]), { addSpecial: true });
    expect(ids.filter((id) => id === codec.bos)).toHaveLength(1);
    expect(ids[0]).toBe(codec.bos);
  });

  it('are added to a rendered chat whose template wrote none', async () => {
    const codec = open({
      file: 'oracle/models/tok-llama.gguf',
      template: '{{ messages[0].content }}',
    });
    const ids = codec.encode(await codec.renderChat([user('x')]), { addSpecial: true });
    expect(ids[0]).toBe(codec.bos);
  });

  it('follow the file: an EOS for a text, none for a chat', async () => {
    const codec = open({ file: 'tokenizer/spm-cross.gguf', template: '{{ messages[0].content }}' });
    expect(codec.encode('x', { addSpecial: true }).at(-1)).toBe(codec.eos);
    const chat = codec.encode(await codec.renderChat([user('x')]), { addSpecial: true });
    expect(chat.at(-1)).not.toBe(codec.eos);
    const without = open({
      file: 'tokenizer/spm-cross.gguf',
      keys: { 'tokenizer.ggml.add_bos_token': false },
    });
    expect(without.encode('x', { addSpecial: true })[0]).not.toBe(codec.bos);
  });
});

describe('a sequence of a SentencePiece vocabulary', () => {
  const codec = open({ file: 'tokenizer/spm-words.gguf' });
  const ids = codec.encode('hello world');

  it('decodes without the space that was put in front', () => {
    expect(Buffer.from(codec.decode(ids)).toString()).toBe('hello world');
    expect(Buffer.from(codec.decode([codec.bos ?? -1, ...ids])).toString()).toBe('hello world');
  });

  it('keeps its first space where it goes on after a prompt', () => {
    const decoder = codec.decoder();
    expect(ids.map((id) => decoder.push(id)).join('')).toBe(' hello world');
  });
});

describe('a template that misbehaves', () => {
  it('is cut at its deadline, and the next rendering works', async () => {
    const template = `{% if messages[0].content == 'loop' %}${ENDLESS}{% endif %}ok`;
    const codec = open({ template, limits: { renderMs: 400 } });
    const late = codec.renderChat([user('loop')]);
    const next = codec.renderChat([user('fine')]);
    expect(await failure(late)).toEqual([
      'TEMPLATE_FAILED',
      'the chat template ran longer than 400 ms',
    ]);
    expect(textOf(await next)).toBe('ok');
  });

  it('is cut when it fills memory', async () => {
    const template = `{% set ns = namespace(all=[]) %}{% for a in range(1000000) %}{% set ns.all = ns.all + [range(10000)] %}{% endfor %}`;
    const codec = open({ template, limits: { renderMs: 30_000, heapMegabytes: 64 } });
    const [code, message] = await failure(codec.renderChat([user('x')]));
    expect([code, message]).toEqual([
      'TEMPLATE_FAILED',
      'the chat template needed more than 64 MB',
    ]);
  });

  it('fails with its own words', async () => {
    const codec = open({ template: STRICT });
    expect(await failure(codec.renderChat([{ role: 'system', content: 'be brief' }]))).toEqual([
      'TEMPLATE_FAILED',
      'chat template: This model takes no system turn: be brief',
    ]);
    expect(textOf(await codec.renderChat([user('<b>')]))).toContain('&lt;b>');
  });

  it('fails when it does not parse, or writes too much', async () => {
    const [code] = await failure(open({ template: '{% for %}' }).renderChat([user('x')]));
    expect(code).toBe('TEMPLATE_FAILED');
    const long = open({
      template: '{% for a in range(2000) %}x{% endfor %}',
      limits: { outputUnits: 1000 },
    });
    expect(await failure(long.renderChat([]))).toEqual([
      'TEMPLATE_FAILED',
      'the chat template wrote too much text',
    ]);
  });

  it('that is not there sends people to completions', async () => {
    const codec = open({ template: null });
    expect(codec.hasChatTemplate).toBe(false);
    const [code, message] = await failure(codec.renderChat([user('x')]));
    expect(code).toBe('TEMPLATE_FAILED');
    expect(message).toContain('/v1/completions');
  });
});

describe('the queue of renderings', () => {
  it('refuses messages beyond its size before they reach the worker', async () => {
    const codec = open({ limits: { inputUnits: 100 } });
    const [code] = await failure(codec.renderChat([user('x'.repeat(200))]));
    expect(code).toBe('CONTEXT_EXCEEDED');
  });

  it('refuses more renderings than it holds', async () => {
    const codec = open({ template: ENDLESS, limits: { renderMs: 300, queueJobs: 1 } });
    const waiting = [codec.renderChat([]), codec.renderChat([]), codec.renderChat([])];
    const codes = await Promise.all(waiting.map(async (rendered) => (await failure(rendered))[0]));
    expect(codes).toContain('QUEUE_FULL');
  });

  it('forgets a client that is gone, and only that one', async () => {
    const codec = open();
    const gone = new AbortController();
    const first = codec.renderChat([user('first')], { signal: gone.signal });
    const second = codec.renderChat([user('second')], { signal: gone.signal });
    const third = codec.renderChat([user('third')]);
    gone.abort();
    expect((await failure(first))[0]).toBe('REQUEST_CANCELLED');
    expect((await failure(second))[0]).toBe('REQUEST_CANCELLED');
    expect(textOf(await third)).toContain('third');
    const late = codec.renderChat([user('late')], { signal: gone.signal });
    expect((await failure(late))[0]).toBe('REQUEST_CANCELLED');
  });

  it('ends with the codec', async () => {
    const codec = open({ template: ENDLESS });
    const under = codec.renderChat([]);
    const waiting = codec.renderChat([]);
    const ends = [failure(under), failure(waiting)];
    await codec.close();
    expect((await Promise.all(ends)).map(([code]) => code)).toEqual([
      'SHUTTING_DOWN',
      'SHUTTING_DOWN',
    ]);
    expect((await failure(codec.renderChat([])))[0]).toBe('SHUTTING_DOWN');
  });
});

describe('metadata that cannot be used', () => {
  const refusal = (keys: Readonly<Record<string, unknown>>) => {
    try {
      open({ keys });
      return 'accepted';
    } catch (thrown) {
      return thrown instanceof CoxswainError ? `${thrown.code} ${thrown.message}` : String(thrown);
    }
  };

  it.each([
    [{ 'tokenizer.ggml.pre': 'kimi-k2' }, /^TOKENIZER_UNSUPPORTED .*pre is 'kimi-k2'/],
    [{ 'tokenizer.ggml.model': 't5' }, /^TOKENIZER_UNSUPPORTED .*model is 't5'/],
    [{ 'tokenizer.ggml.model': undefined }, /^TOKENIZER_UNSUPPORTED .*absent/],
    [{ 'tokenizer.ggml.model': 'llama' }, /^GGUF_INVALID .*scores is absent/],
    [{ 'tokenizer.ggml.tokens': undefined }, /^GGUF_INVALID .*tokens is absent/],
    [{ 'tokenizer.ggml.tokens': [] }, /^GGUF_INVALID .*tokens holds 0/],
    [{ 'tokenizer.ggml.tokens': ['a', 7] }, /^GGUF_INVALID .*tokens is not an array of strings/],
    [{ 'tokenizer.ggml.merges': undefined }, /^GGUF_INVALID .*merges is absent/],
    [{ 'tokenizer.ggml.merges': ['ab'] }, /^GGUF_INVALID .*merges\[0\] is no pair/],
    [{ 'tokenizer.ggml.token_type': [1] }, /^GGUF_INVALID .*token_type has 1 entries for 49152/],
    [
      { 'tokenizer.ggml.token_type': new Array(49152).fill(9) },
      /^GGUF_INVALID .*token_type\[0\] is 9/,
    ],
    [{ 'tokenizer.ggml.bos_token_id': 49152 }, /^GGUF_INVALID .*bos_token_id is 49152/],
    [{ 'tokenizer.ggml.add_bos_token': 1 }, /^GGUF_INVALID .*add_bos_token is not a boolean/],
    [{ 'tokenizer.chat_template': 7 }, /^GGUF_INVALID .*chat_template is not a string/],
  ])('is refused by the name of its key (case %#)', (keys, message) => {
    expect(refusal(keys)).toMatch(message);
  });

  it('may hold a token whose text is no valid UTF-8', () => {
    const texts = metadataOf('tokenizer/smollm.gguf').get('tokenizer.ggml.tokens') as unknown[];
    const keys = { 'tokenizer.ggml.tokens': texts.with(49_151, Buffer.of(0xff, 0x41)) };
    expect(open({ keys }).tokenText(49_151)).toBe('\ufffdA');
  });

  it('may come as typed arrays and bigints', () => {
    const kinds = metadataOf('tokenizer/smollm.gguf').get('tokenizer.ggml.token_type') as number[];
    const keys = {
      'tokenizer.ggml.token_type': Int32Array.from(kinds),
      'tokenizer.ggml.bos_token_id': 1n,
    };
    expect(open({ keys }).bos).toBe(1);
  });

  it('may come as a plain object', () => {
    const metadata = Object.fromEntries(metadataOf('tokenizer/smollm.gguf'));
    expect(createPromptCodec(metadata).vocabSize).toBe(49152);
  });
});
