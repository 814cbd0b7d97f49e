/**
 * User-written grammars in EBNF, in the notation of the XML specification and GBNF.
 *
 * ```
 * root   ::= "Dear " name ", " ("hi" | "hello") "!"?   # a comment
 * name   ::= [A-Z] [a-z]{1,15}
 * ```
 */
import { ForgeError } from "../../errors.ts";
import { quote } from "../../formats/quote.ts";
import type { Regex } from "../automata/regex.ts";
import { matching } from "../automata/regex_automaton.ts";
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
import { checkLimit, LIMITS } from "../limits.ts";
import { ALL, charSet, charsOf, complement } from "../automata/char_set.ts";

const ESCAPES: Readonly<Record<string, string>> = { n: "\n", r: "\r", t: "\t" };
const HEX_DIGITS: Readonly<Record<string, number>> = { x: 2, u: 4, U: 8 };

/** Reads the tokens of a grammar; skips white space and comments. */
class EbnfLexer {
  readonly #chars: readonly string[];
  #at = 0;
  /** Position up to which lines were counted, and its line. */
  #counted = { at: 0, line: 1 };

  constructor(source: string) {
    this.#chars = Array.from(source.toWellFormed());
    this.#skip();
  }

  get atEnd(): boolean {
    return this.#at === this.#chars.length;
  }

  /** The current line number, from 1. */
  get line(): number {
    // Every reference asks for its line, so counting continues from the last position.
    let { at, line } = this.#counted;
    for (; at < this.#at; at++) if (this.#chars[at] === "\n") line++;
    this.#counted = { at, line };
    return line;
  }

  error(problem: string): ForgeError {
    return new ForgeError("usage", `line ${this.line} of the grammar ${problem}`);
  }

  accept(text: string): boolean {
    if (!this.#startsWith(text)) return false;
    this.#at += text.length;
    this.#skip();
    return true;
  }

  /** Reads a rule's name and "::=". */
  ruleName(): string {
    const name = this.#name();
    if (name === "") {
      throw this.error(`has ${quote(this.#peek())} where a rule is expected: name ::= …`);
    }
    if (!this.accept("::=")) throw this.error(`lacks "::=" after ${quote(name)}`);
    return name;
  }

  /**
   * Reads the name of a rule in a rule's body; returns `undefined` before the next definition.
   */
  reference(): string | undefined {
    const before = this.#at;
    const name = this.#name();
    if (name === "" || this.#startsWith("::=")) {
      this.#at = before;
      return undefined;
    }
    return name;
  }

  /** Reads a string, a class or ".". */
  terminal(): Regex | undefined {
    const character = this.#peek();
    if (character === '"' || character === "'") {
      this.#at++;
      return this.#string(character);
    }
    if (this.accept(".")) return { kind: "set", set: ALL };
    if (character !== "[") return undefined;
    this.#at++;
    return this.#class();
  }

  /** Reads a repeat count: `*`, `+`, `?` or `{n,m}`. */
  counts(): [number, number] | undefined {
    if (this.accept("*")) return [0, Infinity];
    if (this.accept("+")) return [1, Infinity];
    if (this.accept("?")) return [0, 1];
    if (!this.accept("{")) return undefined;
    let inside = "";
    while (!this.atEnd && this.#peek() !== "}") inside += this.#chars[this.#at++];
    const [, low, comma, high] = /^\s*(\d+)\s*(,?)\s*(\d*)\s*$/.exec(inside) ?? [];
    if (!this.accept("}") || low === undefined) {
      throw this.error(`has ${quote(`{${inside}`)}; valid is {n}, {n,} or {n,m}`);
    }
    const min = Number(low);
    const max = comma === "" ? min : high === "" ? Infinity : Number(high);
    if (min > max) throw this.error(`counts down in {${inside}}`);
    return [min, max];
  }

  #string(end: string): Regex {
    const items: Regex[] = [];
    while (this.#peek() !== end) {
      items.push({ kind: "set", set: charsOf(this.#character("a string")) });
    }
    this.#at++;
    this.#skip();
    return { kind: "sequence", items };
  }

  #class(): Regex {
    const negated = this.#peek() === "^";
    if (negated) this.#at++;
    const ranges: [number, number][] = [];
    while (this.#peek() !== "]") {
      const low = this.#character("a class").codePointAt(0)!;
      const isRange = this.#peek() === "-" && this.#chars[this.#at + 1] !== "]";
      if (isRange) this.#at++;
      const high = isRange ? this.#character("a class").codePointAt(0)! : low;
      if (low > high) throw this.error("has a class with a range that counts down");
      ranges.push([low, high]);
    }
    this.#at++;
    this.#skip();
    const set = charSet(ranges);
    return { kind: "set", set: negated ? complement(set) : set };
  }

  #character(what: string): string {
    const character = this.#chars[this.#at++];
    if (character === undefined || character === "\n") {
      this.#at--;
      throw this.error(`has ${what} without end`);
    }
    if (character !== "\\") return character;
    const letter = this.#chars[this.#at++] ?? "";
    const digits = HEX_DIGITS[letter];
    if (digits !== undefined) return this.#hexadecimal(letter, digits);
    if (ESCAPES[letter] !== undefined) return ESCAPES[letter];
    if (/[A-Za-z0-9]/.test(letter) || letter === "") {
      throw this.error(
        `has the escape ${quote(`\\${letter}`)}; valid is \\n \\r \\t \\xHH \\uHHHH ` +
          "\\UHHHHHHHH and a backslash before a character that is not a letter",
      );
    }
    return letter;
  }

  #hexadecimal(letter: string, digits: number): string {
    const text = this.#chars.slice(this.#at, this.#at += digits).join("");
    const code = /^[0-9A-Fa-f]+$/.test(text) && text.length === digits ? parseInt(text, 16) : -1;
    if (code < 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
      throw this.error(`has the escape ${quote(`\\${letter}${text}`)}, which is not a character`);
    }
    return String.fromCodePoint(code);
  }

  #name(): string {
    let name = "";
    while (/[A-Za-z0-9_.-]/.test(this.#peek()) && (name !== "" || /[A-Za-z_]/.test(this.#peek()))) {
      name += this.#chars[this.#at++];
    }
    this.#skip();
    return name;
  }

  #peek(): string {
    return this.#chars[this.#at] ?? "";
  }

  #startsWith(text: string): boolean {
    for (let i = 0; i < text.length; i++) if (this.#chars[this.#at + i] !== text[i]) return false;
    return true;
  }

  #skip(): void {
    for (;;) {
      while (/^\s$/.test(this.#peek())) this.#at++;
      if (this.#peek() !== "#") return;
      while (!this.atEnd && this.#peek() !== "\n") this.#at++;
    }
  }
}

/** A part of a rule. Parts without references are regular expressions. */
type Part =
  | { readonly kind: "regular"; readonly regex: Regex }
  | { readonly kind: "reference"; readonly name: string; readonly line: number }
  | { readonly kind: "sequence"; readonly parts: readonly Part[] }
  | { readonly kind: "choice"; readonly parts: readonly Part[] }
  | { readonly kind: "repeat"; readonly body: Part; readonly min: number; readonly max: number };

/**
 * Compiles a grammar in EBNF and returns its `root`.
 *
 * @throws {ForgeError} `usage` for a syntax error, with its line, and for undefined or duplicate
 * rules, by name
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

/** Returns the only text that an expression matches, if it is a literal. */
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

  /** Reads one part with its repeat count; returns `undefined` at the end of a sequence. */
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
