/**
 * Users' grammars: EBNF as XML's specification and GBNF write it.
 *
 * ```
 * root   ::= "Dear " name ", " ("hi" | "hello") "!"?   # a comment
 * name   ::= [A-Z] [a-z]{1,15}
 * ```
 */
import { ForgeError } from "../errors.ts";
import { quote } from "../formats/quote.ts";
import type { Regex } from "./automata/regex.ts";
import { matching } from "./automata/regex_automaton.ts";
import { EbnfLexer } from "./ebnf_lexer.ts";
import {
  automaton,
  choice,
  type Expression,
  type Grammar,
  NOTHING,
  optional,
  sequence,
  text,
} from "./grammar.ts";
import { checkLimit, LIMITS } from "./limits.ts";

/** A part of a rule; what refers to no other rule is a regular expression. */
type Part =
  | { readonly kind: "regular"; readonly regex: Regex }
  | { readonly kind: "reference"; readonly name: string; readonly line: number }
  | { readonly kind: "sequence"; readonly parts: readonly Part[] }
  | { readonly kind: "choice"; readonly parts: readonly Part[] }
  | { readonly kind: "repeat"; readonly body: Part; readonly min: number; readonly max: number };

/**
 * Adds the rules of a grammar in EBNF; the text is what the rule `root` describes.
 *
 * @throws {ForgeError} `usage` for what is not well-formed, with its line; for rules that are not
 * defined or defined twice, by name
 */
export function compileEbnf(grammar: Grammar, source: string): Expression {
  checkLimit("the length of the grammar", source.length, LIMITS.sourceLength);
  const rules = new EbnfParser(source).rules();
  const ids = new Map<string, number>();
  for (const name of rules.keys()) ids.set(name, grammar.declare(name));
  for (const [name, part] of rules) grammar.define(ids.get(name)!, lower(grammar, part, ids));
  const root = ids.get("root");
  if (root === undefined) throw new ForgeError("usage", "the grammar has no rule root");
  return { kind: "rule", rule: root };
}

function lower(grammar: Grammar, part: Part, ids: ReadonlyMap<string, number>): Expression {
  switch (part.kind) {
    case "regular": {
      const literal = literalOf(part.regex);
      return literal === undefined ? automaton(matching(part.regex)) : text(literal);
    }
    case "reference": {
      const rule = ids.get(part.name);
      if (rule !== undefined) return { kind: "rule", rule };
      throw new ForgeError(
        "usage",
        `the grammar's rule ${quote(part.name)}, used in line ${part.line}, is not defined`,
      );
    }
    case "sequence":
      return sequence(...part.parts.map((inner) => lower(grammar, inner, ids)));
    case "choice":
      return choice(...part.parts.map((inner) => lower(grammar, inner, ids)));
    case "repeat": {
      const body = grammar.rule(lower(grammar, part.body, ids));
      let following = NOTHING;
      if (part.max === Infinity) {
        following = grammar.recursive((self) => optional(sequence(body, self)));
      } else {
        for (let i = part.min; i < part.max; i++) {
          following = grammar.rule(optional(sequence(body, following)));
        }
      }
      for (let i = 0; i < part.min; i++) following = grammar.rule(sequence(body, following));
      return following;
    }
  }
}

/** The one text that an expression matches, if it is written out. */
function literalOf(regex: Regex): string | undefined {
  if (regex.kind === "set") {
    const [low, high] = regex.set;
    return regex.set.length === 2 && low === high ? String.fromCodePoint(low!) : undefined;
  }
  if (regex.kind !== "sequence") return undefined;
  const parts = regex.items.map(literalOf);
  return parts.includes(undefined) ? undefined : parts.join("");
}

class EbnfParser {
  readonly #lexer: EbnfLexer;
  #depth = 0;

  constructor(source: string) {
    this.#lexer = new EbnfLexer(source);
  }

  rules(): Map<string, Part> {
    const rules = new Map<string, Part>();
    while (!this.#lexer.atEnd) {
      const name = this.#lexer.ruleName();
      if (rules.has(name)) throw this.#lexer.error(`defines the rule ${quote(name)} again`);
      rules.set(name, this.#choice());
    }
    return rules;
  }

  #choice(): Part {
    checkLimit("the nesting of the grammar", ++this.#depth, LIMITS.depth);
    const options = [this.#sequence()];
    while (this.#lexer.accept("|")) options.push(this.#sequence());
    this.#depth--;
    return joined("choice", options);
  }

  #sequence(): Part {
    const parts: Part[] = [];
    for (let part = this.#item(); part !== undefined; part = this.#item()) parts.push(part);
    if (parts.length === 0) {
      throw this.#lexer.error(`has nothing where a part is expected; "" is one`);
    }
    return joined("sequence", parts);
  }

  /** One part with what repeats it; `undefined` where a sequence ends. */
  #item(): Part | undefined {
    const atom = this.#atom();
    if (atom === undefined) return undefined;
    const counts = this.#lexer.counts();
    if (counts === undefined) return atom;
    const [min, max] = counts;
    checkLimit("a repeat count of the grammar", max === Infinity ? min : max, LIMITS.positions);
    if (atom.kind === "regular") {
      return { kind: "regular", regex: { kind: "repeat", body: atom.regex, min, max } };
    }
    return { kind: "repeat", body: atom, min, max };
  }

  #atom(): Part | undefined {
    const lexer = this.#lexer;
    const regex = lexer.terminal();
    if (regex !== undefined) return { kind: "regular", regex };
    if (lexer.accept("(")) {
      const inner = this.#choice();
      if (!lexer.accept(")")) throw lexer.error(`lacks a ")"`);
      return inner;
    }
    const line = lexer.line;
    const name = lexer.reference();
    return name === undefined ? undefined : { kind: "reference", name, line };
  }
}

function joined(kind: "sequence" | "choice", parts: readonly Part[]): Part {
  if (parts.length === 1) return parts[0]!;
  const regular = parts.flatMap((part) => part.kind === "regular" ? [part.regex] : []);
  if (regular.length < parts.length) return { kind, parts };
  return {
    kind: "regular",
    regex: kind === "sequence" ? { kind, items: regular } : { kind, options: regular },
  };
}
