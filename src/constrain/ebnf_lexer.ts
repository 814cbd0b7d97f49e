import { ForgeError } from "../errors.ts";
import { quote } from "../formats/quote.ts";
import { ALL, charSet, charsOf, complement } from "./automata/char_set.ts";
import type { Regex } from "./automata/regex.ts";

const ESCAPES: Readonly<Record<string, string>> = { n: "\n", r: "\r", t: "\t" };
const HEX_DIGITS: Readonly<Record<string, number>> = { x: 2, u: 4, U: 8 };

/** Reads the tokens of a grammar, past white space and comments. */
export class EbnfLexer {
  readonly #chars: readonly string[];
  #at = 0;
  /** A place that was asked about, and its line. */
  #counted = { at: 0, line: 1 };

  constructor(source: string) {
    this.#chars = Array.from(source.toWellFormed());
    this.#skip();
  }

  get atEnd(): boolean {
    return this.#at === this.#chars.length;
  }

  /** The number of the line that is being read, from 1. */
  get line(): number {
    // Every reference has its line: characters that were counted before are not counted again.
    let { at, line } = this.#counted;
    if (at > this.#at) [at, line] = [0, 1];
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

  /** A rule's name and the "::=" behind it. */
  ruleName(): string {
    const name = this.#name();
    if (name === "") {
      throw this.error(`has ${quote(this.#peek())} where a rule is expected: name ::= …`);
    }
    if (!this.accept("::=")) throw this.error(`lacks "::=" behind ${quote(name)}`);
    return name;
  }

  /** The name of a rule that is used here, not defined. */
  reference(): string | undefined {
    const before = this.#at;
    const name = this.#name();
    if (name === "" || this.#startsWith("::=")) {
      this.#at = before;
      return undefined;
    }
    return name;
  }

  /** A string, a class or ".". */
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

  /** How often what stands before is repeated. */
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
          "\\UHHHHHHHH and a backslash before what is no letter",
      );
    }
    return letter;
  }

  #hexadecimal(letter: string, digits: number): string {
    const text = this.#chars.slice(this.#at, this.#at += digits).join("");
    const code = /^[0-9A-Fa-f]+$/.test(text) && text.length === digits ? parseInt(text, 16) : -1;
    if (code < 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
      throw this.error(`has the escape ${quote(`\\${letter}${text}`)}, which is no character`);
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
