import { type CharSet, complement, type SetItem, singleton } from "./ast.ts";
import { classEscape, posixClass, unicodeProperty } from "./char_classes.ts";
import { type Cursor, PatternError } from "./cursor.ts";

/** Parses a class behind its "[". */
export function parseClass(cursor: Cursor): CharSet {
  const negated = cursor.accept("^");
  // A "]" that comes first is a member.
  const first: SetItem[] = cursor.accept("]") ? [memberItem(0x5d)] : [];
  return { ...parseUnion(cursor, first), negated };
}

/** Parses members up to and with the "]"; "&&" cuts those before it with those behind. */
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

/** One character as its code point, or a class escape. */
function parseMember(cursor: Cursor): number | CharSet {
  const character = cursor.next();
  if (character !== "\\") return codePoint(character);
  if (cursor.accept("b")) return 0x08;
  const set = parseSetEscape(cursor);
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

/** Parses what follows a backslash and stands for characters, in a class or outside. */
export function parseSetEscape(cursor: Cursor): CharSet {
  const letter = cursor.next();
  const named = classEscape(letter);
  if (named) return named;
  if (letter === "p" || letter === "P") return parseProperty(cursor, letter);
  const control = CONTROLS.get(letter);
  if (control !== undefined) return singleton(control);
  if (letter === "x" || letter === "u") return singleton(parseHexadecimal(cursor, letter));
  if (/[A-Za-z0-9]/.test(letter)) {
    throw new PatternError(`the escape "\\${letter}" is not supported`);
  }
  return singleton(codePoint(letter));
}

function parseProperty(cursor: Cursor, letter: "p" | "P"): CharSet {
  const braces = cursor.accept("{");
  const negated = (letter === "P") !== (braces && cursor.accept("^"));
  const name = braces ? cursor.until("}") : cursor.next();
  const set = unicodeProperty(name);
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
