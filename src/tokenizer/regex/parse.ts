import { type Anchor, complement, type Node, singleton } from "./ast.ts";
import { Cursor, PatternError } from "./cursor.ts";
import { parseClass, parseSetEscape } from "./parse_set.ts";

/** Oniguruma's own limit of a repeat count. */
const LARGEST_COUNT = 100_000;

/**
 * Parses a regular expression in the syntax of Oniguruma (Ruby) and of Rust's `regex`, where they
 * agree: what `tokenizer.json` holds. Groups do not capture; back-references are refused.
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

/** A greedy repeat right after another, as in `x{1,3}+`, as one repeat where that is the same. */
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

/** One atom, or `undefined` for a comment. */
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
      if (at === undefined) return { kind: "set", set: parseSetEscape(cursor) };
      cursor.next();
      return { kind: "anchor", at };
    }
  }
  return { kind: "set", set: singleton(character.codePointAt(0) ?? 0) };
}

/** A group behind its "("; `undefined` for a comment. */
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

/** `(?i:...)`, or `(?i)`, which reaches to the end of the group around it, across alternatives. */
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
