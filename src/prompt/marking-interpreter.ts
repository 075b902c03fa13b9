// A Jinja interpreter that sees through marks (marked-text.ts): a template computes with marked strings
// what it would compute with plain ones, and what it writes still tells whose text is whose.
//
// Only operations that look at characters need care: they get operands without marks, and strings that
// come out of them get their marks back, by position where that is exact, else on every unit (which can
// only take trust away). Everything else (concatenation, slices, trim, length, macros) is the library's.
import { Environment, Interpreter, type Node, type RuntimeValue } from './jinja.ts';
import { Marks } from './marked-text.ts';

interface HeldNode extends Node {
  readonly held: RuntimeValue;
}
interface BinaryNode extends Node {
  readonly operator: { readonly value: string };
  readonly left: Node;
  readonly right: Node;
}
interface CallNode extends Node {
  readonly callee: Node;
  readonly args: readonly Node[];
}
interface MemberNode extends Node {
  readonly object: Node;
  readonly property: Node;
  readonly computed: boolean;
}
interface NamedNode extends Node {
  readonly value: string;
}
interface KeywordNode extends Node {
  readonly value: Node;
}
interface FilterNode extends Node {
  readonly operand: Node;
  readonly filter: Node;
}
interface TestNode extends Node {
  readonly operand: Node;
}

const isHeld = (node: Node): node is HeldNode => node.type === 'HeldValue';
const isBinary = (node: Node): node is BinaryNode => node.type === 'BinaryExpression';
const isCall = (node: Node): node is CallNode => node.type === 'CallExpression';
const isMember = (node: Node): node is MemberNode => node.type === 'MemberExpression';
const isName = (node: Node): node is NamedNode => node.type === 'Identifier';
const isFilter = (node: Node): node is FilterNode => node.type === 'FilterExpression';
const isTest = (node: Node): node is TestNode => node.type === 'TestExpression';
const isKeyword = (node: Node): node is KeywordNode => node.type === 'KeywordArgumentExpression';

const COMPARISONS: ReadonlySet<string> = new Set(['==', '!=', 'in', 'not in']);
/** String methods and filters that look at characters. */
const LOOKING: ReadonlySet<string> = new Set([
  'startswith',
  'endswith',
  'split',
  'replace',
  'upper',
  'lower',
  'title',
  'capitalize',
  'int',
  'float',
]);

/** A node that evaluates to a value that is known already. */
const held = (value: RuntimeValue): HeldNode => ({ type: 'HeldValue', held: value });

/** The node with other parts. */
const variant = <T extends Node>(node: T, parts: Partial<T>): T => ({ ...node, ...parts });

const factory = new Environment();

/** A JavaScript value as the interpreter's. */
function runtimeValue(value: unknown): RuntimeValue {
  factory.variables.delete('value');
  return factory.set('value', value);
}

export class MarkingInterpreter extends Interpreter {
  private readonly marks: Marks;

  constructor(environment: Environment, marks: Marks) {
    super(environment);
    this.marks = marks;
  }

  override evaluate(node: Node | undefined, environment: Environment): RuntimeValue {
    if (node === undefined) return super.evaluate(node, environment);
    if (isHeld(node)) return node.held;
    if (isBinary(node) && COMPARISONS.has(node.operator.value)) {
      return this.compare(node, environment);
    }
    if (isCall(node)) return this.call(node, environment);
    if (isMember(node) && node.computed) return this.member(node, environment);
    if (isFilter(node)) return this.filter(node, environment);
    if (isTest(node)) {
      const operand = held(this.clean(this.evaluate(node.operand, environment)));
      return super.evaluate(variant(node, { operand }), environment);
    }
    return super.evaluate(node, environment);
  }

  private compare(node: BinaryNode, environment: Environment): RuntimeValue {
    const left = held(this.clean(this.evaluate(node.left, environment)));
    const right = held(this.cleanItems(this.evaluate(node.right, environment)));
    return super.evaluate(variant(node, { left, right }), environment);
  }

  /** text.method(...) */
  private call(node: CallNode, environment: Environment): RuntimeValue {
    const { callee } = node;
    if (!isMember(callee) || callee.computed || !isName(callee.property)) {
      return super.evaluate(node, environment);
    }
    const method = callee.property.value;
    if (!LOOKING.has(method)) return super.evaluate(node, environment);
    const object = this.evaluate(callee.object, environment);
    const args = this.arguments(node.args, environment);
    return this.look(method, { object, args }, (text, plainArgs) => {
      const on = variant(callee, { object: held(text) });
      return super.evaluate(variant(node, { args: plainArgs, callee: on }), environment);
    });
  }

  private filter(node: FilterNode, environment: Environment): RuntimeValue {
    const object = this.evaluate(node.operand, environment);
    const { filter } = node;
    const name = isCall(filter) ? filter.callee : filter;
    const apply = (operand: RuntimeValue, args: readonly Node[] | null) => {
      const applied = isCall(filter) && args !== null ? variant(filter, { args }) : filter;
      return super.evaluate(
        variant(node, { operand: held(operand), filter: applied }),
        environment,
      );
    };
    if (!isName(name)) return apply(object, null);
    if (name.value === 'tojson') return this.json(object, (value) => apply(value, null));
    if (!LOOKING.has(name.value)) return apply(object, null);
    const args = isCall(filter) ? this.arguments(filter.args, environment) : [];
    return this.look(name.value, { object, args }, apply);
  }

  /** dictionary[key] */
  private member(node: MemberNode, environment: Environment): RuntimeValue {
    if (node.property.type === 'SliceExpression') return super.evaluate(node, environment);
    const object = held(this.evaluate(node.object, environment));
    const property = held(this.clean(this.evaluate(node.property, environment)));
    return super.evaluate(variant(node, { object, property }), environment);
  }

  private arguments(nodes: readonly Node[], environment: Environment): readonly Node[] {
    return nodes.map((node) => {
      if (isKeyword(node)) {
        return variant(node, { value: held(this.evaluate(node.value, environment)) });
      }
      // Spread arguments are rare and stay with the library.
      return node.type.includes('Spread') ? node : held(this.evaluate(node, environment));
    });
  }

  /** Does on plain text what `apply` does, and marks what comes out where it was marked before. */
  private look(
    name: string,
    subject: { readonly object: RuntimeValue; readonly args: readonly Node[] },
    apply: (object: RuntimeValue, args: readonly Node[]) => RuntimeValue,
  ): RuntimeValue {
    const { object, args } = subject;
    const texts = args.map((node) => (isHeld(node) ? textOf(node.held) : null));
    const text = textOf(object);
    const isMarked = [text, ...texts].some((part) => part !== null && Marks.isMarked(part));
    if (text === null || !isMarked) return apply(object, args);
    const plainArgs = args.map((node) => (isHeld(node) ? held(this.cleanItems(node.held)) : node));
    const result = apply(this.clean(object), plainArgs);
    if (name === 'split') return this.markPieces(text, result, texts[0] ?? null);
    if (name === 'replace') return this.replace(text, texts, result);
    const out = textOf(result);
    return out === null ? result : runtimeValue(this.markLike(text, out));
  }

  /** Pieces of a split, as slices of the marked text. */
  private markPieces(text: string, result: RuntimeValue, separator: string | null): RuntimeValue {
    const plain = this.marks.unmark(text);
    let at = 0;
    const pieces = itemsOf(result).map((item) => {
      const piece = textOf(item) ?? '';
      const start = plain.indexOf(piece, at);
      at = start + piece.length + (separator?.length ?? 0);
      return text.slice(start, start + piece.length);
    });
    return runtimeValue(pieces);
  }

  private replace(
    text: string,
    args: readonly (string | null)[],
    result: RuntimeValue,
  ): RuntimeValue {
    const [search, replacement] = args;
    const expected = textOf(result) ?? '';
    if (typeof search === 'string' && search !== '' && typeof replacement === 'string') {
      const out = this.replaceMarked(text, this.marks.unmark(search), replacement);
      if (this.marks.unmark(out) === expected) return runtimeValue(out);
    }
    // An empty search text or a count: the result is right, and trusted nowhere.
    return runtimeValue(this.marks.mark(expected));
  }

  private replaceMarked(text: string, search: string, replacement: string): string {
    const plain = this.marks.unmark(text);
    const parts: string[] = [];
    let at = 0;
    for (let hit = plain.indexOf(search); hit >= 0; hit = plain.indexOf(search, at)) {
      parts.push(text.slice(at, hit), replacement);
      at = hit + search.length;
    }
    return parts.join('') + text.slice(at);
  }

  /** Marks units of `out` where `text` is marked; all of them when the lengths differ. */
  private markLike(text: string, out: string): string {
    const marked = this.marks.mark(out);
    if (text.length !== out.length) return marked;
    let result = '';
    for (let at = 0; at < out.length; at += 1) {
      const from = Marks.isMarked(text[at] ?? '') ? marked : out;
      result += from[at] ?? '';
    }
    return result;
  }

  /** JSON is made of plain strings (marks would be escaped), then marked throughout. */
  private json(value: RuntimeValue, apply: (value: RuntimeValue) => RuntimeValue): RuntimeValue {
    if (!holdsMarks(value)) return apply(value);
    const json = textOf(apply(this.cleanDeep(value))) ?? '';
    return runtimeValue(this.marks.mark(json));
  }

  private clean(value: RuntimeValue): RuntimeValue {
    const text = textOf(value);
    if (text === null || !Marks.isMarked(text)) return value;
    return runtimeValue(this.marks.unmark(text));
  }

  /** Cleans a string, or the strings of an array. */
  private cleanItems(value: RuntimeValue): RuntimeValue {
    const items = itemsOf(value);
    if (!items.some((item) => Marks.isMarked(textOf(item) ?? ''))) return this.clean(value);
    return arrayOf(items.map((item) => this.clean(item)));
  }

  private cleanDeep(value: RuntimeValue): RuntimeValue {
    if (value.value instanceof Map) {
      const copy = runtimeValue({});
      for (const [key, item] of entriesOf(value)) {
        entriesOf(copy).set(this.marks.unmark(key), this.cleanDeep(item));
      }
      return copy;
    }
    if (Array.isArray(value.value))
      return arrayOf(itemsOf(value).map((item) => this.cleanDeep(item)));
    return this.clean(value);
  }
}

function holdsMarks(value: RuntimeValue): boolean {
  const text = textOf(value);
  if (text !== null) return Marks.isMarked(text);
  if (itemsOf(value).some(holdsMarks)) return true;
  for (const [key, item] of entriesOf(value))
    if (Marks.isMarked(key) || holdsMarks(item)) return true;
  return false;
}

/** The text of a string value, null for other values. */
export function textOf(value: RuntimeValue): string | null {
  return typeof value.value === 'string' ? value.value : null;
}

function itemsOf(value: RuntimeValue): readonly RuntimeValue[] {
  return Array.isArray(value.value) ? value.value : [];
}

function entriesOf(value: RuntimeValue): Map<string, RuntimeValue> {
  return value.value instanceof Map ? value.value : new Map();
}

function arrayOf(items: readonly RuntimeValue[]): RuntimeValue {
  const array = runtimeValue([]);
  if (Array.isArray(array.value)) for (const item of items) array.value.push(item);
  return array;
}
