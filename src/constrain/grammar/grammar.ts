/** Context-free grammars: the common form of schemas, patterns and user-written grammars. */
import { type Automaton, isEmpty } from "../automata/automaton.ts";
import { canBeEmpty } from "../automata/byte_automaton.ts";
import { checkLimit, LIMITS } from "../limits.ts";
import { type SpellingName, SPELLINGS } from "../automata/spelling.ts";

/** A rule's body. */
export type Expression =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "sequence"; readonly items: readonly Expression[] }
  | { readonly kind: "choice"; readonly options: readonly Expression[] }
  | { readonly kind: "rule"; readonly rule: number }
  /** The texts of an automaton in a spelling. */
  | { readonly kind: "automaton"; readonly texts: Automaton; readonly spelling: SpellingName };

/** Matches a literal. */
export function text(value: string): Expression {
  return { kind: "text", text: value };
}

/** Matches the empty text. */
export const NOTHING: Expression = text("");

/** Concatenation. */
export function sequence(...items: Expression[]): Expression {
  const kept = items.filter((item) => item.kind !== "text" || item.text !== "");
  return kept.length === 1 ? kept[0]! : { kind: "sequence", items: kept };
}

/** Alternation; matches no text for no options. */
export function choice(...options: Expression[]): Expression {
  return options.length === 1 ? options[0]! : { kind: "choice", options };
}

/** Matches `body` or the empty text. */
export function optional(body: Expression): Expression {
  return choice(NOTHING, body);
}

/** Matches the texts of an automaton. */
export function automaton(texts: Automaton, spelling: SpellingName = "plain"): Expression {
  return isEmpty(texts) ? choice() : { kind: "automaton", texts, spelling };
}

/** True if a literal or an automaton matches the empty text. */
export function isNullableLeaf(leaf: Expression): boolean {
  if (leaf.kind === "text") return leaf.text === "";
  return leaf.kind === "automaton" && canBeEmpty(leaf.texts, SPELLINGS[leaf.spelling]);
}

/** True if an expression matches the empty text, given the nullable `rules`. */
export function isNullable(expression: Expression, rules: ReadonlySet<number>): boolean {
  switch (expression.kind) {
    case "text":
    case "automaton":
      return isNullableLeaf(expression);
    case "rule":
      return rules.has(expression.rule);
    case "sequence":
      return expression.items.every((item) => isNullable(item, rules));
    case "choice":
      return expression.options.some((option) => isNullable(option, rules));
  }
}

/** A grammar under construction. */
export class Grammar {
  readonly bodies: Expression[] = [];
  /** Names of rules for errors. */
  readonly names = new Map<number, string>();
  #expressions = 0;

  /** Reserves a rule, so that other rules can refer to it before it is defined. */
  declare(name?: string): number {
    const rule = this.bodies.push(choice()) - 1;
    checkLimit("the number of rules", rule, LIMITS.expressions);
    if (name !== undefined) this.names.set(rule, name);
    return rule;
  }

  define(rule: number, body: Expression): void {
    this.#expressions += Math.ceil(sizeOf(body));
    checkLimit("the number of expressions", this.#expressions, LIMITS.expressions);
    this.bodies[rule] = body;
  }

  /** Adds a rule and returns a reference to it. */
  rule(body: Expression): Expression {
    const rule = this.declare();
    this.define(rule, body);
    return { kind: "rule", rule };
  }

  /** Adds a rule that refers to itself: `make` receives the reference and returns the body. */
  recursive(make: (self: Expression) => Expression): Expression {
    const rule = this.declare();
    const self: Expression = { kind: "rule", rule };
    this.define(rule, make(self));
    return self;
  }
}

function sizeOf(expression: Expression): number {
  switch (expression.kind) {
    case "text":
      return 1 + expression.text.length / 16;
    case "automaton":
      return 1 + expression.texts.next.length / 64;
    case "sequence":
      return expression.items.reduce((sum, item) => sum + sizeOf(item), 1);
    case "choice":
      return expression.options.reduce((sum, option) => sum + sizeOf(option), 1);
    case "rule":
      return 1;
  }
}

/** Returns the rules that an expression refers to. */
export function rulesOf(expression: Expression): number[] {
  switch (expression.kind) {
    case "rule":
      return [expression.rule];
    case "sequence":
      return expression.items.flatMap(rulesOf);
    case "choice":
      return expression.options.flatMap(rulesOf);
    default:
      return [];
  }
}

/**
 * Returns the smallest set of rules for which a bottom-up property holds: it holds for a sequence
 * if it holds for all items, and for a choice if it holds for one option. Linear in the grammar's
 * size.
 *
 * @param holds decides for literals and automata
 */
export function rulesWhere(
  grammar: Grammar,
  holds: (leaf: Expression) => boolean,
): ReadonlySet<number> {
  const known = new Set<number>();
  const uses = new Map<number, Part[]>();
  const met: Part[] = [];
  const add = (expression: Expression, parent: Part | undefined, rule: number) => {
    const part = { parent, rule, lacking: 1 };
    switch (expression.kind) {
      case "rule": {
        const list = uses.get(expression.rule);
        if (list === undefined) uses.set(expression.rule, [part]);
        else list.push(part);
        break;
      }
      case "sequence":
        part.lacking = expression.items.length;
        if (part.lacking === 0) met.push(part);
        for (const item of expression.items) add(item, part, rule);
        break;
      case "choice":
        for (const option of expression.options) add(option, part, rule);
        break;
      default:
        if (holds(expression)) met.push(part);
    }
  };
  grammar.bodies.forEach((body, rule) => add(body, undefined, rule));
  for (let part = met.pop(); part !== undefined; part = met.pop()) {
    const { parent, rule } = part;
    if (parent !== undefined) {
      if (--parent.lacking === 0) met.push(parent);
    } else if (!known.has(rule)) {
      known.add(rule);
      for (const use of uses.get(rule) ?? []) met.push(use);
    }
  }
  return known;
}

/** A part of a rule's body, and the number of its own parts that still have to hold. */
interface Part {
  readonly parent: Part | undefined;
  readonly rule: number;
  lacking: number;
}
