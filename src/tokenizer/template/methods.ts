import { PRICES, type TemplateBudget } from "./budget.ts";
import { type FieldLookup, formatBraces } from "./format.ts";
import { SPACES } from "./lexer.ts";
import {
  Arguments,
  codePointCount,
  codePoints,
  Dict,
  DictView,
  escapeHtml,
  isInteger,
  isText,
  iterate,
  lengthOf,
  listOf,
  Markup,
  NativeFunction,
  payForSearch,
  plain,
  Range,
  same,
  TemplateError,
  toIndex,
  Tuple,
  typeName,
  type Value,
} from "./values.ts";

/** Method of text. A result that is text is not marked as safe. */
type TextMethod = (text: string, args: Arguments, budget: TemplateBudget) => Value;

const SPACE = new RegExp(`[${SPACES}]`);
const SPACE_RUNS = new RegExp(`[${SPACES}]+`);
/** Line boundaries of Python's `splitlines`. */
const LINE_ENDS = "\\n\\r\\v\\f\\x1c-\\x1e\\x85\\u2028\\u2029";
const LINE_END = new RegExp(`\\r\\n|[${LINE_ENDS}]`, "g");

/** Returns the attribute of a built-in value as Python does; `undefined` if it has none. */
export function builtinAttribute(
  value: Value,
  name: string,
  lookUp: FieldLookup,
  budget: TemplateBudget,
): Value | undefined {
  if (isText(value)) {
    if (name === "format" || name === "format_map") {
      return formatMethod(value, name, lookUp, budget);
    }
    const method = TEXT_METHODS.get(name);
    if (method !== undefined) {
      return new NativeFunction((args) => callTextMethod(method, name, value, args, budget));
    }
    if (value instanceof Markup && name === "striptags") {
      return new NativeFunction(() => stripTags(value.text, budget));
    }
    return undefined;
  }
  if (Array.isArray(value) || value instanceof Tuple) {
    return sequenceMethod(value, Array.isArray(value) ? value : value.items, name, budget);
  }
  if (value instanceof Dict) return dictMethod(value, name, budget);
  if (value instanceof Range) {
    return sequenceMethod(value, undefined, name, budget) ?? value.attribute(name);
  }
  if (isInteger(value)) return integerAttribute(BigInt(value), name);
  if (typeof value === "number") return floatAttribute(value, name);
  return undefined;
}

/** Methods of `Markup` whose result stays safe: text that they add is escaped. */
const ESCAPED_PARAMETERS: ReadonlyMap<string, number> = new Map([
  ["replace", 1],
  ["ljust", 1],
  ["rjust", 1],
  ["center", 1],
]);

/** Calls a method of text; `Markup` stays `Markup`. */
export function callTextMethod(
  method: TextMethod,
  name: string,
  value: string | Markup,
  args: Arguments,
  budget: TemplateBudget,
): Value {
  if (typeof value === "string") return method(value, args, budget);
  const escaped = ESCAPED_PARAMETERS.get(name);
  const positional = args.positional.map((arg, index) => {
    if (index === escaped) return escapeHtml(arg, budget).text;
    return name === "join" ? listOf(arg, budget).map((item) => escapeHtml(item, budget).text) : arg;
  });
  return marked(method(value.text, new Arguments(positional, args.named), budget));
}

function marked(value: Value): Value {
  if (typeof value === "string") return new Markup(value);
  if (Array.isArray(value)) return value.map(marked);
  return value instanceof Tuple ? new Tuple(value.items.map(marked)) : value;
}

function formatMethod(
  value: string | Markup,
  name: string,
  lookUp: FieldLookup,
  budget: TemplateBudget,
): Value {
  return new NativeFunction((args) => {
    if (name === "format") return formatBraces(value, args, lookUp, budget);
    const [mapping] = args.bindPositional(name, "mapping");
    if (!(mapping instanceof Dict)) throw new TemplateError("format_map() got no dict");
    const named = new Map<string, Value>();
    for (const [key, item] of mapping.entries()) if (isText(key)) named.set(plain(key), item);
    return formatBraces(value, new Arguments([], named), lookUp, budget);
  });
}

function textArgument(value: Value | undefined, what: string): string {
  if (!isText(value)) {
    throw new TemplateError(`${what} must be text, not ${typeName(value ?? null)}`);
  }
  return plain(value);
}

function integerArgument(value: Value | undefined, what: string, fallback: number): number {
  if (value === undefined) return fallback;
  if (!isInteger(value)) throw new TemplateError(`${what} must be an int, not ${typeName(value)}`);
  return toIndex(value);
}

function convertCase(convert: (text: string) => string): TextMethod {
  return (text, args, budget) => {
    args.bindPositional("the method");
    // One character can become three.
    budget.payText(3 * text.length);
    return convert(text);
  };
}

/** Python's `str.capitalize`. */
export function capitalizeText(text: string): string {
  const [first = ""] = text;
  // A sigma at the end of a word is lowercased by what stands before it.
  return titleCase(first) + text.toLowerCase().slice(first.toLowerCase().length);
}

/** Digraphs whose capital at the start of a word differs from the one within capitals. */
const DIGRAPHS: ReadonlyMap<string, string> = new Map([
  ["Ǆ", "ǅ"],
  ["Ǉ", "ǈ"],
  ["Ǌ", "ǋ"],
  ["Ǳ", "ǲ"],
]);

function titleCase(character: string): string {
  const upper = character.toUpperCase();
  const digraph = DIGRAPHS.get(upper);
  if (digraph !== undefined) return digraph;
  // Ligatures become one capital and small letters: "ﬁ" is "Fi".
  const [first = ""] = upper;
  return first + upper.slice(first.length).toLowerCase();
}

function titleText(text: string): string {
  return text.replace(/\p{Cased}[\p{Cased}]*/gu, capitalizeText);
}

/** Python's `str.casefold`: character by character, so that every sigma becomes the same one. */
function foldText(text: string): string {
  const fold = (letter: string) => letter === "ı" ? letter : letter.toUpperCase().toLowerCase();
  return Array.from(text, fold).join("");
}

function swapCase(text: string): string {
  return text.replace(/(\p{Uppercase})|\p{Lowercase}/gu, (letter, upper) => {
    return upper === undefined ? letter.toUpperCase() : letter.toLowerCase();
  });
}

/** Strips characters from both ends or one, as Python's `strip`, `lstrip` and `rstrip`. */
export function stripText(
  text: string,
  characters: Value | undefined,
  budget: TemplateBudget,
  atStart = true,
  atEnd = true,
): string {
  budget.payText(text.length);
  let isStripped = (character: string) => SPACE.test(character);
  if (characters !== undefined && characters !== null) {
    const given = textArgument(characters, "the characters to strip");
    budget.pay(given.length * PRICES.visit);
    const set = new Set(given);
    isStripped = (character) => set.has(character);
  }
  let start = 0;
  let end = text.length;
  while (atStart && start < end) {
    const character = String.fromCodePoint(text.codePointAt(start)!);
    if (!isStripped(character)) break;
    start += character.length;
  }
  while (atEnd && end > start) {
    const pair = end - 2 >= start && text.codePointAt(end - 2)! > 0xffff;
    const character = text.slice(end - (pair ? 2 : 1), end);
    if (!isStripped(character)) break;
    end -= character.length;
  }
  return text.slice(start, end);
}

function strip(name: string, atStart: boolean, atEnd: boolean): TextMethod {
  return (text, args, budget) => {
    const [characters] = args.bindPositional(name, "chars?");
    return stripText(text, characters, budget, atStart, atEnd);
  };
}

function affix(name: "startswith" | "endswith"): TextMethod {
  return (text, args, budget) => {
    const [affixes, start, end] = args.bindPositional(name, "affix", "start?", "end?");
    const [part] = slicePart(text, start, end, budget);
    if (part === undefined) return false;
    const candidates = affixes instanceof Tuple ? affixes.items : [affixes];
    return candidates.some((candidate) => {
      const mark = textArgument(candidate, `the argument of ${name}()`);
      budget.pay(PRICES.visit + mark.length * PRICES.scan);
      return name === "startswith" ? part.startsWith(mark) : part.endsWith(mark);
    });
  };
}

/**
 * Returns the part of a text between two positions, and where it starts; no part if it starts past
 * the end.
 */
function slicePart(
  text: string,
  start: Value | undefined,
  end: Value | undefined,
  budget: TemplateBudget,
): [part: string | undefined, offset: number] {
  if ((start ?? null) === null && (end ?? null) === null) return [text, 0];
  const points = codePoints(text, budget);
  const clamp = (value: Value | undefined, fallback: number) => {
    const index = integerArgument(value ?? undefined, "a position", fallback);
    return Math.max(0, index < 0 ? index + points.length : index);
  };
  const from = clamp(start, 0);
  const to = Math.min(points.length, clamp(end, points.length));
  if (from > to) return [undefined, from];
  const part = points.slice(from, to);
  return [typeof part === "string" ? part : part.join(""), from];
}

function find(name: string, fromEnd: boolean, isRequired: boolean): TextMethod {
  return (text, args, budget) => {
    const [wanted, start, end] = args.bindPositional(name, "sub", "start?", "end?");
    const mark = textArgument(wanted, `the argument of ${name}()`);
    const [part, offset] = slicePart(text, start, end, budget);
    payForSearch(text, mark, budget);
    const at = part === undefined ? -1 : fromEnd ? part.lastIndexOf(mark) : part.indexOf(mark);
    if (at >= 0) return BigInt(offset + codePointCount(part!.slice(0, at)));
    if (isRequired) throw new TemplateError(`${name}() did not find the text`);
    return -1n;
  };
}

const count: TextMethod = (text, args, budget) => {
  const [wanted, start, end] = args.bindPositional("count", "sub", "start?", "end?");
  const mark = textArgument(wanted, "the argument of count()");
  const [part] = slicePart(text, start, end, budget);
  if (part === undefined) return 0n;
  payForSearch(part, mark, budget);
  if (mark === "") return BigInt(codePointCount(part) + 1);
  let matches = 0n;
  for (let at = part.indexOf(mark); at >= 0; at = part.indexOf(mark, at + mark.length)) matches++;
  return matches;
};

/** Replaces at most `most` occurrences, as Python does. */
export function replaceText(
  text: string,
  from: string,
  to: string,
  most: number,
  budget: TemplateBudget,
): string {
  payForSearch(text, from, budget);
  let result = "";
  let copied = 0;
  let done = 0;
  // An empty text matches before every character and at the end.
  for (let at = text.indexOf(from); at >= 0 && done < most; done++) {
    budget.pay(PRICES.value);
    budget.payText(to.length + at - copied);
    result += text.slice(copied, at) + to;
    copied = at + from.length;
    if (at === text.length) break;
    const step = text.codePointAt(at)! > 0xffff ? 2 : 1;
    at = text.indexOf(from, from === "" ? at + step : copied);
  }
  budget.payText(text.length - copied);
  return result + text.slice(copied);
}

const replace: TextMethod = (text, args, budget) => {
  const [from, to, limit] = args.bindPositional("replace", "old", "new", "count?");
  const most = integerArgument(limit, "the count of replace()", -1);
  const [old, replacement] = [from, to].map((value) => textArgument(value, "text of replace()"));
  return replaceText(text, old!, replacement!, most < 0 ? Infinity : most, budget);
};

function split(name: "split" | "rsplit"): TextMethod {
  return (text, args, budget) => {
    const [separator, maximum] = args.bind(name, "sep?", "maxsplit?");
    const limit = integerArgument(maximum, "maxsplit", -1);
    const most = limit < 0 ? Infinity : limit;
    budget.payText(text.length);
    const fromEnd = name === "rsplit";
    if (separator === undefined || separator === null) {
      return splitAtSpaces(text, most, fromEnd, budget);
    }
    const mark = textArgument(separator, `the separator of ${name}()`);
    if (mark === "") throw new TemplateError(`${name}() needs a separator that is not empty`);
    payForSearch(text, mark, budget);
    const pieces: string[] = [];
    let [start, end] = [0, text.length];
    while (pieces.length < most) {
      // A mark that ends at `end` starts at `end - mark.length`, which may lie before the text.
      const last = end - mark.length;
      const at = fromEnd
        ? (last < 0 ? -1 : text.lastIndexOf(mark, last))
        : text.indexOf(mark, start);
      if (at < 0) break;
      budget.pay(PRICES.value);
      if (fromEnd) {
        pieces.push(text.slice(at + mark.length, end));
        end = at;
      } else {
        pieces.push(text.slice(start, at));
        start = at + mark.length;
      }
    }
    pieces.push(text.slice(start, end));
    return fromEnd ? pieces.reverse() : pieces;
  };
}

function splitAtSpaces(
  text: string,
  most: number,
  fromEnd: boolean,
  budget: TemplateBudget,
): string[] {
  const pieces: string[] = [];
  let [start, end] = [0, text.length];
  const atEnd = () => fromEnd ? SPACE.test(text[end - 1]!) : SPACE.test(text[start]!);
  const skip = (spaces: boolean) => {
    while (start < end && atEnd() === spaces) {
      if (fromEnd) end--;
      else start++;
    }
  };
  for (skip(true); start < end; skip(true)) {
    budget.pay(PRICES.value);
    const [from, to] = [start, end];
    if (pieces.length >= most) {
      pieces.push(text.slice(from, to));
      break;
    }
    skip(false);
    pieces.push(fromEnd ? text.slice(end, to) : text.slice(from, start));
  }
  return fromEnd ? pieces.reverse() : pieces;
}

/** Python's `str.splitlines`. */
export function splitLines(text: string, keepsEnds: boolean, budget: TemplateBudget): string[] {
  budget.payText(text.length);
  const lines: string[] = [];
  let start = 0;
  for (const match of text.matchAll(LINE_END)) {
    budget.pay(PRICES.value);
    const end = match.index + match[0].length;
    lines.push(text.slice(start, keepsEnds ? end : match.index));
    start = end;
  }
  if (start < text.length) lines.push(text.slice(start));
  return lines;
}

const splitlines: TextMethod = (text, args, budget) => {
  const [keeps] = args.bind("splitlines", "keepends?");
  return splitLines(text, integerArgument(keeps, "keepends", 0) !== 0, budget);
};

function partition(name: string, fromEnd: boolean): TextMethod {
  return (text, args, budget) => {
    const [separator] = args.bindPositional(name, "sep");
    const mark = textArgument(separator, `the separator of ${name}()`);
    if (mark === "") throw new TemplateError(`${name}() needs a separator that is not empty`);
    payForSearch(text, mark, budget);
    budget.payText(text.length);
    const at = fromEnd ? text.lastIndexOf(mark) : text.indexOf(mark);
    if (at < 0) return new Tuple(fromEnd ? ["", "", text] : [text, "", ""]);
    return new Tuple([text.slice(0, at), mark, text.slice(at + mark.length)]);
  };
}

function removeAffix(name: "removeprefix" | "removesuffix"): TextMethod {
  return (text, args, budget) => {
    const mark = textArgument(args.bindPositional(name, "affix")[0], `the argument of ${name}()`);
    budget.payText(text.length);
    if (name === "removeprefix") return text.startsWith(mark) ? text.slice(mark.length) : text;
    return mark !== "" && text.endsWith(mark) ? text.slice(0, -mark.length) : text;
  };
}

const join: TextMethod = (text, args, budget) => {
  const [items] = args.bindPositional("join", "iterable");
  const texts: string[] = [];
  for (const item of iterate(items!, budget)) {
    const part = textArgument(item, "each item of join()");
    budget.pay(PRICES.value);
    budget.payText(part.length + text.length);
    texts.push(part);
  }
  return texts.join(text);
};

/** Pads text to a width. */
export function justify(
  text: string,
  width: number,
  fill: string,
  side: "left" | "right" | "center",
  budget: TemplateBudget,
): string {
  const missing = width - lengthOf(text, budget);
  if (missing <= 0) return text;
  budget.payText(text.length + missing * fill.length);
  if (side === "left") return text + fill.repeat(missing);
  if (side === "right") return fill.repeat(missing) + text;
  // Python puts an odd space on the left if the width is odd, too.
  const before = Math.floor(missing / 2) + (missing & width & 1);
  return fill.repeat(before) + text + fill.repeat(missing - before);
}

function justifyMethod(name: string, side: "left" | "right" | "center"): TextMethod {
  return (text, args, budget) => {
    const [width, fill] = args.bindPositional(name, "width", "fillchar?");
    const filling = fill === undefined ? " " : textArgument(fill, "the fill character");
    if (codePointCount(filling) !== 1) {
      throw new TemplateError(`${name}() got the fill text "${filling}"; it must be one character`);
    }
    return justify(text, integerArgument(width, "the width", 0), filling, side, budget);
  };
}

const zfill: TextMethod = (text, args, budget) => {
  const width = integerArgument(args.bindPositional("zfill", "width")[0], "the width", 0);
  const sign = /^[-+]/.exec(text)?.[0] ?? "";
  return sign + justify(text.slice(sign.length), width - sign.length, "0", "right", budget);
};

const expandtabs: TextMethod = (text, args, budget) => {
  const size = integerArgument(args.bind("expandtabs", "tabsize?")[0], "the tab size", 8);
  let column = 0;
  let result = "";
  for (const character of text) {
    const width = character === "\t" ? (size > 0 ? size - column % size : 0) : 1;
    budget.payText(width);
    result += character === "\t" ? " ".repeat(width) : character;
    column = character === "\n" || character === "\r" ? 0 : column + width;
  }
  return result;
};

/** Returns a method that is true for text of one or more characters, all of a class. */
function every(pattern: RegExp): TextMethod {
  return (text, args, budget) => {
    args.bindPositional("the method");
    budget.payText(text.length);
    return pattern.test(text);
  };
}

const istitle: TextMethod = (text, args, budget) => {
  args.bindPositional("istitle");
  budget.payText(3 * text.length);
  return /\p{Cased}/u.test(text) &&
    !/(?<!\p{Cased})\p{Lowercase}|\p{Cased}(?:\p{Uppercase}|\p{Lt})/u.test(text);
};

/** Python's `str.islower`. */
export function isLower(text: string): boolean {
  return /\p{Lowercase}/u.test(text) && !/\p{Uppercase}|\p{Lt}/u.test(text);
}

/** Python's `str.isupper`. */
export function isUpper(text: string): boolean {
  return /\p{Uppercase}/u.test(text) && !/\p{Lowercase}|\p{Lt}/u.test(text);
}

function isCase(test: (text: string) => boolean): TextMethod {
  return (text, args, budget) => {
    args.bindPositional("the method");
    budget.payText(text.length);
    return test(text);
  };
}

const translate: TextMethod = (text, args, budget) => {
  const [table] = args.bindPositional("translate", "table");
  if (!(table instanceof Dict)) {
    throw new TemplateError(`translate() needs a dict, not ${typeName(table ?? null)}`);
  }
  let result = "";
  for (const character of text) {
    const mapped = table.get(BigInt(character.codePointAt(0)!));
    const piece = mapped === undefined
      ? character
      : mapped === null
      ? ""
      : isInteger(mapped)
      ? String.fromCodePoint(toIndex(mapped))
      : textArgument(mapped, "a translation");
    budget.pay(PRICES.visit);
    budget.payText(piece.length);
    result += piece;
  }
  return result;
};

/** Methods of text by name, as in Python. */
export const TEXT_METHODS: ReadonlyMap<string, TextMethod> = new Map<string, TextMethod>([
  ["capitalize", convertCase(capitalizeText)],
  ["casefold", convertCase(foldText)],
  ["center", justifyMethod("center", "center")],
  ["count", count],
  ["endswith", affix("endswith")],
  ["expandtabs", expandtabs],
  ["find", find("find", false, false)],
  ["index", find("index", false, true)],
  ["isalnum", every(/^[\p{L}\p{N}]+$/u)],
  ["isalpha", every(/^\p{L}+$/u)],
  ["isascii", every(/^\p{ASCII}*$/u)],
  ["isdecimal", every(/^\p{Nd}+$/u)],
  ["isdigit", every(/^[\p{Nd}\xb2\xb3\xb9\u2070\u2074-\u2079\u2080-\u2089\u2460-\u2468]+$/u)],
  ["isidentifier", every(/^[_\p{ID_Start}]\p{ID_Continue}*$/u)],
  ["islower", isCase(isLower)],
  ["isnumeric", every(/^\p{N}+$/u)],
  ["isprintable", every(/^(?: |[^\p{C}\p{Z}])*$/u)],
  ["isspace", every(new RegExp(`^[${SPACES}]+$`))],
  ["istitle", istitle],
  ["isupper", isCase(isUpper)],
  ["join", join],
  ["ljust", justifyMethod("ljust", "left")],
  ["lower", convertCase((text) => text.toLowerCase())],
  ["lstrip", strip("lstrip", true, false)],
  ["partition", partition("partition", false)],
  ["removeprefix", removeAffix("removeprefix")],
  ["removesuffix", removeAffix("removesuffix")],
  ["replace", replace],
  ["rfind", find("rfind", true, false)],
  ["rindex", find("rindex", true, true)],
  ["rjust", justifyMethod("rjust", "right")],
  ["rpartition", partition("rpartition", true)],
  ["rsplit", split("rsplit")],
  ["rstrip", strip("rstrip", false, true)],
  ["split", split("split")],
  ["splitlines", splitlines],
  ["startswith", affix("startswith")],
  ["strip", strip("strip", true, true)],
  ["swapcase", convertCase(swapCase)],
  ["title", convertCase(titleText)],
  ["translate", translate],
  ["upper", convertCase((text) => text.toUpperCase())],
  ["zfill", zfill],
]);

const ENTITIES: ReadonlyMap<string, string> = new Map([
  ["amp", "&"],
  ["lt", "<"],
  ["gt", ">"],
  ["quot", '"'],
  ["apos", "'"],
  ["nbsp", "\xa0"],
  ["copy", "©"],
  ["reg", "®"],
  ["laquo", "«"],
  ["raquo", "»"],
  ["ndash", "–"],
  ["mdash", "—"],
  ["hellip", "…"],
  ["euro", "€"],
]);

/** Removes comments and tags from HTML, and resolves its entities. */
export function stripTags(text: string, budget: TemplateBudget): string {
  budget.payText(2 * text.length);
  const bare = cutBetween(cutBetween(text, "<!--", "-->", budget), "<", ">", budget);
  const words = bare.split(SPACE_RUNS).filter((word) => word !== "").join(" ");
  return words.replace(/&(?:#(\d+)|#[xX]([\da-fA-F]+)|(\w+));/g, (whole, decimal, hex, name) => {
    if (name !== undefined) return ENTITIES.get(name) ?? whole;
    const code = decimal === undefined ? parseInt(hex, 16) : parseInt(decimal, 10);
    return code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : "\ufffd";
  });
}

/** Removes the parts of a text between two marks; an opening mark without its end stays. */
function cutBetween(text: string, open: string, close: string, budget: TemplateBudget): string {
  let result = "";
  let from = 0;
  for (let start = text.indexOf(open); start >= 0; start = text.indexOf(open, from)) {
    const end = text.indexOf(close, start);
    if (end < 0) break;
    budget.pay(PRICES.value);
    result += text.slice(from, start);
    from = end + close.length;
  }
  return result + text.slice(from);
}

/** `count` and `index` of lists, tuples and ranges, and `copy` of lists. */
function sequenceMethod(
  value: Value,
  given: readonly Value[] | undefined,
  name: string,
  budget: TemplateBudget,
): Value | undefined {
  const items = () => given ?? listOf(value, budget);
  switch (name) {
    case "count":
      return new NativeFunction((args) => {
        const [wanted] = args.bindPositional(name, "value");
        return BigInt(items().filter((item) => same(item, wanted!, budget)).length);
      });
    case "index":
      return new NativeFunction((args) => {
        const [wanted, start, end] = args.bindPositional(name, "value", "start?", "end?");
        const all = items();
        const clamp = (bound: Value | undefined, fallback: number) => {
          const index = integerArgument(bound, "a position", fallback);
          return Math.max(0, index < 0 ? index + all.length : index);
        };
        const to = Math.min(all.length, clamp(end, all.length));
        for (let at = clamp(start, 0); at < to; at++) {
          if (same(all[at]!, wanted!, budget)) return BigInt(at);
        }
        throw new TemplateError("index() did not find the value");
      });
    case "copy":
      if (!Array.isArray(value)) return undefined;
      return new NativeFunction((args) => {
        args.bindPositional(name);
        return listOf(value, budget);
      });
    default:
      return undefined;
  }
}

function dictMethod(dict: Dict, name: string, budget: TemplateBudget): Value | undefined {
  switch (name) {
    case "get":
      return new NativeFunction((args) => {
        const [key, fallback] = args.bindPositional(name, "key", "default?");
        const value = dict.get(key!);
        return value === undefined ? fallback ?? null : value;
      });
    case "keys":
    case "values":
    case "items":
      return new NativeFunction((args) => {
        args.bindPositional(name);
        return new DictView(dict, name);
      });
    case "copy":
      return new NativeFunction((args) => {
        args.bindPositional(name);
        budget.pay(dict.size * PRICES.value);
        return new Dict(dict.entries());
      });
    case "fromkeys":
      return new NativeFunction((args) => {
        const [keys, value = null] = args.bindPositional(name, "iterable", "value?");
        return new Dict(listOf(keys!, budget).map((key) => [key, value]));
      });
    default:
      return undefined;
  }
}

function integerAttribute(value: bigint, name: string): Value | undefined {
  switch (name) {
    case "real":
    case "numerator":
      return value;
    case "imag":
      return 0n;
    case "denominator":
      return 1n;
    case "bit_length":
      return new NativeFunction(() => {
        const magnitude = value < 0n ? -value : value;
        return BigInt(magnitude === 0n ? 0 : magnitude.toString(2).length);
      });
    case "conjugate":
      return new NativeFunction(() => value);
    default:
      return undefined;
  }
}

function floatAttribute(value: number, name: string): Value | undefined {
  switch (name) {
    case "real":
      return value;
    case "imag":
      return 0;
    case "is_integer":
      return new NativeFunction(() => Number.isInteger(value));
    case "conjugate":
      return new NativeFunction(() => value);
    default:
      return undefined;
  }
}
