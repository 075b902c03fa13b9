// What goes to the template worker and what comes back. Plain data: it crosses a thread boundary.
import type { ChatTurn } from './prompt-codec.ts';

/** Given once, when a worker starts. */
export interface TemplateSetup {
  readonly template: string;
  /** Texts of the tokens that a client must not be able to write. */
  readonly guardedTexts: readonly string[];
  /** Trusted texts under their template names: bos_token, eos_token, ... */
  readonly tokenTexts: Readonly<Record<string, string>>;
}

export interface TemplateJob {
  readonly id: number;
  readonly turns: readonly ChatTurn[];
  readonly variables: Readonly<Record<string, unknown>>;
  readonly addGenerationPrompt: boolean;
  readonly nowMs: number;
}

/** `marked`: the rendering, with the client's text marked (marked-text.ts). */
export type TemplateReply =
  | { readonly kind: 'ready' }
  | { readonly kind: 'rendered'; readonly id: number; readonly marked: string }
  | { readonly kind: 'failed'; readonly id: number; readonly message: string };

/** Names that every rendering sets itself. */
export const RESERVED_NAMES: ReadonlySet<string> = new Set([
  'messages',
  'add_generation_prompt',
  'raise_exception',
  'strftime_now',
  'range',
  'namespace',
  'true',
  'false',
  'none',
  'True',
  'False',
  'None',
  'bos_token',
  'eos_token',
  'unk_token',
  'pad_token',
]);
