// The face of src/prompt: what the coordinator's shell and the CLI see of tokenizers and chat
// templates. One codec per model, built from GGUF metadata by createPromptCodec (prompt.ts).
//
// Invariants: ids are those of llama.cpp for the same vocabulary; a control token enters a rendered
// prompt only where the template wrote it, never from text that a client supplied; decoding what was
// encoded gives the same bytes, also for bytes that are no valid UTF-8.

/** Model metadata by GGUF key, as the addon reads it. Arrays are plain or typed. */
export interface MetadataView {
  get(key: string): unknown;
}

/**
 * A stretch of prompt text. Special tokens are recognised inside trusted stretches only; the text of
 * neighbouring stretches is tokenised as if it were one string.
 */
export interface Segment {
  readonly text: string;
  readonly trusted: boolean;
}

export interface ChatTurn {
  /** 'developer' renders as 'system'. */
  readonly role: 'system' | 'user' | 'assistant' | 'tool' | 'developer';
  readonly content: string;
  readonly name?: string;
}

export interface RenderOptions {
  /** Ends the prompt with the header of the assistant's turn. Default true. */
  readonly addGenerationPrompt?: boolean;
  /** What strftime_now sees. Fixed per session, so that a prompt renders to the same bytes again. */
  readonly now?: Date;
  /** More template variables (JSON values), e.g. enable_thinking. */
  readonly variables?: Readonly<Record<string, unknown>>;
  readonly signal?: AbortSignal;
}

export interface EncodeOptions {
  /** Plain text only: control tokens spelled in the text become tokens. Default false. */
  readonly parseSpecial?: boolean;
  /**
   * BOS and EOS as the model wants them. Segments (a rendered chat) get a BOS only where the template
   * wrote none, and never an EOS. Default false.
   */
  readonly addSpecial?: boolean;
}

export interface DecoderOptions {
  /** Control tokens appear as their text. Default false: they decode to nothing. */
  readonly special?: boolean;
  /**
   * The ids go on after a prompt, so a first space is kept. False: they are a whole sequence, of which
   * SPM vocabularies drop the one space they put in front. Default true.
   */
  readonly continuation?: boolean;
}

/** Ids in, text out. Never splits a UTF-8 sequence; bytes that can become none turn to U+FFFD. */
export interface StreamingDecoder {
  /** The text that became complete with this id; '' while a sequence is incomplete. */
  push(id: number): string;
  /** The text of what is still held back; the decoder starts afresh. */
  flush(): string;
  /** Bytes held back. */
  readonly pendingBytes: number;
}

export interface PromptCodec {
  readonly vocabSize: number;
  /** null: the vocabulary has none. */
  readonly bos: number | null;
  readonly eos: number | null;
  readonly addBos: boolean;
  readonly addEos: boolean;
  /** Ids that end a generation. */
  readonly endOfGeneration: ReadonlySet<number>;
  readonly hasChatTemplate: boolean;
  /**
   * Throws TEMPLATE_FAILED: no template in the file (use /v1/completions), the template refused the
   * messages, took too long, or gave too much.
   */
  renderChat(turns: readonly ChatTurn[], options?: RenderOptions): Promise<readonly Segment[]>;
  /**
   * A lower bound of the tokens of so many characters, at no cost: a prompt that cannot fit the context
   * is refused before it is tokenised (which takes a second for some megabytes of one character).
   */
  tokensAtLeast(characters: number): number;
  /**
   * Bytes that are no valid UTF-8 keep their value where the vocabulary has a token for them, and
   * become U+FFFD where not.
   */
  encode(input: string | Uint8Array | readonly Segment[], options?: EncodeOptions): number[];
  /** The exact bytes of a sequence of ids. Options as for decoder(), continuation false by default. */
  decode(ids: readonly number[], options?: DecoderOptions): Uint8Array;
  decoder(options?: DecoderOptions): StreamingDecoder;
  /** The bytes that an id stands for in text: empty for control tokens. */
  tokenBytes(id: number): Uint8Array;
  /** For people (logprobs): literal text of control tokens, U+FFFD for parts of a sequence. */
  tokenText(id: number): string;
  /** Ends the template worker. Renderings under way fail with SHUTTING_DOWN. */
  close(): Promise<void>;
}
