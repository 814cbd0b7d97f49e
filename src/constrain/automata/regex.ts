import { ForgeError } from "../../errors.ts";
import { quote } from "../../formats/quote.ts";
import {
  ALL,
  type CharSet,
  charSet,
  charsOf,
  complement,
  difference,
  MAX_CODE_POINT,
  pairs,
} from "./char_set.ts";
import { checkLimit, countSteps, LIMITS } from "../limits.ts";

/** A parsed regular expression. Groups are resolved; lazy repeats are the same as greedy ones. */
export type Regex =
  | { readonly kind: "set"; readonly set: CharSet }
  /** `^` or `$`: the start or the end of the text. */
  | { readonly kind: "edge"; readonly at: "start" | "end" }
  | { readonly kind: "sequence"; readonly items: readonly Regex[] }
  | { readonly kind: "choice"; readonly options: readonly Regex[] }
  | {
    readonly kind: "repeat";
    readonly body: Regex;
    readonly min: number;
    /** `Infinity` for no limit. */
    readonly max: number;
  };

/** Concatenation; the empty text for no items. */
export function sequence(...items: Regex[]): Regex {
  return items.length === 1 ? items[0]! : { kind: "sequence", items };
}

/** Alternation; matches no text for no options. */
function choice(...options: Regex[]): Regex {
  return options.length === 1 ? options[0]! : { kind: "choice", options };
}

/** Repeats `min` to `max` times; `Infinity` for no limit. */
export function repeat(body: Regex, min: number, max: number): Regex {
  return { kind: "repeat", body, min, max };
}

/** Matches one character of a set. */
export function set(chars: CharSet): Regex {
  return { kind: "set", set: chars };
}

/**
 * Parses a regular expression in JavaScript's syntax with the `u` flag. JavaScript's own engine
 * checks the syntax and computes the members of class escapes such as `\w` and `\p{L}`, so that
 * both always agree with it. This parser reads the structure.
 *
 * @param what names the pattern in errors: "the regex", "pattern at /properties/a"
 * @throws {ForgeError} `usage` for an invalid pattern; `unsupported` for constructs that no
 * automaton can match (look-around, back-references) and for word boundaries and flags, by name
 */
export function parseRegex(pattern: string, what: string): Regex {
  checkLimit(`the length of ${what}`, pattern.length, LIMITS.patternLength);
  try {
    new RegExp(pattern, "u");
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new ForgeError(
      "usage",
      `${what} ${quote(pattern)} is not valid: ${reason.replace(/\p{Cc}/gu, " ")}`,
    );
  }
  return new Parser(pattern, what).parse();
}

const DOT = difference(ALL, charsOf("\n\r\u2028\u2029"));

const CONTROLS: Readonly<Record<string, number>> = { t: 9, n: 10, v: 11, f: 12, r: 13, "0": 0 };

/** Reads a pattern that JavaScript has accepted. */
class Parser {
  readonly #pattern: string;
  readonly #chars: readonly string[];
  readonly #what: string;
  #at = 0;
  #depth = 0;
  #properties = 0;

  constructor(pattern: string, what: string) {
    this.#pattern = pattern;
    this.#chars = Array.from(pattern);
    this.#what = what;
  }

  parse(): Regex {
    return this.#choice();
  }

  #peek(ahead = 0): string {
    return this.#chars[this.#at + ahead] ?? "";
  }

  #accept(text: string): boolean {
    const found = this.#chars.slice(this.#at, this.#at + text.length).join("");
    if (found !== text) return false;
    this.#at += text.length;
    return true;
  }

  #unsupported(feature: string): ForgeError {
    return new ForgeError(
      "unsupported",
      `${this.#what} ${quote(this.#pattern)} has ${feature}, which cannot be enforced`,
    );
  }

  #choice(): Regex {
    checkLimit(`the nesting of ${this.#what}`, ++this.#depth, LIMITS.depth);
    const options = [this.#sequence()];
    while (this.#accept("|")) options.push(this.#sequence());
    this.#depth--;
    return choice(...options);
  }

  #sequence(): Regex {
    const items: Regex[] = [];
    while (this.#at < this.#chars.length && this.#peek() !== "|" && this.#peek() !== ")") {
      items.push(this.#repeats(this.#atom()));
    }
    return sequence(...items);
  }

  #repeats(body: Regex): Regex {
    const counts = this.#counts();
    if (counts === undefined) return body;
    this.#accept("?"); // a lazy repeat matches the same texts
    const [min, max] = counts;
    checkLimit(`a repeat count of ${this.#what}`, max === Infinity ? min : max, LIMITS.positions);
    return repeat(body, min, max);
  }

  #counts(): [number, number] | undefined {
    if (this.#accept("*")) return [0, Infinity];
    if (this.#accept("+")) return [1, Infinity];
    if (this.#accept("?")) return [0, 1];
    if (!this.#accept("{")) return undefined;
    const [, low = "", comma, high = ""] = /^(\d+)(,?)(\d*)$/.exec(this.#until("}")) ?? [];
    return [Number(low), comma === "" ? Number(low) : high === "" ? Infinity : Number(high)];
  }

  /** Consumes everything up to and including `end`; returns the text before `end`. */
  #until(end: string): string {
    let text = "";
    while (!this.#accept(end)) text += this.#chars[this.#at++];
    return text;
  }

  #atom(): Regex {
    const character = this.#chars[this.#at++]!;
    switch (character) {
      case "(":
        return this.#group();
      case "[":
        return set(this.#class());
      case ".":
        return set(DOT);
      case "^":
        return { kind: "edge", at: "start" };
      case "$":
        return { kind: "edge", at: "end" };
      case "\\":
        return set(this.#escape());
    }
    return set(charsOf(character));
  }

  #group(): Regex {
    if (this.#accept("?")) {
      if (this.#peek() === "=" || this.#peek() === "!") throw this.#unsupported("a lookahead");
      if (this.#accept("<")) {
        if (this.#peek() === "=" || this.#peek() === "!") throw this.#unsupported("a lookbehind");
        this.#until(">");
      } else if (!this.#accept(":")) throw this.#unsupported("flags inside a group");
    }
    const body = this.#choice();
    this.#accept(")");
    return body;
  }

  /** Reads a class after its "[". */
  #class(): CharSet {
    const negated = this.#accept("^");
    const ranges: [number, number][] = [];
    while (!this.#accept("]")) {
      const low = this.#member();
      const isRange = this.#peek() === "-" && this.#peek(1) !== "]";
      if (isRange) this.#at++;
      // JavaScript has checked that both ends of a range are single characters in order.
      if (isRange) ranges.push([low[0]!, this.#member()[0]!]);
      else ranges.push(...pairs(low));
    }
    const members = charSet(ranges);
    return negated ? complement(members) : members;
  }

  #member(): CharSet {
    const character = this.#chars[this.#at++]!;
    if (character !== "\\") return charsOf(character);
    return this.#accept("b") ? charsOf("\b") : this.#escape();
  }

  /** Reads an escape after its backslash. */
  #escape(): CharSet {
    const letter = this.#chars[this.#at++]!;
    if (letter === "b" || letter === "B") throw this.#unsupported(`a word boundary (\\${letter})`);
    if (letter === "k" || /[1-9]/.test(letter)) throw this.#unsupported("a back-reference");
    if (/[dDsSwW]/.test(letter)) return evaluateEscape(`\\${letter}`);
    if (letter === "p" || letter === "P") {
      this.#accept("{");
      return this.#property(letter, this.#until("}"));
    }
    const control = CONTROLS[letter];
    if (control !== undefined) return charSet([[control, control]]);
    if (letter === "c") return charSet(same(this.#chars[this.#at++]!.charCodeAt(0) % 32));
    if (letter === "x") return charSet(same(this.#hexadecimal(2)));
    if (letter === "u") return charSet(same(this.#unicodeEscape()));
    return charsOf(letter);
  }

  #property(letter: string, name: string): CharSet {
    checkLimit(`the number of unicode properties of ${this.#what}`, ++this.#properties, 32);
    return evaluateEscape(`\\${letter}{${name}}`);
  }

  #hexadecimal(digits: number): number {
    const text = this.#chars.slice(this.#at, this.#at += digits).join("");
    return parseInt(text, 16);
  }

  #unicodeEscape(): number {
    if (this.#accept("{")) return this.#scalar(parseInt(this.#until("}"), 16));
    const unit = this.#hexadecimal(4);
    const isPair = unit >= 0xd800 && unit < 0xdc00 && this.#peek() === "\\" &&
      this.#peek(1) === "u" && this.#peek(2) !== "{";
    if (!isPair) return this.#scalar(unit);
    this.#at += 2;
    const low = this.#hexadecimal(4);
    if (low < 0xdc00 || low >= 0xe000) return this.#scalar(unit);
    return 0x10000 + ((unit - 0xd800) << 10) + low - 0xdc00;
  }

  #scalar(codePoint: number): number {
    if (codePoint >= 0xd800 && codePoint < 0xe000) throw this.#unsupported("half a surrogate pair");
    return codePoint;
  }
}

function same(codePoint: number): [number, number][] {
  return [[codePoint, codePoint]];
}

const evaluated = new Map<string, CharSet>();

/** Returns the members of a class escape, by matching it against every Unicode character. */
function evaluateEscape(source: string): CharSet {
  const known = evaluated.get(source);
  if (known !== undefined) return known;
  countSteps(MAX_CODE_POINT);
  const runs = new RegExp(`${source}+`, "gu");
  const ranges: [number, number][] = [];
  for (let start = 0; start <= MAX_CODE_POINT; start += 0x800) {
    if (start === 0xd800) continue; // surrogates
    const text = String.fromCodePoint(...Array.from({ length: 0x800 }, (_, i) => start + i));
    for (const { 0: run, index } of text.matchAll(runs)) {
      const unit = start < 0x10000 ? 1 : 2;
      ranges.push([start + index / unit, start + (index + run.length) / unit - 1]);
    }
  }
  const found = charSet(ranges);
  evaluated.set(source, found);
  return found;
}
