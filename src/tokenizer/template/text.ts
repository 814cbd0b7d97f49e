import { PRICES, type TemplateBudget } from "./budget.ts";
import { isList, isNone, isText, type TemplateValue } from "./values.ts";

/** The arguments of a call in a template. */
export interface TemplateArguments {
  readonly positional: readonly TemplateValue[];
  readonly named: ReadonlyMap<string, TemplateValue>;
}

/** A method or filter of text; what it returns is a plain value. */
type TextFunction = (
  text: string,
  args: TemplateArguments,
  budget: TemplateBudget,
) => string | number | boolean | string[];

/** What Python's `str.isspace` accepts, which is not what JavaScript trims. */
const WHITESPACE = "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680" +
  "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a" +
  "\u2028\u2029\u202f\u205f\u3000";

const upper: TextFunction = (text, _args, budget) => {
  // One character can become three.
  budget.payText(3 * text.length);
  return text.toUpperCase();
};

const lower: TextFunction = (text, _args, budget) => {
  budget.payText(3 * text.length);
  return text.toLowerCase();
};

const capitalize: TextFunction = (text, _args, budget) => {
  budget.payText(3 * text.length);
  return capitalizeWord(text);
};

const title: TextFunction = (text, _args, budget) => {
  budget.payText(3 * text.length);
  return text.replace(/\p{L}+/gu, capitalizeWord);
};

/** Unlike the method, the filter leaves the `t` of `don't` alone. */
const titleFilter: TextFunction = (text, _args, budget) => {
  budget.payText(3 * text.length);
  return text.replace(/[^-\s({[<]+/gu, capitalizeWord);
};

const strip: TextFunction = (text, args, budget) => stripEnds(text, args, budget, true, true);
const lstrip: TextFunction = (text, args, budget) => stripEnds(text, args, budget, true, false);
const rstrip: TextFunction = (text, args, budget) => stripEnds(text, args, budget, false, true);

const startswith: TextFunction = (text, args, budget) =>
  affixes(args, budget).some((affix) => text.startsWith(affix));
const endswith: TextFunction = (text, args, budget) =>
  affixes(args, budget).some((affix) => text.endsWith(affix));

const split: TextFunction = (text, args, budget) => {
  budget.payText(text.length);
  const separator = argument(args, 0, "sep");
  const limit = integerArgument(args, 1, "maxsplit", -1);
  const most = limit < 0 ? Infinity : limit;
  if (separator === undefined || isNone(separator)) {
    return splitAtWhitespace(text, most, budget);
  }
  const mark = requireText(separator, "the separator of split()");
  if (mark === "") throw new Error("split() needs a separator that is not empty");
  payForSearch(text, mark, budget);
  const pieces: string[] = [];
  let from = 0;
  for (let at = text.indexOf(mark); at >= 0 && pieces.length < most;) {
    budget.pay(PRICES.value);
    pieces.push(text.slice(from, at));
    from = at + mark.length;
    at = text.indexOf(mark, from);
  }
  pieces.push(text.slice(from));
  return pieces;
};

const replace: TextFunction = (text, args, budget) => {
  const from = requireText(argument(args, 0, "old"), "the first argument of replace()");
  const to = requireText(argument(args, 1, "new"), "the second argument of replace()");
  const limit = integerArgument(args, 2, "count", -1);
  const most = limit < 0 ? Infinity : limit;
  payForSearch(text, from, budget);
  let result = "";
  let copied = 0;
  let count = 0;
  // An empty text is found before every character and at the end.
  for (let at = text.indexOf(from); at >= 0 && count < most; count++) {
    budget.pay(PRICES.value);
    budget.payText(to.length + at - copied);
    result += text.slice(copied, at) + to;
    copied = at + from.length;
    if (from === "" && at === text.length) break;
    at = text.indexOf(from, from === "" ? at + 1 : copied);
  }
  budget.payText(text.length - copied);
  return result + text.slice(copied);
};

const indent: TextFunction = (text, args, budget) => {
  const width = argument(args, 0, "width");
  const first = argument(args, 1, "first")?.__bool__().value ?? false;
  const blank = argument(args, 2, "blank")?.__bool__().value ?? false;
  let margin: string;
  if (width !== undefined && isText(width)) margin = width.value;
  else {
    const spaces = Math.max(0, integerArgument(args, 0, "width", 4));
    budget.payText(spaces);
    margin = " ".repeat(spaces);
  }
  const lines = text.split("\n");
  budget.pay(lines.length * PRICES.value);
  budget.payText(text.length + lines.length * margin.length);
  return lines
    .map((line, index) => (index === 0 ? first : blank || line !== "") ? margin + line : line)
    .join("\n");
};

const length: TextFunction = (text, _args, budget) => {
  budget.pay(text.length * PRICES.scan);
  let codePoints = text.length;
  for (let at = 0; at < text.length; at++) {
    if (isLowSurrogate(text, at) && isHighSurrogate(text, at - 1)) codePoints--;
  }
  return codePoints;
};

/** The methods of text, by name, as in Python. */
export const TEXT_METHODS: ReadonlyMap<string, TextFunction> = new Map([
  ["upper", upper],
  ["lower", lower],
  ["capitalize", capitalize],
  ["title", title],
  ["strip", strip],
  ["lstrip", lstrip],
  ["rstrip", rstrip],
  ["startswith", startswith],
  ["endswith", endswith],
  ["split", split],
  ["replace", replace],
]);

/** The filters of text, by name, as in Jinja. */
export const TEXT_FILTERS: ReadonlyMap<string, TextFunction> = new Map([
  ["upper", upper],
  ["lower", lower],
  ["capitalize", capitalize],
  ["title", titleFilter],
  ["trim", strip],
  ["replace", replace],
  ["indent", indent],
  ["length", length],
]);

/**
 * Pays for looking for `mark` in `text`. A search looks at each character about once; only where a
 * mark of hundreds of characters nearly matches everywhere does it look at many of them again.
 */
export function payForSearch(text: string, mark: string, budget: TemplateBudget): void {
  budget.pay(text.length * PRICES.scan * (1 + mark.length / 64));
}

function stripEnds(
  text: string,
  args: TemplateArguments,
  budget: TemplateBudget,
  atStart: boolean,
  atEnd: boolean,
): string {
  budget.payText(text.length);
  const given = argument(args, 0, "chars");
  const characters = given === undefined || isNone(given)
    ? WHITESPACE
    : requireText(given, "the argument of strip()");
  budget.pay(characters.length * PRICES.visit);
  const stripped = new Set(characters);
  let start = 0;
  let end = text.length;
  while (atStart && start < end) {
    const character = String.fromCodePoint(text.codePointAt(start)!);
    if (!stripped.has(character)) break;
    start += character.length;
  }
  while (atEnd && end > start) {
    const pair = end - 2 >= start && isLowSurrogate(text, end - 1) &&
      isHighSurrogate(text, end - 2);
    const character = text.slice(end - (pair ? 2 : 1), end);
    if (!stripped.has(character)) break;
    end -= character.length;
  }
  return text.slice(start, end);
}

function splitAtWhitespace(text: string, most: number, budget: TemplateBudget): string[] {
  const pieces: string[] = [];
  let at = 0;
  const skip = (whitespace: boolean) => {
    while (at < text.length && WHITESPACE.includes(text[at]!) === whitespace) at++;
  };
  for (skip(true); at < text.length; skip(true)) {
    budget.pay(PRICES.value);
    const from = at;
    if (pieces.length === most) {
      pieces.push(text.slice(from));
      break;
    }
    skip(false);
    pieces.push(text.slice(from, at));
  }
  return pieces;
}

function affixes(args: TemplateArguments, budget: TemplateBudget): string[] {
  const given = argument(args, 0, "prefix");
  const values = given !== undefined && isList(given) ? given.value : [given];
  return values.map((value) => {
    const affix = requireText(value, "the argument of startswith() or endswith()");
    budget.pay(PRICES.visit + affix.length * PRICES.scan);
    return affix;
  });
}

function argument(args: TemplateArguments, index: number, name: string): TemplateValue | undefined {
  return args.positional[index] ?? args.named.get(name);
}

function integerArgument(
  args: TemplateArguments,
  index: number,
  name: string,
  fallback: number,
): number {
  const given = argument(args, index, name);
  if (given === undefined || isNone(given)) return fallback;
  if (typeof given.value !== "number" || !Number.isSafeInteger(given.value)) {
    throw new Error(`${name} must be a whole number`);
  }
  return given.value;
}

function requireText(value: TemplateValue | undefined, what: string): string {
  if (value === undefined || !isText(value)) throw new Error(`${what} must be text`);
  return value.value;
}

function capitalizeWord(word: string): string {
  const [first = ""] = word;
  return first.toUpperCase() + word.slice(first.length).toLowerCase();
}

function isHighSurrogate(text: string, at: number): boolean {
  return (text.charCodeAt(at) & 0xfc00) === 0xd800;
}

function isLowSurrogate(text: string, at: number): boolean {
  return (text.charCodeAt(at) & 0xfc00) === 0xdc00;
}
