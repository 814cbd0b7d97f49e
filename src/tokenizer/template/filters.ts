import { PRICES, type TemplateBudget } from "./budget.ts";
import {
  type FieldLookup,
  floatOf,
  formatPercent,
  roundFloat,
  roundInteger,
  truncateFloat,
} from "./format.ts";
import { writeJson } from "./json.ts";
import { prettyPrint, urlize, wrapLines } from "./layout.ts";
import {
  callTextMethod,
  capitalizeText,
  justify,
  replaceText,
  splitLines,
  stripTags,
  stripText,
  TEXT_METHODS,
} from "./methods.ts";
import {
  Arguments,
  codePointCount,
  codePoints,
  compare,
  defined,
  Dict,
  DictView,
  equals,
  escapeHtml,
  hashKey,
  isInteger,
  isNumber,
  isText,
  isTrue,
  iterate,
  LazyValues,
  lengthOf,
  listOf,
  Markup,
  MAX_INTEGER_DIGITS,
  plain,
  Range,
  TemplateError,
  toIndex,
  toText,
  Tuple,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

/** The state of the interpreter that filters and tests depend on. */
export interface FilterContext extends FieldLookup {
  readonly budget: TemplateBudget;
  /** True inside of `{% autoescape true %}`. */
  readonly escapes: boolean;
  /** Returns an attribute; an item with the same name does not count. */
  attributeOnly(object: Value, name: string): Value;
  filter(name: string, value: Value, args: Arguments): Value;
  test(name: string, value: Value, args: Arguments): boolean;
  add(left: Value, right: Value): Value;
}

/** Filter of the value before `|`, with the arguments in parentheses. */
export type Filter = (value: Value, args: Arguments, context: FilterContext) => Value;

/** Converts a value to text, as it prints; `Markup` stays `Markup`. */
function softText(value: Value, budget: TemplateBudget): string | Markup {
  return isText(value) ? value : toText(value, budget);
}

function textOf(value: Value, filter: string): string {
  if (value instanceof Undefined) throw value.error();
  if (!isText(value)) {
    throw new TemplateError(`the filter ${filter} needs text, not ${typeName(value)}`);
  }
  return plain(value);
}

function integerOf(value: Value | undefined, what: string, fallback: number): number {
  if (value === undefined) return fallback;
  if (value instanceof Undefined) throw value.error();
  if (!isInteger(value)) throw new TemplateError(`${what} must be an int, not ${typeName(value)}`);
  return toIndex(value);
}

/** Applies a text method to any value, converted to text first. */
function textFilter(name: string, ...parameters: string[]): Filter {
  const method = TEXT_METHODS.get(name)!;
  return (value, args, { budget }) => {
    const bound = args.bind(name, ...parameters).filter((arg) => arg !== undefined);
    return callTextMethod(method, name, softText(value, budget), new Arguments(bound), budget);
  };
}

const capitalize: Filter = (value, args, { budget }) => {
  args.bind("capitalize");
  return mapText(softText(value, budget), 3, capitalizeText, budget);
};

/** Unlike the method, the filter leaves the `t` of `don't` alone. */
const title: Filter = (value, args, { budget }) => {
  args.bind("title");
  const text = plain(softText(value, budget));
  budget.payText(3 * text.length);
  // As in Jinja, a digraph at the start becomes uppercase, not title case as in `capitalize`.
  return text.replace(/[^-\s({[<]+/gu, (word) => {
    const [first = ""] = word;
    return first.toUpperCase() + word.slice(first.length).toLowerCase();
  });
};

function mapText(
  text: string | Markup,
  growth: number,
  convert: (text: string) => string,
  budget: TemplateBudget,
): string | Markup {
  budget.payText(growth * plain(text).length);
  const converted = convert(plain(text));
  return text instanceof Markup ? new Markup(converted) : converted;
}

const trim: Filter = (value, args, { budget }) => {
  const [characters] = args.bind("trim", "chars?");
  const text = softText(value, budget);
  const stripped = stripText(plain(text), characters, budget);
  return text instanceof Markup ? new Markup(stripped) : stripped;
};

const replace: Filter = (value, args, { budget, escapes }) => {
  const [from, to, count] = args.bind("replace", "old", "new", "count?");
  const limit = integerOf(count ?? undefined, "the count", -1);
  const most = limit < 0 ? Infinity : limit;
  if (!escapes) {
    const [text, old, other] = [value, from!, to!].map((part) => toText(part, budget));
    return replaceText(text!, old!, other!, most, budget);
  }
  const isMarked = from instanceof Markup || to instanceof Markup;
  const text = isMarked ? escapeHtml(value, budget) : softText(value, budget);
  const replacement = text instanceof Markup ? escapeHtml(to!, budget).text : toText(to!, budget);
  const result = replaceText(plain(text), toText(from!, budget), replacement, most, budget);
  return text instanceof Markup ? new Markup(result) : result;
};

const indent: Filter = (value, args, { budget }) => {
  const [width, first, blank] = args.bind("indent", "width?", "first?", "blank?");
  const text = textOf(value, "indent");
  let margin: string;
  if (isText(width)) margin = plain(width);
  else {
    const spaces = Math.max(0, integerOf(width, "the width of indent", 4));
    budget.payText(spaces);
    margin = " ".repeat(spaces);
  }
  const lines = splitLines(`${text}\n`, false, budget);
  budget.payText(text.length + lines.length * margin.length);
  const indentsBlank = isTrue(blank ?? false);
  const indented = lines.map((line, index) => {
    return index > 0 && (indentsBlank || line !== "") ? margin + line : line;
  }).join("\n");
  const result = isTrue(first ?? false) ? margin + indented : indented;
  return value instanceof Markup ? new Markup(result) : result;
};

const truncate: Filter = (value, args, { budget }) => {
  const [length, kill, end, leeway] = args.bind(
    "truncate",
    "length?",
    "killwords?",
    "end?",
    "leeway?",
  );
  const limit = integerOf(length, "the length of truncate", 255);
  const mark = end === undefined ? "..." : textOf(end, "truncate");
  const extra = integerOf(leeway ?? undefined, "the leeway", 5);
  const room = limit - codePointCount(mark);
  if (room < 0 || extra < 0) {
    throw new TemplateError(
      `truncate got the length ${limit} and the leeway ${extra}; the length must hold "${mark}", ` +
        "the leeway must be 0 or more",
    );
  }
  if (lengthOf(value, budget) <= limit + extra) return value;
  const points = codePoints(textOf(value, "truncate"), budget);
  const part = points.slice(0, room);
  const text = typeof part === "string" ? part : part.join("");
  const space = text.lastIndexOf(" ");
  return (isTrue(kill ?? false) || space < 0 ? text : text.slice(0, space)) + mark;
};

const center: Filter = (value, args, { budget }) => {
  const width = integerOf(args.bind("center", "width?")[0], "the width of center", 80);
  return mapText(
    softText(value, budget),
    1,
    (text) => justify(text, width, " ", "center", budget),
    budget,
  );
};

const wordwrap: Filter = (value, args, { budget }) => {
  const [width, long, mark, hyphens] = args.bind(
    "wordwrap",
    "width?",
    "break_long_words?",
    "wrapstring?",
    "break_on_hyphens?",
  );
  const end = isText(mark) ? plain(mark) : "\n";
  const lines = wrapLines(splitLines(textOf(value, "wordwrap"), false, budget), {
    width: integerOf(width, "the width of wordwrap", 79),
    breaksLongWords: long === undefined || isTrue(long),
    breaksOnHyphens: hyphens === undefined || isTrue(hyphens),
  }, budget);
  budget.payText(lines.length * end.length);
  return lines.join(end);
};

const wordcount: Filter = (value, args, { budget }) => {
  args.bind("wordcount");
  const text = toText(value, budget);
  budget.payText(text.length);
  return BigInt(text.match(/[\p{L}\p{N}_]+/gu)?.length ?? 0);
};

const format: Filter = (value, args, { budget }) => {
  if (args.positional.length > 0 && args.named.size > 0) {
    throw new TemplateError(
      "the filter format got positional and named arguments; it takes one kind",
    );
  }
  const values = args.named.size > 0 ? new Dict(args.named) : new Tuple(args.positional);
  return formatPercent(softText(value, budget), values, budget);
};

const striptags: Filter = (value, args, { budget }) => {
  args.bind("striptags");
  return stripTags(toText(value, budget), budget);
};

const urlencode: Filter = (value, args, { budget }) => {
  args.bind("urlencode");
  const quoted = (part: Value, safe: string) => {
    const text = toText(part, budget);
    budget.payText(9 * text.length);
    return encodeURIComponent(text.toWellFormed()).replace(
      /[!'()*]|%2F/g,
      (character) => {
        if (character === "%2F") return safe.includes("/") ? "/" : "%2F";
        return `%${character.charCodeAt(0).toString(16).toUpperCase()}`;
      },
    );
  };
  if (isText(value) || !isIterable(value)) return quoted(value, "/");
  const pairs = value instanceof Dict ? new DictView(value, "items") : value;
  return Array.from(iterate(pairs, budget), (pair) => {
    const parts = listOf(pair, budget);
    if (parts.length !== 2) {
      throw new TemplateError(`urlencode got a list of ${parts.length}; it takes pairs`);
    }
    return parts.map((part) => quoted(part, "").replaceAll("%20", "+")).join("=");
  }).join("&");
};

const xmlattr: Filter = (value, args, { budget, escapes }) => {
  const [autospace] = args.bind("xmlattr", "autospace?");
  if (!(value instanceof Dict)) {
    throw new TemplateError(`the filter xmlattr needs a dict, not ${typeName(value)}`);
  }
  const attributes: string[] = [];
  for (const [key, item] of value.entries()) {
    if (item === null || item instanceof Undefined) continue;
    const name = textOf(key, "xmlattr");
    if (/[\s/>=]/.test(name)) {
      throw new TemplateError(`"${name}" is not a name of an XML attribute`);
    }
    attributes.push(`${escapeHtml(name, budget).text}="${escapeHtml(item, budget).text}"`);
  }
  const text =
    (attributes.length > 0 && (autospace === undefined || isTrue(autospace)) ? " " : "") +
    attributes.join(" ");
  return escapes ? new Markup(text) : text;
};

const int: Filter = (value, args, { budget }) => {
  const [fallback = 0n, base] = args.bind("int", "default?", "base?");
  if (value instanceof Undefined) throw value.error();
  if (isInteger(value)) return BigInt(value);
  if (typeof value === "number") return Number.isNaN(value) ? fallback : truncateFloat(value);
  if (!isText(value)) return fallback;
  const text = stripText(plain(value), undefined, budget);
  // Reading digits takes time with the square of their number.
  budget.pay(Math.min(text.length, MAX_INTEGER_DIGITS) ** 2 * PRICES.scan / 16);
  const parsed = parseInteger(text, integerOf(base, "the base of int", 10));
  if (parsed !== undefined) return parsed;
  const number = parseNumber(text);
  return number === undefined || !Number.isFinite(number) ? fallback : BigInt(Math.trunc(number));
};

const float: Filter = (value, args, { budget }) => {
  const [fallback = 0] = args.bind("float", "default?");
  if (value instanceof Undefined) throw value.error();
  if (isNumber(value)) return floatOf(value, "the filter float");
  if (!isText(value)) return fallback;
  return parseNumber(stripText(plain(value), undefined, budget)) ?? fallback;
};

/** Reads an int as Python's `int(text, base)`. */
function parseInteger(text: string, base: number): bigint | undefined {
  const match = /^([-+]?)(0[bBoOxX])?(_?[\da-zA-Z]+(?:_[\da-zA-Z]+)*)$/.exec(text);
  if (match === null || text.length > MAX_INTEGER_DIGITS) return undefined;
  const [, sign, prefix, grouped = ""] = match;
  let digits = grouped.replaceAll("_", "").toLowerCase();
  let radix = base;
  if (prefix !== undefined) {
    const implied = { b: 2, o: 8, x: 16 }[prefix[1]!.toLowerCase()];
    if (base === 0 || base === implied) radix = implied!;
    else digits = prefix.toLowerCase() + digits;
  } else if (grouped.startsWith("_")) return undefined;
  if (radix === 0) radix = 10;
  let value = 0n;
  for (const digit of digits) {
    const number = parseInt(digit, 36);
    if (!(number < radix)) return undefined;
    value = value * BigInt(radix) + BigInt(number);
  }
  return sign === "-" ? -value : value;
}

/** Reads a float as Python's `float(text)`. */
function parseNumber(text: string): number | undefined {
  if (/^[-+]?(?:inf|infinity)$/i.test(text)) return text.startsWith("-") ? -Infinity : Infinity;
  if (/^[-+]?nan$/i.test(text)) return NaN;
  const number =
    /^[-+]?(?:\d+(?:_\d+)*\.?(?:\d+(?:_\d+)*)?|\.\d+(?:_\d+)*)(?:e[-+]?\d+(?:_\d+)*)?$/i;
  return number.test(text) ? Number(text.replaceAll("_", "")) : undefined;
}

const abs: Filter = (value, args) => {
  args.bind("abs");
  if (value instanceof Undefined) throw value.error();
  if (!isNumber(value)) {
    throw new TemplateError(`the filter abs needs a number, not ${typeName(value)}`);
  }
  if (typeof value === "number") return Math.abs(value);
  return BigInt(value) < 0n ? -BigInt(value) : BigInt(value);
};

const round: Filter = (value, args) => {
  const [precision, method] = args.bind("round", "precision?", "method?");
  if (value instanceof Undefined) throw value.error();
  const how = method === undefined ? "common" : isText(method) ? plain(method) : typeName(method);
  if (!["common", "ceil", "floor"].includes(how)) {
    throw new TemplateError(`round has no method "${how}"; valid is "common", "ceil" or "floor"`);
  }
  const digits = integerOf(precision, "the precision of round", 0);
  if (!isNumber(value)) throw new TemplateError(`round needs a number, not ${typeName(value)}`);
  if (how === "common") {
    if (typeof value === "number") return roundFloat(value, digits);
    return roundInteger(BigInt(value), digits);
  }
  const unit = 10 ** digits;
  const scaled = Number(value) * unit;
  const whole = truncateFloat(how === "ceil" ? Math.ceil(scaled) : Math.floor(scaled));
  return Number(whole) / unit;
};

const filesizeformat: Filter = (value, args, { budget }) => {
  const isBinary = isTrue(args.bind("filesizeformat", "binary?")[0] ?? false);
  const size = isText(value) ? parseNumber(stripText(plain(value), undefined, budget)) : undefined;
  const bytes = size ?? floatOf(value, "the filter filesizeformat");
  const base = isBinary ? 1024 : 1000;
  if (bytes === 1) return "1 Byte";
  if (bytes < base) return `${truncateFloat(bytes)} Bytes`;
  const prefixes = [...(isBinary ? "KMGTPEZY" : "kMGTPEZY")];
  let power = 1;
  // As in Python, a limit beyond 2^53 is exact.
  while (power < prefixes.length && bytes >= BigInt(base) ** BigInt(power + 1)) power++;
  const amount = formatPercent("%.1f", base * bytes / base ** (power + 1), budget);
  return `${plain(amount)} ${prefixes[power - 1]}${isBinary ? "iB" : "B"}`;
};

const fallback: Filter = (value, args) => {
  const [other = "", boolean = false] = args.bind("default", "default_value?", "boolean?");
  return value instanceof Undefined || (isTrue(boolean) && !isTrue(value)) ? other : value;
};

const first: Filter = (value, args, { budget }) => {
  args.bind("first");
  for (const item of iterate(value, budget)) return item;
  return new Undefined(() => "the sequence is empty and has no first item");
};

const last: Filter = (value, args, { budget }) => {
  args.bind("last");
  if (value instanceof LazyValues) {
    throw new TemplateError("the filter last needs a list, not a generator");
  }
  const item = listOf(value, budget).at(-1);
  if (value instanceof Markup && typeof item === "string") return new Markup(item);
  return defined(item, () => "the sequence is empty and has no last item");
};

const random: Filter = (value, args, { budget }) => {
  args.bind("random");
  if (!isSequence(value) || value instanceof Dict) {
    throw new TemplateError(`the filter random needs a list, not ${typeName(value)}`);
  }
  const items = listOf(value, budget);
  const chosen = items[Math.floor(Math.random() * items.length)];
  return defined(chosen, () => "the sequence is empty and has no item to choose");
};

const reverse: Filter = (value, args, { budget }) => {
  args.bind("reverse");
  const items = listOf(value, budget).reverse();
  if (isText(value)) {
    const text = items.map((item) => toText(item, budget)).join("");
    return value instanceof Markup ? new Markup(text) : text;
  }
  return value instanceof LazyValues ? items : new LazyValues(items);
};

const join: Filter = (value, args, context) => {
  const { budget, escapes } = context;
  const [separator = "", attribute] = args.bind("join", "d?", "attribute?");
  const pick = attributeGetter(attribute, context);
  const items = Array.from(iterate(value, budget), pick);
  const isMarked = escapes &&
    (separator instanceof Markup || items.some((item) => item instanceof Markup));
  const write = (part: Value) => isMarked ? escapeHtml(part, budget).text : toText(part, budget);
  const between = write(separator);
  const texts = items.map((item) => {
    const text = write(item);
    budget.pay(PRICES.value);
    budget.payText(text.length + between.length);
    return text;
  });
  const text = texts.join(between);
  return isMarked ? new Markup(text) : text;
};

const items: Filter = (value, args) => {
  args.bind("items");
  if (value instanceof Undefined) return new LazyValues([]);
  if (!(value instanceof Dict)) {
    throw new TemplateError(`the filter items needs a dict, not ${typeName(value)}`);
  }
  return new LazyValues(new DictView(value, "items").items());
};

const list: Filter = (value, args, { budget }) => {
  args.bind("list");
  return listOf(value, budget);
};

/** Splits `a.b.0` into the names and indexes of a path. */
function pathOf(attribute: Value | undefined, context: FilterContext): Value[] {
  if (attribute === undefined || attribute === null) return [];
  if (!isText(attribute)) return [attribute];
  const path = plain(attribute);
  context.budget.pay(path.length * PRICES.visit);
  return path.split(".").map((part) => /^\d+$/.test(part) ? BigInt(part) : part);
}

/**
 * Returns a function that follows a path of attributes; without a path, it returns its argument.
 */
function attributeGetter(
  attribute: Value | undefined,
  context: FilterContext,
  missing: Value = null,
): (value: Value) => Value {
  const path = pathOf(attribute, context);
  return (value) => {
    let found = value;
    for (const part of path) {
      context.budget.pay(PRICES.value);
      found = context.item(found, part);
      if (missing !== null && found instanceof Undefined) found = missing;
    }
    return found;
  };
}

function foldCase(value: Value, budget: TemplateBudget): Value {
  if (!isText(value)) return value;
  budget.payText(3 * plain(value).length);
  return plain(value).toLowerCase();
}

/** Sorts values by keys, keeping the order of values with equal keys. */
function sortBy(
  values: readonly Value[],
  keyOf: (value: Value) => Value,
  isReversed: boolean,
  budget: TemplateBudget,
): Value[] {
  budget.pay(values.length * (1 + Math.log2(1 + values.length)) * PRICES.visit);
  const keyed = values.map((value) => ({ value, key: keyOf(value) }));
  if (isReversed) keyed.reverse();
  keyed.sort((a, b) => compare(a.key, b.key, budget));
  if (isReversed) keyed.reverse();
  return keyed.map(({ value }) => value);
}

const sort: Filter = (value, args, context) => {
  const [reversed = false, isSensitive = false, attribute] = args.bind(
    "sort",
    "reverse?",
    "case_sensitive?",
    "attribute?",
  );
  const paths = isText(attribute) ? plain(attribute).split(",") : [attribute];
  const getters = paths.map((path) => attributeGetter(path, context));
  // Lists of keys have an order even if equal parts of them, such as None, have none.
  const keyOf = (item: Value) =>
    getters.map((pick) => isTrue(isSensitive) ? pick(item) : foldCase(pick(item), context.budget));
  const isReversed = integerOf(reversed, "the argument reverse of sort", 0) !== 0;
  return sortBy(listOf(value, context.budget), keyOf, isReversed, context.budget);
};

const dictsort: Filter = (value, args, { budget }) => {
  const [isSensitive = false, by = "key", reversed = false] = args.bind(
    "dictsort",
    "case_sensitive?",
    "by?",
    "reverse?",
  );
  const part = ["key", "value"].indexOf(isText(by) ? plain(by) : "");
  if (part < 0) throw new TemplateError('dictsort got an unknown order; valid is "key" or "value"');
  if (!(value instanceof Dict)) {
    throw new TemplateError(`the filter dictsort needs a dict, not ${typeName(value)}`);
  }
  const keyOf = (item: Value) => {
    const key = (item as Tuple).items[part]!;
    return isTrue(isSensitive) ? key : foldCase(key, budget);
  };
  const isReversed = integerOf(reversed, "the argument reverse of dictsort", 0) !== 0;
  return sortBy(listOf(new DictView(value, "items"), budget), keyOf, isReversed, budget);
};

const unique: Filter = (value, args, context) => {
  const [isSensitive = false, attribute] = args.bind("unique", "case_sensitive?", "attribute?");
  const pick = attributeGetter(attribute, context);
  return new LazyValues(function* (): Generator<Value> {
    const seen = new Set<unknown>();
    for (const item of iterate(value, context.budget)) {
      context.budget.pay(PRICES.value);
      const key = isTrue(isSensitive) ? pick(item) : foldCase(pick(item), context.budget);
      const hash = hashKey(key);
      if (seen.has(hash)) continue;
      seen.add(hash);
      yield item;
    }
  }());
};

function extreme(name: "min" | "max"): Filter {
  return (value, args, context) => {
    const [isSensitive = false, attribute] = args.bind(name, "case_sensitive?", "attribute?");
    const pick = attributeGetter(attribute, context);
    let best: { item: Value; key: Value } | undefined;
    for (const item of iterate(value, context.budget)) {
      const key = isTrue(isSensitive) ? pick(item) : foldCase(pick(item), context.budget);
      const order = best === undefined ? 1 : compare(key, best.key, context.budget);
      if (best === undefined || (name === "min" ? order < 0 : order > 0)) best = { item, key };
    }
    return defined(best?.item, () => `the list of the filter ${name} is empty`);
  };
}

const sum: Filter = (value, args, context) => {
  const [attribute, start = 0n] = args.bind("sum", "attribute?", "start?");
  if (isText(start)) throw new TemplateError("the filter sum cannot add text; use join");
  const pick = attributeGetter(attribute, context);
  let total: Value = start;
  for (const item of iterate(value, context.budget)) total = context.add(total, pick(item));
  return total;
};

const groupby: Filter = (value, args, context) => {
  const { budget } = context;
  const [attribute, missing = null, isSensitive = false] = args.bind(
    "groupby",
    "attribute",
    "default?",
    "case_sensitive?",
  );
  const pick = attributeGetter(attribute, context, missing);
  const keyOf = (item: Value) => isTrue(isSensitive) ? pick(item) : foldCase(pick(item), budget);
  const groups: { key: Value; items: Value[] }[] = [];
  for (const item of sortBy(listOf(value, budget), keyOf, false, budget)) {
    const key = keyOf(item);
    const group = groups.at(-1);
    if (group !== undefined && equals(group.key, key, budget)) group.items.push(item);
    else groups.push({ key, items: [item] });
  }
  return groups.map(({ items }) => new Tuple([pick(items[0]!), items], ["grouper", "list"]));
};

const batch: Filter = (value, args, { budget }) => {
  const [count, fill = null] = args.bind("batch", "linecount", "fill_with?");
  const size = integerOf(count, "the size of batch", 0);
  return new LazyValues(function* (): Generator<Value> {
    let row: Value[] = [];
    for (const item of iterate(value, budget)) {
      if (row.length === size) {
        yield row;
        row = [];
      }
      budget.pay(PRICES.value);
      row.push(item);
    }
    if (row.length === 0) return;
    if (fill !== null) budget.pay(Math.max(0, size - row.length) * PRICES.value);
    while (fill !== null && row.length < size) row.push(fill);
    yield row;
  }());
};

const slice: Filter = (value, args, { budget }) => {
  const [count, fill = null] = args.bind("slice", "slices", "fill_with?");
  const slices = integerOf(count, "the number of slices", 0);
  return new LazyValues(function* (): Generator<Value> {
    const all = listOf(value, budget);
    if (slices === 0) throw new TemplateError("the filter slice got 0 slices; it needs 1 or more");
    const length = Math.floor(all.length / slices);
    const longer = all.length % slices;
    let start = 0;
    for (let index = 0; index < slices; index++) {
      budget.pay(PRICES.turn);
      const end = start + length + (index < longer ? 1 : 0);
      const column = all.slice(start, end);
      if (fill !== null && index >= longer) column.push(fill);
      yield column;
      start = end;
    }
  }());
};

/** Maps items by an attribute or a filter. A value that counts as false maps to nothing. */
const map: Filter = (value, args, context) => {
  return new LazyValues(function* (): Generator<Value> {
    if (!isTrue(value)) return;
    const convert = mapping(args, context);
    for (const item of iterate(value, context.budget)) {
      context.budget.pay(PRICES.turn);
      yield convert(item);
    }
  }());
};

function mapping(args: Arguments, context: FilterContext): (value: Value) => Value {
  const [name, ...rest] = args.positional;
  if (name === undefined) {
    const named = new Map(args.named);
    const attribute = named.get("attribute");
    if (attribute === undefined) {
      throw new TemplateError("the filter map got neither a filter nor an attribute");
    }
    named.delete("attribute");
    const [missing = null] = new Arguments([], named).bind("map", "default?");
    return attributeGetter(attribute, context, missing);
  }
  const filter = textOf(name, "map");
  return (item) => context.filter(filter, item, new Arguments(rest, args.named));
}

/** `select`, `reject` and their forms that test an attribute. */
function selection(name: string, byAttribute: boolean, wanted: boolean): Filter {
  return (value, args, context) => {
    return new LazyValues(function* (): Generator<Value> {
      if (!isTrue(value)) return;
      const positional = [...args.positional];
      const attribute = byAttribute ? positional.shift() : undefined;
      if (byAttribute && attribute === undefined) {
        throw new TemplateError(`the filter ${name} got no attribute`);
      }
      const pick = attributeGetter(attribute, context);
      const test = positional.shift();
      const rest = new Arguments(positional, args.named);
      for (const item of iterate(value, context.budget)) {
        context.budget.pay(PRICES.turn);
        const tested = pick(item);
        const holds = test === undefined
          ? isTrue(tested)
          : context.test(textOf(test, name), tested, rest);
        if (holds === wanted) yield item;
      }
    }());
  };
}

const attr: Filter = (value, args, context) => {
  const [name] = args.bind("attr", "name");
  return context.attributeOnly(value, textOf(name!, "attr"));
};

const tojson: Filter = (value, args, { budget }) => {
  const [ascii = false, indent = null, separators = null, sortKeys = false] = args.bind(
    "tojson",
    "ensure_ascii?",
    "indent?",
    "separators?",
    "sort_keys?",
  );
  return writeJson(value, {
    ascii: isTrue(ascii),
    indent: isText(indent)
      ? plain(indent)
      : indent === null
      ? undefined
      : Math.max(0, integerOf(indent, "the indent of tojson", 0)),
    separators: separators === null ? undefined : separatorsOf(separators, budget),
    sortsKeys: isTrue(sortKeys),
  }, budget);
};

function separatorsOf(value: Value, budget: TemplateBudget): [string, string] {
  const parts = listOf(value, budget);
  if (parts.length !== 2) {
    throw new TemplateError(`tojson got ${parts.length} separators; it takes 2`);
  }
  return parts.map((part) => textOf(part, "tojson")) as [string, string];
}

const length: Filter = (value, args, { budget }) => {
  args.bind("length");
  return BigInt(lengthOf(value, budget));
};

const escape: Filter = (value, args, { budget }) => {
  args.bind("escape");
  return escapeHtml(value, budget);
};

/** Filters by name. */
export const FILTERS: ReadonlyMap<string, Filter> = new Map<string, Filter>([
  ["abs", abs],
  ["attr", attr],
  ["batch", batch],
  ["capitalize", capitalize],
  ["center", center],
  ["count", length],
  ["d", fallback],
  ["default", fallback],
  ["dictsort", dictsort],
  ["e", escape],
  ["escape", escape],
  ["filesizeformat", filesizeformat],
  ["first", first],
  ["float", float],
  ["forceescape", (value, args, { budget }) => {
    args.bind("forceescape");
    return escapeHtml(toText(value, budget), budget);
  }],
  ["format", format],
  ["groupby", groupby],
  ["indent", indent],
  ["int", int],
  ["items", items],
  ["join", join],
  ["last", last],
  ["length", length],
  ["list", list],
  ["lower", textFilter("lower")],
  ["map", map],
  ["max", extreme("max")],
  ["min", extreme("min")],
  ["pprint", (value, args, { budget }) => {
    args.bind("pprint");
    return prettyPrint(value, budget);
  }],
  ["random", random],
  ["reject", selection("reject", false, false)],
  ["rejectattr", selection("rejectattr", true, false)],
  ["replace", replace],
  ["reverse", reverse],
  ["round", round],
  ["safe", (value, args, { budget }) => {
    args.bind("safe");
    return new Markup(toText(value, budget));
  }],
  ["select", selection("select", false, true)],
  ["selectattr", selection("selectattr", true, true)],
  ["slice", slice],
  ["sort", sort],
  ["string", (value, args, { budget }) => {
    args.bind("string");
    return softText(value, budget);
  }],
  ["striptags", striptags],
  ["sum", sum],
  ["title", title],
  ["tojson", tojson],
  ["trim", trim],
  ["truncate", truncate],
  ["unique", unique],
  ["upper", textFilter("upper")],
  ["urlencode", urlencode],
  ["urlize", (value, args, { budget, escapes }) => {
    const text = urlize(value, args, budget);
    return escapes ? new Markup(text) : text;
  }],
  ["wordcount", wordcount],
  ["wordwrap", wordwrap],
  ["xmlattr", xmlattr],
]);

/** True if a loop can iterate over a value. */
export function isIterable(value: Value): boolean {
  return Array.isArray(value) || isText(value) || value instanceof Tuple || value instanceof Dict ||
    value instanceof DictView || value instanceof Range || value instanceof LazyValues ||
    value instanceof Undefined;
}

/** True if items of a value can be read by position or key. */
export function isSequence(value: Value): boolean {
  return isIterable(value) && !(value instanceof DictView || value instanceof LazyValues);
}
