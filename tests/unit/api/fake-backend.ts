// A Backend with deterministic answers, delays, failures and recoveries, told by the prompt's model of
// behaviour below. It keeps the contract of src/api/backend.ts and records what it was asked.
import { setTimeout as sleep } from 'node:timers/promises';
import type {
  Backend,
  InferenceEvent,
  InferenceRequest,
  ModelCard,
  TokenLogprob,
} from '../../../src/api/backend.ts';
import { CoxswainError } from '../../../src/base/errors.ts';

export interface FakeBehaviour {
  /** Words of the answer, cut by maxTokens. */
  readonly words?: readonly string[];
  readonly tokenDelayMs?: number;
  /** Before request-start. */
  readonly admissionDelayMs?: number;
  /** Between request-start and the first token. */
  readonly prefillDelayMs?: number;
  readonly refuse?: CoxswainError;
  /** Thrown after this many tokens. */
  readonly failAfter?: { readonly tokens: number; readonly error: unknown };
  /** A `recovering` event and a pause after this many tokens. */
  readonly recoverAfter?: { readonly tokens: number; readonly pauseMs: number };
  /** Requests that run at once; more are refused with QUEUE_FULL. */
  readonly runningMax?: number;
  readonly health?: { readonly ok: boolean; readonly state: string };
  /** Break the contract: end without response-end. */
  readonly endEarly?: boolean;
}

const DEFAULT_WORDS = ['Hello', ' there', ',', ' friend', '.'];
const CARD: ModelCard = { id: 'cox-1', createdSeconds: 1_700_000_000, contextTokens: 4096 };

export class FakeBackend implements Backend {
  readonly requests: InferenceRequest[] = [];
  readonly abortedAtMs: number[] = [];
  running = 0;
  produced = 0;
  behaviour: FakeBehaviour;

  constructor(behaviour: FakeBehaviour = {}) {
    this.behaviour = behaviour;
  }

  models(): readonly ModelCard[] {
    return [CARD, { ...CARD, id: 'family/cox-small' }];
  }

  health() {
    return this.behaviour.health ?? { ok: true, state: 'serving' };
  }

  async cluster() {
    return { epoch: 1, ranks: [] };
  }

  async metrics() {
    return '# HELP coxswain_fake A fake family\n# TYPE coxswain_fake gauge\ncoxswain_fake 1\n';
  }

  async *infer(request: InferenceRequest, signal: AbortSignal): AsyncGenerator<InferenceEvent> {
    const behaviour = this.behaviour;
    this.requests.push(request);
    if (behaviour.refuse !== undefined) throw behaviour.refuse;
    if (this.running >= (behaviour.runningMax ?? Number.POSITIVE_INFINITY)) {
      throw new CoxswainError('QUEUE_FULL', 'The queue is full.', { retryAfterSeconds: 3 });
    }
    const onAbort = () => this.abortedAtMs.push(performance.now());
    signal.addEventListener('abort', onAbort, { once: true });
    this.running += 1;
    try {
      yield* this.work(request, behaviour, signal);
    } finally {
      this.running -= 1;
      signal.removeEventListener('abort', onAbort);
    }
  }

  private async *work(
    request: InferenceRequest,
    behaviour: FakeBehaviour,
    signal: AbortSignal,
  ): AsyncGenerator<InferenceEvent> {
    await pause(behaviour.admissionDelayMs ?? 0, signal);
    const promptTokens = promptLength(request);
    const cachedTokens = Math.floor(promptTokens / 2);
    yield { type: 'request-start', promptTokens, cachedTokens };
    await pause(behaviour.prefillDelayMs ?? 0, signal);
    const words = behaviour.words ?? DEFAULT_WORDS;
    const count = Math.min(words.length, request.maxTokens ?? words.length);
    for (let index = 0; index < count; index += 1) {
      yield* this.upsets(behaviour, index, signal);
      await pause(behaviour.tokenDelayMs ?? 0, signal);
      for (let choice = 0; choice < request.choices; choice += 1) {
        yield this.delta(request, choice, words[index] ?? '');
      }
    }
    if (behaviour.failAfter?.tokens === count) throw behaviour.failAfter.error;
    const reason = count < words.length ? 'length' : 'stop';
    for (let choice = 0; choice < request.choices; choice += 1) {
      yield { type: 'choice-end', choice, reason };
    }
    if (behaviour.endEarly) return;
    const completionTokens = count * request.choices;
    yield { type: 'response-end', promptTokens, cachedTokens, completionTokens };
  }

  /** What goes wrong before the token of this index. */
  private async *upsets(
    behaviour: FakeBehaviour,
    index: number,
    signal: AbortSignal,
  ): AsyncGenerator<InferenceEvent> {
    if (behaviour.failAfter?.tokens === index) throw behaviour.failAfter.error;
    if (behaviour.recoverAfter?.tokens === index) {
      yield { type: 'recovering' };
      await pause(behaviour.recoverAfter.pauseMs, signal);
    }
  }

  private delta(request: InferenceRequest, choice: number, text: string): InferenceEvent {
    this.produced += 1;
    const logprobs = request.logprobs ? [logprobOf(text, request.topLogprobs)] : [];
    return { type: 'text-delta', choice, text, logprobs };
  }
}

function logprobOf(text: string, top: number): TokenLogprob {
  const bytes = [...Buffer.from(text)];
  const others = Array.from({ length: top }, (_, rank) => ({
    text: rank === 0 ? text : `other${rank}`,
    bytes: rank === 0 ? bytes : [...Buffer.from(`other${rank}`)],
    logprob: rank === 0 ? -0.5 : Number.NEGATIVE_INFINITY,
  }));
  return { text, bytes, logprob: -0.5, top: others };
}

function promptLength({ prompt }: InferenceRequest): number {
  switch (prompt.kind) {
    case 'chat':
      return prompt.messages.reduce((sum, message) => sum + message.content.length + 4, 0);
    case 'text':
      return prompt.text.length;
    case 'tokens':
      return prompt.tokens.length;
  }
}

async function pause(ms: number, signal: AbortSignal): Promise<void> {
  if (ms > 0) await sleep(ms, undefined, { signal });
}
