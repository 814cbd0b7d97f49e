import {
  type Anchor,
  type CharSet,
  classEscape,
  complement,
  type Node,
  PatternError,
  posixClass,
  type SetItem,
  singleton,
  unicodeProperty,
} from "./ast.ts";

/** Oniguruma's limit of a repeat count. */
const LARGEST_COUNT = 100_000;

/**
 * Parses a regular expression in the common syntax of Oniguruma (Ruby) and Rust's `regex`, which
 * `tokenizer.json` uses. Groups do not capture; back-references are rejected.
 *
 * Constraints have their own parser (src/constrain/automata/regex.ts) for JavaScript's syntax, in
 * which `$`, `[[a]&&b]`, `a++` and `{,2}` have other meanings. V8 validates those patterns first.
 *
 * @throws PatternError
 */
export function parsePattern(pattern: string): Node {
  const cursor = new Cursor(pattern);
  const node = parseChoice(cursor);
  if (!cursor.atEnd) throw new PatternError(`unmatched "${cursor.peek()}"`);
  return node;
}

function parseChoice(cursor: Cursor): Node {
  const options = [parseSequence(cursor)];
  while (cursor.accept("|")) options.push(parseSequence(cursor));
  return options.length === 1 && options[0] ? options[0] : { kind: "choice", options };
}

function parseSequence(cursor: Cursor): Node {
  const items: Node[] = [];
  while (!cursor.atEnd && cursor.peek() !== "|" && cursor.peek() !== ")") {
    const atom = parseAtom(cursor);
    if (atom) items.push(parseQuantifiers(cursor, atom));
  }
  return items.length === 1 && items[0] ? items[0] : { kind: "sequence", items };
}

function parseQuantifiers(cursor: Cursor, atom: Node): Node {
  let node = atom;
  let stacked = false;
  for (let count = parseCount(cursor); count; count = parseCount(cursor)) {
    const { min, max, braces } = count;
    if (node.kind === "anchor" || node.kind === "look") {
      throw new PatternError("a quantifier after an assertion");
    }
    const lazy = cursor.accept("?");
    if (lazy && braces && min === max) throw new PatternError(`"{${min}}?" has no one meaning`);
    node = (stacked && joinedRepeat(node, min, max, lazy)) ||
      { kind: "repeat", body: node, min, max, lazy };
    stacked = true;
    // After braces a "+" is one more quantifier; after "*", "+" and "?" it is possessive.
    if (!lazy && !braces && cursor.accept("+")) node = { kind: "atomic", body: node };
  }
  return node;
}

/** Returns two nested greedy repeats, as in `x{1,3}+`, as one equivalent repeat, or `undefined`. */
function joinedRepeat(body: Node, min: number, max: number, lazy: boolean): Node | undefined {
  if (body.kind !== "repeat" || body.lazy || lazy || body.min > 1 || max !== Infinity) {
    return undefined;
  }
  return { kind: "repeat", body: body.body, min: min * body.min, max, lazy };
}

function parseCount(cursor: Cursor): { min: number; max: number; braces: boolean } | undefined {
  if (cursor.accept("*")) return { min: 0, max: Infinity, braces: false };
  if (cursor.accept("+")) return { min: 1, max: Infinity, braces: false };
  if (cursor.accept("?")) return { min: 0, max: 1, braces: false };
  if (cursor.peek() !== "{") return undefined;
  let text = "{";
  while (/^\{[\d,]*$/.test(text)) text += cursor.peek(text.length) || " ";
  const [, low = "", comma = "", high = ""] = /^\{(\d*)(,?)(\d*)\}$/.exec(text) ?? [];
  if (low === "" && high === "") return undefined; // a literal brace
  cursor.accept(text);
  const min = low === "" ? 0 : Number(low);
  const max = comma === "" ? min : high === "" ? Infinity : Number(high);
  if (min > max) throw new PatternError(`"${text}" counts down`);
  if (min > LARGEST_COUNT || (max > LARGEST_COUNT && max !== Infinity)) {
    throw new PatternError(`"${text}" counts above ${LARGEST_COUNT}`);
  }
  return { min, max, braces: true };
}

const ANCHORS: ReadonlyMap<string, Anchor> = new Map([
  ["b", "word boundary"],
  ["B", "no word boundary"],
  ["A", "text start"],
  ["z", "text end"],
  ["Z", "last line end"],
]);

/** Parses one atom; returns `undefined` for a comment. */
function parseAtom(cursor: Cursor): Node | undefined {
  const character = cursor.next();
  switch (character) {
    case "(":
      return cursor.nested(parseGroup);
    case "[":
      return { kind: "set", set: cursor.nested(parseClass) };
    case ".":
      return { kind: "set", set: complement(singleton(0x0a)) };
    case "^":
      return { kind: "anchor", at: "line start" };
    case "$":
      return { kind: "anchor", at: "line end" };
    case "*":
    case "+":
    case "?":
      throw new PatternError(`nothing before "${character}" to repeat`);
    case "\\": {
      const at = ANCHORS.get(cursor.peek());
      if (at === undefined) return { kind: "set", set: parseSetEscape(cursor, false) };
      cursor.next();
      return { kind: "anchor", at };
    }
  }
  return { kind: "set", set: singleton(character.codePointAt(0) ?? 0) };
}

/** Parses a group after its "("; returns `undefined` for a comment. */
function parseGroup(cursor: Cursor): Node | undefined {
  if (!cursor.accept("?")) return closed(cursor, parseChoice(cursor));
  if (cursor.accept("#")) {
    cursor.until(")");
    return undefined;
  }
  if (cursor.accept(":")) return closed(cursor, parseChoice(cursor));
  if (cursor.accept(">")) return closed(cursor, { kind: "atomic", body: parseChoice(cursor) });
  const behind = cursor.startsWith("<=") || cursor.startsWith("<!");
  if (behind) cursor.next();
  if (cursor.peek() === "=" || cursor.peek() === "!") {
    const negative = cursor.next() === "!";
    return closed(cursor, { kind: "look", ahead: !behind, negative, body: parseChoice(cursor) });
  }
  if (cursor.accept("P<") || cursor.accept("<")) {
    cursor.until(">");
    return closed(cursor, parseChoice(cursor));
  }
  return parseCaseGroup(cursor);
}

/**
 * Parses `(?i:...)` or `(?i)`. The latter applies up to the end of the enclosing group, across
 * alternatives.
 */
function parseCaseGroup(cursor: Cursor): Node {
  const ignore = cursor.accept("i");
  const known = ignore || cursor.accept("-i");
  const scoped = known && cursor.accept(":");
  if (!scoped && !(known && cursor.accept(")"))) {
    throw new PatternError(`the group "(?${cursor.peek()}..." is not supported`);
  }
  const node: Node = { kind: "case", ignore, body: parseChoice(cursor) };
  return scoped ? closed(cursor, node) : node;
}

function closed(cursor: Cursor, node: Node): Node {
  if (!cursor.accept(")")) throw new PatternError(`"(" without ")"`);
  return node;
}

/** Parses a class after its "[". */
function parseClass(cursor: Cursor): CharSet {
  const negated = cursor.accept("^");
  // A leading "]" is a member.
  const first: SetItem[] = cursor.accept("]") ? [memberItem(0x5d)] : [];
  return { ...parseUnion(cursor, first), negated };
}

/** Parses members up to and including "]"; "&&" intersects the members on both sides. */
function parseUnion(cursor: Cursor, items: SetItem[]): CharSet {
  while (!cursor.accept("]")) {
    if (cursor.accept("&&")) {
      return { negated: false, items, and: cursor.nested((rest) => parseUnion(rest, [])) };
    }
    items.push(parseItem(cursor));
  }
  return { negated: false, items };
}

function parseItem(cursor: Cursor): SetItem {
  if (cursor.accept("[:")) {
    const negated = cursor.accept("^");
    const name = cursor.until(":]");
    const set = posixClass(name);
    if (!set) throw new PatternError(`the class "[:${name}:]" is not known`);
    return { kind: "set", set: negated ? complement(set) : set };
  }
  if (cursor.accept("[")) return { kind: "set", set: cursor.nested(parseClass) };
  const low = parseMember(cursor);
  const isRange = cursor.peek() === "-" && cursor.peek(1) !== "]" && cursor.peek(1) !== "";
  if (typeof low !== "number" || !isRange) return memberItem(low);
  cursor.next();
  const high = parseMember(cursor);
  if (typeof high !== "number") throw new PatternError("a range that ends in a class");
  if (low > high) throw new PatternError("a range that counts down");
  return { kind: "range", low, high };
}

/** Parses one character, as its code point, or a class escape. */
function parseMember(cursor: Cursor): number | CharSet {
  const character = cursor.next();
  if (character !== "\\") return codePoint(character);
  if (cursor.accept("b")) return 0x08;
  const set = parseSetEscape(cursor, true);
  const [item] = set.items;
  const isSingle = !set.negated && set.items.length === 1 && item?.kind === "range";
  return isSingle && item.low === item.high ? item.low : set;
}

function memberItem(member: number | CharSet): SetItem {
  if (typeof member === "number") return { kind: "range", low: member, high: member };
  return { kind: "set", set: member };
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

/** Parses a character escape after its backslash, inside or outside of a class. */
function parseSetEscape(cursor: Cursor, inClass: boolean): CharSet {
  const letter = cursor.next();
  const named = classEscape(letter, inClass);
  if (named) return named;
  if (letter === "p" || letter === "P") return parseProperty(cursor, letter, inClass);
  const control = CONTROLS.get(letter);
  if (control !== undefined) return singleton(control);
  if (letter === "x" || letter === "u") return singleton(parseHexadecimal(cursor, letter));
  if (/[A-Za-z0-9]/.test(letter)) {
    throw new PatternError(`the escape "\\${letter}" is not supported`);
  }
  return singleton(codePoint(letter));
}

function parseProperty(cursor: Cursor, letter: "p" | "P", inClass: boolean): CharSet {
  const braces = cursor.accept("{");
  const negated = (letter === "P") !== (braces && cursor.accept("^"));
  const name = braces ? cursor.until("}") : cursor.next();
  const set = unicodeProperty(name, inClass);
  if (!set) throw new PatternError(`the property "\\${letter}{${name}}" is not known`);
  return negated ? complement(set) : set;
}

function parseHexadecimal(cursor: Cursor, letter: "x" | "u"): number {
  let digits = "";
  if (letter === "x" && cursor.accept("{")) digits = cursor.until("}");
  else while (digits.length < (letter === "x" ? 2 : 4)) digits += cursor.next();
  const code = /^[0-9A-Fa-f]{1,6}$/.test(digits) ? parseInt(digits, 16) : Infinity;
  if (code > 0x10ffff) throw new PatternError(`"\\${letter}${digits}" is not a character`);
  return code;
}

function codePoint(character: string): number {
  return character.codePointAt(0) ?? 0;
}

/** Maximum depth of groups and classes; deeper ones could exhaust the stack. */
const DEEPEST_NESTING = 100;

/** The position of the parser in a pattern. */
class Cursor {
  readonly #characters: readonly string[];
  #at = 0;
  #depth = 0;

  constructor(pattern: string) {
    this.#characters = [...pattern];
  }

  get atEnd(): boolean {
    return this.#at === this.#characters.length;
  }

  /** Returns the character `ahead` of the next one; "" after the end. */
  peek(ahead = 0): string {
    return this.#characters[this.#at + ahead] ?? "";
  }

  /** Takes the next character. */
  next(): string {
    const character = this.#characters[this.#at];
    if (character === undefined) throw new PatternError("unexpected end of pattern");
    this.#at++;
    return character;
  }

  /** True if ASCII `text` comes next. */
  startsWith(text: string): boolean {
    for (let i = 0; i < text.length; i++) if (this.peek(i) !== text[i]) return false;
    return true;
  }

  /** Takes ASCII `text` if it comes next. */
  accept(text: string): boolean {
    if (!this.startsWith(text)) return false;
    this.#at += text.length;
    return true;
  }

  /** Takes everything through ASCII `close`; returns the text before it. */
  until(close: string): string {
    let text = "";
    while (!this.accept(close)) text += this.next();
    return text;
  }

  /** Parses one level deeper. */
  nested<T>(parse: (cursor: Cursor) => T): T {
    if (++this.#depth > DEEPEST_NESTING) {
      throw new PatternError(`nested deeper than ${DEEPEST_NESTING} levels`);
    }
    const result = parse(this);
    this.#depth--;
    return result;
  }
}
