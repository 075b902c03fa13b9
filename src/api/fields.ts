// The request fields that both OpenAI APIs share: sampling options, limits, stop strings, user. Also
// the rule for everything else: a field that is not built yet and would change the answer is refused
// by name, a field that changes nothing is ignored and counted.
import { z } from 'zod';
import { CoxswainError } from '../base/errors.ts';
import { sharingScope, USER_BYTES_MAX } from './auth.ts';
import type { InferenceRequest } from './backend.ts';
import type { CallContext } from './call.ts';

const CHOICES_MAX = 8;
const STOPS_MAX = 16;
const STOP_CHARS_MAX = 1024;
const BIASES_MAX = 1024;
const TOP_K_MAX = 1_000_000;

const optional = <T extends z.ZodType>(type: T) => type.nullish();

const stopString = z.string().min(1).max(STOP_CHARS_MAX);

const logitBias = z
  .record(
    z.string().regex(/^(0|[1-9]\d{0,9})$/, 'keys are token ids'),
    z.number().min(-100).max(100),
  )
  .refine((biases) => Object.keys(biases).length <= BIASES_MAX, `at most ${BIASES_MAX} entries`);

const user = z
  .string()
  .refine((text) => Buffer.byteLength(text) <= USER_BYTES_MAX, `at most ${USER_BYTES_MAX} bytes`);

export const sharedFields = {
  model: optional(z.string().max(512)),
  stream: optional(z.boolean()),
  stream_options: optional(z.object({ include_usage: optional(z.boolean()) })),
  max_tokens: optional(z.int().min(1)),
  temperature: optional(z.number().min(0).max(2)),
  top_p: optional(z.number().min(0).max(1)),
  top_k: optional(z.int().min(-1).max(TOP_K_MAX)),
  min_p: optional(z.number().min(0).max(1)),
  repetition_penalty: optional(z.number().gt(0).max(10)),
  presence_penalty: optional(z.number().min(-2).max(2)),
  frequency_penalty: optional(z.number().min(-2).max(2)),
  logit_bias: optional(logitBias),
  seed: optional(z.int()),
  stop: optional(z.union([z.string().max(STOP_CHARS_MAX), z.array(stopString).max(STOPS_MAX)])),
  n: optional(z.int().min(1).max(CHOICES_MAX)),
  ignore_eos: optional(z.boolean()),
  user: optional(user),
};

export type SharedFields = z.infer<z.ZodObject<typeof sharedFields>>;

/** Fields that change no answer of this server (storage, billing, routing hints, other servers'). */
const HARMLESS_FIELDS = [
  'store',
  'metadata',
  'service_tier',
  'safety_identifier',
  'prompt_cache_key',
  'prompt_cache_retention',
  'prompt_cache_options',
  'parallel_tool_calls',
  'verbosity',
  'prediction',
  'provider',
  'priority',
  'cache_control',
];

export type Unsupported = Readonly<Record<string, (value: unknown) => boolean>>;

/** null, '', [], {} and false ask for nothing. */
export function asksNothing(value: unknown): boolean {
  if (value === null || value === undefined || value === '' || value === false) return true;
  return typeof value === 'object' && Object.keys(value).length === 0;
}

/** Fields of other servers' dialects that change the answer; in both APIs. Value: what is accepted. */
export const UNSUPPORTED_ANYWHERE: Unsupported = {
  stop_token_ids: asksNothing,
  bad_words: asksNothing,
  min_tokens: (value) => asksNothing(value) || value === 0,
  use_beam_search: asksNothing,
  length_penalty: (value) => asksNothing(value) || value === 1,
  prompt_logprobs: asksNothing,
  guided_json: asksNothing,
  guided_regex: asksNothing,
  guided_choice: asksNothing,
  guided_grammar: asksNothing,
  structured_outputs: asksNothing,
  grammar: asksNothing,
  json_schema: asksNothing,
  lora: asksNothing,
};

/** Refuses, by name, what would change the answer and is not built. Names all such fields at once. */
export function refuseUnsupported(body: Readonly<Record<string, unknown>>, table: Unsupported) {
  const refused = Object.keys(body).filter((field) => {
    const accepts = Object.hasOwn(table, field) ? table[field] : undefined;
    return accepts !== undefined && !accepts(body[field]);
  });
  if (refused.length > 0) throw unsupported(refused.sort(byTableOrder(table)));
}

export function unsupported(fields: readonly string[]): CoxswainError {
  const [first] = fields;
  const verb = fields.length === 1 ? 'is' : 'are';
  return new CoxswainError(
    'FIELD_UNSUPPORTED',
    `${fields.join(', ')} ${verb} not supported by this server; leave ${fields.length === 1 ? 'it' : 'them'} out.`,
    first === undefined ? {} : { field: first },
  );
}

export function asObject(body: unknown): Record<string, unknown> {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) {
    throw new CoxswainError('REQUEST_INVALID', 'The request body must be a JSON object.');
  }
  return body as Record<string, unknown>;
}

/** The parsed value, or REQUEST_INVALID that names the path of the first thing wrong. */
export function parseFields<T extends z.ZodType>(schema: T, body: unknown): z.infer<T> {
  const result = schema.safeParse(body);
  if (result.success) return result.data;
  const { path, message } = deepest(result.error.issues);
  const field = pathText(path);
  throw new CoxswainError('REQUEST_INVALID', `${field || 'body'}: ${message}`, { field });
}

export function countIgnored(
  body: Readonly<Record<string, unknown>>,
  known: readonly string[],
  table: Unsupported,
): number {
  const expected = new Set([...known, ...Object.keys(table), ...HARMLESS_FIELDS]);
  return Object.keys(body).filter((field) => !expected.has(field)).length;
}

/** Everything of an InferenceRequest but its id, prompt, limit and logprobs. */
export function samplingOf(fields: SharedFields, context: CallContext) {
  return {
    model: servedModel(fields.model ?? null, context),
    temperature: fields.temperature ?? 1,
    topP: fields.top_p ?? 1,
    topK: Math.max(0, fields.top_k ?? 0),
    minP: fields.min_p ?? 0,
    repetitionPenalty: fields.repetition_penalty ?? 1,
    presencePenalty: fields.presence_penalty ?? 0,
    frequencyPenalty: fields.frequency_penalty ?? 0,
    logitBias: Object.entries(fields.logit_bias ?? {}).map(
      ([id, bias]) => [Number(id), bias] as const,
    ),
    seed: fields.seed ?? null,
    stop: stopStrings(fields.stop ?? null),
    choices: fields.n ?? 1,
    ignoreEos: fields.ignore_eos ?? false,
    scope: sharingScope(context.keyIdentity, fields.user ?? ''),
  } satisfies Partial<Record<keyof InferenceRequest, unknown>>;
}

function stopStrings(stop: string | readonly string[] | null): readonly string[] {
  if (stop === null || stop === '') return [];
  return typeof stop === 'string' ? [stop] : stop;
}

function servedModel(asked: string | null, context: CallContext): string {
  const [first] = context.models;
  // One cluster serves one model, so leaving the name out is not ambiguous.
  if ((asked === null || asked === '') && first !== undefined) return first.id;
  const found = context.models.find((card) => card.id === asked);
  if (found !== undefined) return found.id;
  const names = context.models.map((card) => card.id).join(', ');
  throw new CoxswainError(
    'MODEL_NOT_FOUND',
    `model: this server does not have the model asked for; it has ${names || 'none yet'}.`,
    { field: 'model' },
  );
}

interface Issue {
  readonly path: readonly PropertyKey[];
  readonly message: string;
}

/** A union fails in every branch: the branch that got furthest says what the client meant. */
function deepest(issues: readonly z.core.$ZodIssue[]): Issue {
  const [first] = issues;
  if (first === undefined) return { path: [], message: 'is not valid' };
  if (first.code !== 'invalid_union') return first;
  const branches = first.errors.map((branch) => deepest(branch));
  const furthest = branches.reduce<Issue>(
    (best, branch) => (branch.path.length > best.path.length ? branch : best),
    { path: [], message: branches.map((branch) => branch.message).join(', or ') },
  );
  return { path: [...first.path, ...furthest.path], message: furthest.message };
}

function pathText(path: readonly PropertyKey[]): string {
  return path
    .map((part) => (typeof part === 'number' ? `[${part}]` : `.${String(part)}`))
    .join('')
    .replace(/^\./, '');
}

function byTableOrder(table: Unsupported) {
  const order = Object.keys(table);
  return (a: string, b: string) => order.indexOf(a) - order.indexOf(b);
}
