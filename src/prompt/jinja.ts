// The part of @huggingface/jinja that is used, with types: the package's own declarations name their
// files without extensions, so a strict ES module build sees none of them. tests/unit/prompt checks that
// the installed version has these shapes. Its Template class is not used: it brings globals that read
// the clock.
import * as library from '@huggingface/jinja';

export interface Node {
  readonly type: string;
}

export interface RuntimeValue {
  readonly type: string;
  readonly value: unknown;
}

export interface Environment {
  readonly variables: Map<string, RuntimeValue>;
  /** Declares a variable from a JavaScript value; a name may be declared once. */
  set(name: string, value: unknown): RuntimeValue;
}

export interface Interpreter {
  run(program: Node): RuntimeValue;
  evaluate(node: Node | undefined, environment: Environment): RuntimeValue;
}

export const Environment: new () => Environment = library.Environment;
export const Interpreter: new (environment: Environment) => Interpreter = library.Interpreter;

/** Parses as chat templates are parsed: block tags swallow their own line. */
export function parseTemplate(template: string): Node {
  const tokens = library.tokenize(template, { lstrip_blocks: true, trim_blocks: true });
  return library.parse(tokens);
}
