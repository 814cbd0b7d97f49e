import { type CharSet, complement, type Node, type SetItem, singleton } from "./ast.ts";
import { classEscape, posixClass, unicodeProperty } from "./char_classes.ts";

/** A pattern that is not valid, or uses what JavaScript cannot express. */
export class PatternError extends Error {}

/** Groups and classes nested deeper than this are refused before they exhaust the stack. */
const DEEPEST_NESTING = 100;

/** Oniguruma's own limit of a repeat count. */
const LARGEST_COUNT = 100_000;

/**
 * Parses a regular expression in the syntax of Oniguruma (Ruby) and of Rust's `regex`, where they
 * agree: what `tokenizer.json` holds. Groups do not capture; back-references are refused.
 *
 * @throws PatternError
 */
export function parsePattern(pattern: string): Node {
  return new Parser(pattern).parse();
}

class Parser {
  readonly #units: string[];
  #at = 0;
  #depth = 0;

  constructor(pattern: string) {
    this.#units = [...pattern];
  }

  parse(): Node {
    const node = this.#choice();
    if (this.#at < this.#units.length) throw new PatternError(`unmatched "${this.#peek()}"`);
    return node;
  }

  #peek(ahead = 0): string {
    return this.#units[this.#at + ahead] ?? "";
  }

  #next(): string {
    const unit = this.#units[this.#at++];
    if (unit === undefined) throw new PatternError("unexpected end of pattern");
    return unit;
  }

  #accept(text: string): boolean {
    if (!this.#startsWith(text)) return false;
    this.#at += text.length;
    return true;
  }

  #startsWith(text: string): boolean {
    for (let i = 0; i < text.length; i++) if (this.#peek(i) !== text[i]) return false;
    return true;
  }

  #until(close: string): string {
    let text = "";
    while (!this.#accept(close)) text += this.#next();
    return text;
  }

  #nested<T>(parse: () => T): T {
    if (++this.#depth > DEEPEST_NESTING) {
      throw new PatternError(`nested deeper than ${DEEPEST_NESTING} levels`);
    }
    const result = parse();
    this.#depth--;
    return result;
  }

  #choice(): Node {
    const options = [this.#sequence()];
    while (this.#accept("|")) options.push(this.#sequence());
    return options.length === 1 && options[0] ? options[0] : { kind: "choice", options };
  }

  #sequence(): Node {
    const items: Node[] = [];
    while (this.#at < this.#units.length && this.#peek() !== "|" && this.#peek() !== ")") {
      const atom = this.#atom();
      if (atom) items.push(this.#quantified(atom));
    }
    return items.length === 1 && items[0] ? items[0] : { kind: "sequence", items };
  }

  #quantified(atom: Node): Node {
    let node = atom;
    let stacked = false;
    for (let quantifier = this.#quantifier(); quantifier; quantifier = this.#quantifier()) {
      const { min, max, braces } = quantifier;
      if (node.kind === "anchor" || node.kind === "look") {
        throw new PatternError("a quantifier after an assertion");
      }
      const lazy = this.#accept("?");
      if (lazy && braces && min === max) throw new PatternError(`"{${min}}?" has no one meaning`);
      node = (stacked && joined(node, min, max, lazy)) ||
        { kind: "repeat", body: node, min, max, lazy };
      stacked = true;
      // After braces a "+" is one more quantifier; after "*", "+" and "?" it is possessive.
      if (!lazy && !braces && this.#accept("+")) node = { kind: "atomic", body: node };
    }
    return node;
  }

  #quantifier(): { min: number; max: number; braces: boolean } | undefined {
    if (this.#accept("*")) return { min: 0, max: Infinity, braces: false };
    if (this.#accept("+")) return { min: 1, max: Infinity, braces: false };
    if (this.#accept("?")) return { min: 0, max: 1, braces: false };
    if (this.#peek() !== "{") return undefined;
    const close = this.#units.indexOf("}", this.#at);
    const inside = close < 0 ? "" : this.#units.slice(this.#at + 1, close).join("");
    const counts = /^(\d*)(,?)(\d*)$/.exec(inside);
    const [, low = "", comma = "", high = ""] = counts ?? [];
    if (low === "" && high === "") return undefined; // a literal brace
    this.#at = close + 1;
    const min = low === "" ? 0 : Number(low);
    const max = comma === "" ? min : high === "" ? Infinity : Number(high);
    if (min > max) throw new PatternError(`"{${inside}}" counts down`);
    if (min > LARGEST_COUNT || (max > LARGEST_COUNT && max !== Infinity)) {
      throw new PatternError(`"{${inside}}" counts above ${LARGEST_COUNT}`);
    }
    return { min, max, braces: true };
  }

  /** One atom, or `undefined` for a comment. */
  #atom(): Node | undefined {
    const unit = this.#next();
    switch (unit) {
      case "(":
        return this.#nested(() => this.#group());
      case "[":
        return { kind: "set", set: this.#nested(() => this.#class()) };
      case ".":
        return { kind: "set", set: complement(singleton(0x0a)) };
      case "^":
        return { kind: "anchor", at: "line start" };
      case "$":
        return { kind: "anchor", at: "line end" };
      case "*":
      case "+":
      case "?":
        throw new PatternError(`nothing before "${unit}" to repeat`);
      case "\\":
        return this.#escape();
    }
    return { kind: "set", set: singleton(unit.codePointAt(0) ?? 0) };
  }

  #escape(): Node {
    switch (this.#peek()) {
      case "b":
        this.#at++;
        return { kind: "anchor", at: "word boundary" };
      case "B":
        this.#at++;
        return { kind: "anchor", at: "no word boundary" };
      case "A":
        this.#at++;
        return { kind: "anchor", at: "text start" };
      case "z":
        this.#at++;
        return { kind: "anchor", at: "text end" };
      case "Z":
        this.#at++;
        return { kind: "anchor", at: "last line end" };
    }
    return { kind: "set", set: this.#setEscape() };
  }

  #group(): Node | undefined {
    if (!this.#accept("?")) return this.#groupEnd(this.#choice());
    if (this.#accept("#")) {
      this.#until(")");
      return undefined;
    }
    if (this.#accept(":")) return this.#groupEnd(this.#choice());
    if (this.#accept(">")) return this.#groupEnd({ kind: "atomic", body: this.#choice() });
    const ahead = !(this.#startsWith("<=") || this.#startsWith("<!"));
    if (!ahead) this.#at++;
    if (this.#peek() === "=" || this.#peek() === "!") {
      const negative = this.#next() === "!";
      return this.#groupEnd({ kind: "look", ahead, negative, body: this.#choice() });
    }
    if (this.#accept("P<") || this.#accept("<")) {
      this.#until(">");
      return this.#groupEnd(this.#choice());
    }
    const on = this.#accept("i");
    if (on || this.#accept("-i")) {
      // "(?i)" reaches to the end of the group around it, across alternatives.
      const scoped = this.#accept(":");
      if (!scoped && !this.#accept(")")) throw new PatternError(this.#unknownGroup());
      const node: Node = { kind: "case", ignore: on, body: this.#choice() };
      return scoped ? this.#groupEnd(node) : node;
    }
    throw new PatternError(this.#unknownGroup());
  }

  #unknownGroup(): string {
    return `the group "(?${this.#peek()}..." is not supported`;
  }

  #groupEnd(node: Node): Node {
    if (!this.#accept(")")) throw new PatternError(`"(" without ")"`);
    return node;
  }

  /** The set after a backslash, in a class or outside. */
  #setEscape(): CharSet {
    const letter = this.#next();
    const named = classEscape(letter);
    if (named) return named;
    if (letter === "p" || letter === "P") {
      const braces = this.#accept("{");
      const negated = (letter === "P") !== (braces && this.#accept("^"));
      const name = braces ? this.#until("}") : this.#next();
      const set = unicodeProperty(name);
      if (!set) throw new PatternError(`the property "\\${letter}{${name}}" is not known`);
      return negated ? complement(set) : set;
    }
    const control = CONTROLS.get(letter);
    if (control !== undefined) return singleton(control);
    if (letter === "x" || letter === "u") return singleton(this.#hexadecimal(letter));
    if (/[A-Za-z0-9]/.test(letter)) {
      throw new PatternError(`the escape "\\${letter}" is not supported`);
    }
    return singleton(letter.codePointAt(0) ?? 0);
  }

  #hexadecimal(letter: string): number {
    let digits = "";
    if (letter === "x" && this.#accept("{")) digits = this.#until("}");
    else while (digits.length < (letter === "x" ? 2 : 4)) digits += this.#next();
    const code = /^[0-9A-Fa-f]{1,6}$/.test(digits) ? parseInt(digits, 16) : Infinity;
    if (code > 0x10ffff) throw new PatternError(`"\\${letter}${digits}" is not a character`);
    return code;
  }

  /** A class after its "[". */
  #class(): CharSet {
    const negated = this.#accept("^");
    const items: SetItem[] = [];
    // A "]" that comes first is a member.
    if (this.#peek() === "]") {
      this.#at++;
      items.push({ kind: "set", set: singleton(0x5d) });
    }
    while (!this.#accept("]")) {
      if (this.#accept("&&")) {
        const and = this.#nested(() => this.#classRest());
        return { negated, items, and };
      }
      items.push(this.#classItem());
    }
    return { negated, items };
  }

  /** What follows "&&" in a class, up to and with its "]". */
  #classRest(): CharSet {
    const items: SetItem[] = [];
    while (!this.#accept("]")) {
      if (this.#accept("&&")) {
        return { negated: false, items, and: this.#nested(() => this.#classRest()) };
      }
      items.push(this.#classItem());
    }
    return { negated: false, items };
  }

  #classItem(): SetItem {
    if (this.#accept("[:")) {
      const negated = this.#accept("^");
      const name = this.#until(":]");
      const set = posixClass(name);
      if (!set) throw new PatternError(`the class "[:${name}:]" is not known`);
      return { kind: "set", set: negated ? complement(set) : set };
    }
    if (this.#accept("[")) return { kind: "set", set: this.#nested(() => this.#class()) };
    const low = this.#classMember();
    const isRange = this.#peek() === "-" && this.#peek(1) !== "]" && this.#peek(1) !== "";
    if (typeof low !== "number" || !isRange) return memberItem(low);
    this.#at++;
    const high = this.#classMember();
    if (typeof high !== "number") throw new PatternError("a range that ends in a class");
    if (low > high) throw new PatternError("a range that counts down");
    return { kind: "range", low, high };
  }

  /** One character as its code point, or a class escape. */
  #classMember(): number | CharSet {
    const unit = this.#next();
    if (unit !== "\\") return unit.codePointAt(0) ?? 0;
    if (this.#accept("b")) return 0x08;
    const set = this.#setEscape();
    const [item] = set.items;
    const single = !set.negated && set.items.length === 1 && item?.kind === "range";
    return single && item.low === item.high ? item.low : set;
  }
}

const CONTROLS: ReadonlyMap<string, number> = new Map([
  ["t", 0x09],
  ["n", 0x0a],
  ["v", 0x0b],
  ["f", 0x0c],
  ["r", 0x0d],
  ["a", 0x07],
  ["e", 0x1b],
  ["0", 0x00],
]);

function memberItem(member: number | CharSet): SetItem {
  if (typeof member === "number") return { kind: "range", low: member, high: member };
  return { kind: "set", set: member };
}

/** A greedy repeat right after another, as in `x{1,3}+`, as one repeat where that is the same. */
function joined(body: Node, min: number, max: number, lazy: boolean): Node | undefined {
  if (body.kind !== "repeat" || body.lazy || lazy || body.min > 1 || max !== Infinity) {
    return undefined;
  }
  return { kind: "repeat", body: body.body, min: min * body.min, max, lazy };
}
