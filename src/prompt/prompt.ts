// Builds the codec of one model (prompt-codec.ts) from GGUF metadata: vocabulary, tokenizer, detokenizer,
// chat template.
import { CoxswainError } from '../base/errors.ts';
import { Detokenizer } from './detokenizer.ts';
import { Marks, markAlphabet } from './marked-text.ts';
import { type MetadataSource, readMetadata } from './metadata.ts';
import type { ChatTurn, PromptCodec, RenderOptions, Segment } from './prompt-codec.ts';
import { RESERVED_NAMES } from './template-job.ts';
import { TEMPLATE_LIMITS, type TemplateLimits, TemplateRenderer } from './template-renderer.ts';
import { TextCodec } from './text-codec.ts';
import { isGuarded, readVocabulary, type Vocabulary } from './vocabulary.ts';

/** Templates are a few kilobytes. */
const TEMPLATE_UNITS_MAX = 1024 * 1024;
const DAY_MS = 86_400_000;

export interface PromptCodecOptions {
  readonly templateLimits?: TemplateLimits;
}

/**
 * Throws TOKENIZER_UNSUPPORTED and GGUF_INVALID, naming the key at fault. A chat template is looked at
 * only when it is used.
 */
export function createPromptCodec(
  source: MetadataSource,
  options: PromptCodecOptions = {},
): PromptCodec {
  const vocabulary = readVocabulary(readMetadata(source));
  const texts = new TextCodec(vocabulary);
  const detokenizer = new Detokenizer(vocabulary);
  const chat = new ChatRendering(vocabulary, texts, options.templateLimits ?? TEMPLATE_LIMITS);
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  return {
    vocabSize: vocabulary.texts.length,
    bos: vocabulary.bos,
    eos: vocabulary.eos,
    addBos: texts.addBos,
    addEos: texts.addEos,
    endOfGeneration: vocabulary.endOfGeneration,
    hasChatTemplate: vocabulary.chatTemplate !== null,
    renderChat: (turns, renderOptions = {}) => chat.render(turns, renderOptions),
    tokensAtLeast: (characters) => Math.ceil(characters / texts.tokenUnitsMax),
    encode: (input, encodeOptions = {}) => texts.encode(input, encodeOptions),
    decode: (ids, decoderOptions = {}) => detokenizer.decode(ids, decoderOptions),
    decoder: (decoderOptions = {}) => detokenizer.createDecoder(decoderOptions),
    tokenBytes: (id) => detokenizer.bytes(id),
    tokenText: (id) => decoder.decode(detokenizer.bytesWithSpecials(id)),
    close: () => chat.close(),
  };
}

class ChatRendering {
  private readonly vocabulary: Vocabulary;
  private readonly texts: TextCodec;
  private readonly limits: TemplateLimits;
  private readonly guardedTexts: readonly string[];
  private readonly marks: Marks;
  private renderer: TemplateRenderer | null = null;
  private closing: CoxswainError | null = null;

  constructor(vocabulary: Vocabulary, texts: TextCodec, limits: TemplateLimits) {
    this.vocabulary = vocabulary;
    this.texts = texts;
    this.limits = limits;
    this.guardedTexts = vocabulary.texts.filter((text, id) =>
      isGuarded(vocabulary.kinds[id], text),
    );
    this.marks = new Marks(markAlphabet(this.guardedTexts));
  }

  async render(turns: readonly ChatTurn[], options: RenderOptions): Promise<readonly Segment[]> {
    const variables = options.variables ?? {};
    const reserved = Object.keys(variables).find((name) => RESERVED_NAMES.has(name));
    if (reserved !== undefined) {
      throw new CoxswainError('REQUEST_INVALID', `the template variable '${reserved}' is reserved`);
    }
    this.renderer ??= this.createRenderer();
    const marked = await this.renderer.render(
      {
        turns: turns.map(({ role, content, name }) =>
          name === undefined ? { role, content } : { role, content, name },
        ),
        variables,
        addGenerationPrompt: options.addGenerationPrompt ?? true,
        // A day is as fine as templates ask for, and keeps prompts equal within it.
        nowMs: options.now?.getTime() ?? Math.floor(Date.now() / DAY_MS) * DAY_MS,
      },
      options.signal,
    );
    return this.segments(marked);
  }

  async close(): Promise<void> {
    this.closing = new CoxswainError('SHUTTING_DOWN', 'the server is shutting down');
    await this.renderer?.close();
  }

  private createRenderer(): TemplateRenderer {
    if (this.closing !== null) throw this.closing;
    const { chatTemplate, texts, bos, eos, unknown, padding } = this.vocabulary;
    if (chatTemplate === null) {
      throw new CoxswainError(
        'TEMPLATE_FAILED',
        'the model file has no chat template (tokenizer.chat_template); use /v1/completions with a prompt in the model’s own form',
      );
    }
    if (chatTemplate.length > TEMPLATE_UNITS_MAX) {
      throw new CoxswainError(
        'TEMPLATE_FAILED',
        `tokenizer.chat_template has ${chatTemplate.length} characters, more than ${TEMPLATE_UNITS_MAX}`,
      );
    }
    const textOf = (id: number | null) => (id === null ? '' : (texts[id] ?? ''));
    const tokenTexts = {
      bos_token: textOf(bos),
      eos_token: textOf(eos),
      unk_token: textOf(unknown),
      pad_token: textOf(padding),
    };
    return new TemplateRenderer(
      { template: chatTemplate, guardedTexts: this.guardedTexts, tokenTexts },
      this.limits,
    );
  }

  /** Guarded tokens that the template wrote are trusted, all other text is not. */
  private segments(marked: string): readonly Segment[] {
    const { kinds, texts } = this.vocabulary;
    const guards = (id: number) => {
      const text = texts[id] ?? '';
      return isGuarded(kinds[id], text) && this.marks.canMark(text);
    };
    const segments: Segment[] = [];
    let start = 0;
    for (const stretch of this.texts.specials.partition(marked, guards)) {
      if (stretch.id === null) continue;
      if (stretch.start > start) segments.push(this.untrusted(marked.slice(start, stretch.start)));
      segments.push({ text: marked.slice(stretch.start, stretch.end), trusted: true });
      start = stretch.end;
    }
    if (start < marked.length) segments.push(this.untrusted(marked.slice(start)));
    return segments;
  }

  private untrusted(marked: string): Segment {
    return { text: this.marks.unmark(marked), trusted: false };
  }
}
