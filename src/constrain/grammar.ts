/**
 * Context-free grammars, the one form that schemas, patterns and users' grammars become before the
 * engine compiles them.
 */
import { type Automaton, edges, stateCount } from "./automata/automaton.ts";
import { type ByteNode, byteTree } from "./automata/byte_tree.ts";
import type { CharSet } from "./automata/char_set.ts";
import { checkLimit, LIMITS } from "./limits.ts";

export type Expression =
  | { readonly kind: "text"; readonly text: string }
  /** One byte in some ranges `[low, high, …]`, which may be a part of a character. */
  | { readonly kind: "bytes"; readonly ranges: readonly number[] }
  | { readonly kind: "sequence"; readonly items: readonly Expression[] }
  | { readonly kind: "choice"; readonly options: readonly Expression[] }
  | { readonly kind: "rule"; readonly rule: number };

export function text(value: string): Expression {
  return { kind: "text", text: value };
}

export const NOTHING: Expression = text("");

export function sequence(...items: Expression[]): Expression {
  const kept = items.filter((item) => item.kind !== "text" || item.text !== "");
  return kept.length === 1 ? kept[0]! : { kind: "sequence", items: kept };
}

export function choice(...options: Expression[]): Expression {
  return options.length === 1 ? options[0]! : { kind: "choice", options };
}

export function optional(body: Expression): Expression {
  return choice(NOTHING, body);
}

/** The rules of a grammar as they are made. A choice of nothing accepts no text at all. */
export class Grammar {
  readonly bodies: Expression[] = [];
  /** What errors call a rule that its author has named. */
  readonly names = new Map<number, string>();
  #expressions = 0;

  /** Reserves a rule, so that others can refer to it before it is defined. */
  declare(name?: string): number {
    const rule = this.bodies.push(choice()) - 1;
    checkLimit("the number of rules", rule, LIMITS.expressions);
    if (name !== undefined) this.names.set(rule, name);
    return rule;
  }

  define(rule: number, body: Expression): void {
    this.#expressions += sizeOf(body);
    checkLimit("the number of expressions", this.#expressions, LIMITS.expressions);
    this.bodies[rule] = body;
  }

  /** A new rule of that body. */
  rule(body: Expression): Expression {
    const rule = this.declare();
    this.define(rule, body);
    return { kind: "rule", rule };
  }

  /** A rule that refers to itself: `make` gets the reference and returns the body. */
  recursive(make: (self: Expression) => Expression): Expression {
    const rule = this.declare();
    const self: Expression = { kind: "rule", rule };
    this.define(rule, make(self));
    return self;
  }

  /**
   * Rules for the texts of an automaton, at least one a state.
   *
   * @param spell how characters appear in the text, by default as themselves
   * @param end what follows the text
   */
  automaton(a: Automaton, spell: Spelling = asThemselves, end: Expression = NOTHING): Expression {
    if (a.start === 0) return choice();
    const rules = Array.from({ length: stateCount(a) }, (_, i) => i === 0 ? 0 : this.declare());
    const tails = new Map<string, Expression>();
    for (let state = 1; state < rules.length; state++) {
      const options: Expression[] = [];
      const plain: [CharSet, number][] = [];
      for (const [target, set] of edges(a, state)) {
        const spelled = spell(set);
        plain.push([spelled.plain, rules[target]!]);
        const after: Expression = { kind: "rule", rule: rules[target]! };
        options.push(...spelled.escaped.map((expression) => sequence(expression, after)));
      }
      options.unshift(...this.#bytes(byteTree(plain), tails));
      if (a.accepting[state] === 1) options.push(end);
      this.define(rules[state]!, choice(...options));
    }
    return { kind: "rule", rule: rules[a.start]! };
  }

  /**
   * The ways on from a node of a byte tree: written out while they are few, which the engine compiles
   * twice as fast, else through rules that equal subtrees share by way of `tails`.
   */
  #bytes(node: ByteNode, tails: Map<string, Expression>): Expression[] {
    const inline = pathCount(node) <= MOST_PATHS;
    return node.edges.flatMap(({ ranges, child }) => {
      const byte: Expression = { kind: "bytes", ranges };
      if (typeof child === "number") return [sequence(byte, { kind: "rule", rule: child })];
      const following = inline ? this.#bytes(child, tails) : [this.#tail(child, tails)];
      return following.map((expression) =>
        expression.kind === "sequence"
          ? sequence(byte, ...expression.items)
          : sequence(byte, expression)
      );
    });
  }

  #tail(node: ByteNode, tails: Map<string, Expression>): Expression {
    const known = tails.get(node.key);
    if (known !== undefined) return known;
    const made = this.rule(choice(...this.#bytes(node, tails)));
    tails.set(node.key, made);
    return made;
  }
}

const MOST_PATHS = 16;

/** How many ways there are from a node to the ends of its characters. */
function pathCount(node: ByteNode): number {
  return node.edges.reduce(
    (sum, { child }) => sum + (typeof child === "number" ? 1 : pathCount(child)),
    0,
  );
}

/** How a set of characters is written: some as themselves, others in another way. */
export interface Spelled {
  readonly plain: CharSet;
  readonly escaped: readonly Expression[];
}

export type Spelling = (set: CharSet) => Spelled;

const asThemselves: Spelling = (set) => ({ plain: set, escaped: [] });

function sizeOf(expression: Expression): number {
  switch (expression.kind) {
    case "text":
      return 1 + expression.text.length / 16;
    case "bytes":
      return 1 + expression.ranges.length / 16;
    case "sequence":
      return expression.items.reduce((sum, item) => sum + sizeOf(item), 1);
    case "choice":
      return expression.options.reduce((sum, option) => sum + sizeOf(option), 1);
    case "rule":
      return 1;
  }
}

/** The rules an expression refers to. */
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
 * The rules for which something holds that follows from the rules they refer to: the smallest set that
 * `holds` confirms.
 */
export function rulesWhere(
  grammar: Grammar,
  holds: (body: Expression, known: ReadonlySet<number>) => boolean,
): ReadonlySet<number> {
  const users = new Map<number, number[]>();
  grammar.bodies.forEach((body, rule) => {
    for (const used of new Set(rulesOf(body))) {
      const list = users.get(used);
      if (list === undefined) users.set(used, [rule]);
      else list.push(rule);
    }
  });
  const known = new Set<number>();
  const waiting = grammar.bodies.map((_, rule) => rule);
  for (let rule = waiting.pop(); rule !== undefined; rule = waiting.pop()) {
    if (known.has(rule) || !holds(grammar.bodies[rule]!, known)) continue;
    known.add(rule);
    for (const user of users.get(rule) ?? []) waiting.push(user);
  }
  return known;
}
