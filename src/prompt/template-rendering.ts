// One rendering of a chat template, with the client's text marked. Pure: the worker (template-worker.ts)
// gives it a deadline.
//
// The template is run twice: on plain text, as every other implementation would, and on marked text. When
// both say the same (always, but for templates that compare in ways the marking interpreter does not
// know), the marks tell exactly whose each character is. Else the plain rendering stands where no turn
// spells a guarded token, and a rendering that marks just those spellings where one does.
import { Environment, Interpreter, type Node, parseTemplate } from './jinja.ts';
import { Marks, markAlphabet } from './marked-text.ts';
import { MarkingInterpreter, textOf } from './marking-interpreter.ts';
import { wellFormed } from './raw-text.ts';
import { strftime } from './strftime.ts';
import type { TemplateJob, TemplateSetup } from './template-job.ts';

/** A template needs tens of steps; the limit keeps a hostile one from filling memory by one call. */
const RANGE_ITEMS_MAX = 1_000_000;

type Exchange = (text: string) => string;

export class TemplateRendering {
  private readonly program: Node;
  private readonly setup: TemplateSetup;
  private readonly marks: Marks;
  private readonly spelled: readonly string[];

  /** Throws the parser's error. */
  constructor(setup: TemplateSetup) {
    this.setup = setup;
    this.program = parseTemplate(setup.template);
    this.marks = new Marks(markAlphabet(setup.guardedTexts));
    this.spelled = setup.guardedTexts.filter((text) => this.marks.canMark(text));
  }

  /** The rendering with marks. Throws what the template throws. */
  render(job: TemplateJob): string {
    const plain = this.run(job, (text) => text, false);
    const marked = this.attempt(job, (text) => this.marks.mark(text));
    if (marked !== null && this.marks.unmark(marked) === plain) return marked;
    if (!this.spells(job)) return plain;
    const sparse = this.attempt(job, (text) => this.markSpellings(text));
    if (sparse !== null) return sparse;
    throw new Error('the template cannot render text that spells control tokens');
  }

  /** Whether a client's text spells a guarded token. */
  private spells(job: TemplateJob): boolean {
    const found: string[] = [];
    this.environment(job, (text) => {
      found.push(...this.spelled.filter((spelling) => text.includes(spelling)));
      return text;
    });
    return found.length > 0;
  }

  private attempt(job: TemplateJob, exchange: Exchange): string | null {
    try {
      return this.run(job, exchange, true);
    } catch {
      return null;
    }
  }

  private run(job: TemplateJob, exchange: Exchange, marking: boolean): string {
    const environment = this.environment(job, exchange);
    const interpreter = marking
      ? new MarkingInterpreter(environment, this.marks)
      : new Interpreter(environment);
    return textOf(interpreter.run(this.program)) ?? '';
  }

  private environment(job: TemplateJob, exchange: Exchange): Environment {
    const environment = new Environment();
    const marks = this.marks;
    const now = new Date(job.nowMs);
    const globals: Record<string, unknown> = {
      true: true,
      false: false,
      none: null,
      True: true,
      False: false,
      None: null,
      range: boundedRange,
      strftime_now: (format: unknown) => strftime(String(format), now),
      raise_exception: (message: unknown) => {
        throw new Error(marks.unmark(String(message)));
      },
      ...this.setup.tokenTexts,
      messages: job.turns.map((turn) => ({
        role: turn.role === 'developer' ? 'system' : turn.role,
        content: exchange(wellFormed(turn.content)),
        ...(turn.name === undefined ? {} : { name: exchange(wellFormed(turn.name)) }),
      })),
      add_generation_prompt: job.addGenerationPrompt,
    };
    for (const [name, value] of Object.entries(globals)) environment.set(name, value);
    for (const [name, value] of Object.entries(job.variables)) {
      environment.set(
        name,
        exchangeDeep(value, exchange, (key) => this.markSpellings(key)),
      );
    }
    return environment;
  }

  /** Marks the first markable unit of every spelling of a guarded token, and nothing else. */
  private markSpellings(text: string): string {
    let out = text;
    for (const spelling of this.spelled) {
      const at = [...spelling.split('').keys()].find((unit) =>
        this.marks.canMark(spelling[unit] ?? ''),
      );
      const cut = (at ?? 0) + 1;
      const broken = this.marks.mark(spelling.slice(0, cut)) + spelling.slice(cut);
      // Once for each of two spellings that overlap.
      while (out.includes(spelling)) out = out.replaceAll(spelling, broken);
    }
    return out;
  }
}

function exchangeDeep(value: unknown, exchange: Exchange, exchangeKey: Exchange): unknown {
  if (typeof value === 'string') return exchange(wellFormed(value));
  if (Array.isArray(value)) return value.map((item) => exchangeDeep(item, exchange, exchangeKey));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [
      exchangeKey(wellFormed(key)),
      exchangeDeep(item, exchange, exchangeKey),
    ]),
  );
}

/** Python's range, bounded. */
function boundedRange(first: unknown, second?: unknown, third?: unknown): number[] {
  const [start, stop] = second === undefined ? [0, Number(first)] : [Number(first), Number(second)];
  const step = third === undefined ? 1 : Number(third);
  const count = Math.ceil((stop - start) / step);
  if (step === 0 || !Number.isFinite(count)) throw new Error('range() needs finite numbers');
  if (count > RANGE_ITEMS_MAX) throw new Error(`range() of ${count} items is too long`);
  return Array.from({ length: Math.max(count, 0) }, (_, k) => start + k * step);
}
