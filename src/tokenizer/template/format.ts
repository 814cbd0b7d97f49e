import { PRICES, type TemplateBudget } from "./budget.ts";
import {
  type Arguments,
  codePointCount,
  codePoints,
  Dict,
  escapeCodePoint,
  escapeHtml,
  floatText,
  integerText,
  isInteger,
  isNumber,
  isText,
  Markup,
  plain,
  Range,
  repr,
  TemplateError,
  toIndex,
  toText,
  Tuple,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

/** Most digits before or after the point that a format can ask for. */
const MAX_PRECISION = 2000;

/** Python's `format % value`, where `format` is text. */
export function formatPercent(
  format: string | Markup,
  value: Value,
  budget: TemplateBudget,
): string | Markup {
  const source = plain(format);
  const items = value instanceof Tuple ? value.items : [value];
  let used = 0;
  const take = () => {
    if (used >= items.length) {
      throw new TemplateError(`% has ${items.length} values; its format needs more`);
    }
    return items[used++]!;
  };
  const directive = /%(?:\(([^)]*)\))?([-+ #0]*)(\*|\d+)?(?:\.(\*|\d*))?[hlL]?([^]?)/g;
  budget.pay(source.length * PRICES.scan);
  let isMapped = false;
  let text = "";
  let copied = 0;
  // Directives are matched one at a time, so that an invalid one ends the search.
  for (const match of source.matchAll(directive)) {
    const [whole, key, flags = "", width, precision, type = ""] = match;
    text += source.slice(copied, match.index);
    copied = match.index + whole.length;
    budget.pay(PRICES.value);
    if (whole === "%%") {
      text += "%";
      continue;
    }
    if (type === "") {
      throw new TemplateError(`the format of % ends within the directive "${whole}"`);
    }
    const spec: NumberFormat = {
      sign: flags.includes("+") ? "+" : flags.includes(" ") ? " " : "-",
      alternate: flags.includes("#"),
    };
    let left = flags.includes("-");
    let size = width === "*" ? countOf(take()) : Number(width ?? 0);
    if (size < 0) [left, size] = [true, -size];
    const digits = precision === "*"
      ? countOf(take())
      : precision === undefined
      ? undefined
      : Number(precision || 0);
    let item: Value;
    if (key === undefined) item = take();
    else {
      isMapped = true;
      if (!(value instanceof Dict)) {
        throw new TemplateError(`% with names needs a dict, not ${typeName(value)}`);
      }
      const found = value.get(key);
      if (found === undefined) throw new TemplateError(`the dict of % has no key "${key}"`);
      item = found;
    }
    checkPrecision(digits, budget);
    const body = percentText(type, item, digits, spec, format instanceof Markup, budget);
    text += padNumber(
      body,
      size,
      left,
      flags.includes("0") && "diuxXofFeEgG".includes(type),
      budget,
    );
  }
  text += source.slice(copied);
  // As in Python, a value with items need not be used.
  const hasItems = Array.isArray(value) || value instanceof Dict || value instanceof Range ||
    value instanceof Undefined;
  if (!isMapped && !hasItems && used < items.length) {
    throw new TemplateError(`% has ${items.length} values; its format needs ${used}`);
  }
  budget.payText(text.length);
  return format instanceof Markup ? new Markup(text) : text;
}

/** Pads text on the left to a width, with spaces or with zeros after its sign. */
function padNumber(
  text: string,
  width: number,
  left: boolean,
  zeros: boolean,
  budget: TemplateBudget,
): string {
  const fill = width - codePointCount(text);
  if (fill <= 0) return text;
  budget.payText(fill);
  if (left) return text + " ".repeat(fill);
  if (!zeros) return " ".repeat(fill) + text;
  const prefix = /^[-+ ]?(?:0[xXo])?/.exec(text)![0];
  return prefix + "0".repeat(fill) + text.slice(prefix.length);
}

function percentText(
  type: string,
  item: Value,
  precision: number | undefined,
  spec: NumberFormat,
  escapes: boolean,
  budget: TemplateBudget,
): string {
  switch (type) {
    case "s":
    case "r":
    case "a": {
      const printed = type === "s" ? item : type === "r" ? repr(item, budget) : ascii(item, budget);
      const text = escapes ? escapeHtml(printed, budget).text : toText(printed, budget);
      return precision === undefined ? text : truncate(text, precision, budget);
    }
    case "c":
      if (isText(item) && codePointCount(plain(item)) === 1) return plain(item);
      if (isInteger(item)) return String.fromCodePoint(toIndex(item));
      throw new TemplateError(`%c needs an int or one character, not ${typeName(item)}`);
    case "d":
    case "i":
    case "u":
    case "x":
    case "X":
    case "o": {
      const isDecimal = "diu".includes(type);
      if (!isNumber(item) || (!isDecimal && typeof item === "number")) {
        throw new TemplateError(`%${type} needs a number, not ${typeName(item)}`);
      }
      const integer = typeof item === "number" ? truncateFloat(item) : BigInt(item);
      const digits = integerDigits(integer, isDecimal ? "d" : type, budget).padStart(
        precision ?? 0,
        "0",
      );
      const prefix = spec.alternate && !isDecimal ? `0${type}` : "";
      return signOf(integer < 0n, spec.sign) + prefix + digits;
    }
    case "e":
    case "E":
    case "f":
    case "F":
    case "g":
    case "G":
      return floatFormat(floatOf(item, `%${type}`), type, precision ?? 6, spec);
  }
  throw new TemplateError(`unknown format %${type}`);
}

/** Python's `format.format(*args)`. If the format is marked safe, what it inserts is escaped. */
export function formatBraces(
  format: string | Markup,
  args: Arguments,
  lookUp: FieldLookup,
  budget: TemplateBudget,
): string | Markup {
  const text = new BraceFormatter(args, lookUp, format instanceof Markup, budget).format(
    plain(format),
    2,
  );
  budget.payText(text.length);
  return format instanceof Markup ? new Markup(text) : text;
}

/** Resolves attributes and items in fields such as `{0.name[key]}`. */
export interface FieldLookup {
  attribute(object: Value, name: string): Value;
  item(object: Value, index: Value): Value;
}

class BraceFormatter {
  readonly #args: Arguments;
  readonly #lookUp: FieldLookup;
  readonly #escapes: boolean;
  readonly #budget: TemplateBudget;
  #automatic = 0;
  #numbering: "automatic" | "explicit" | undefined;

  constructor(args: Arguments, lookUp: FieldLookup, escapes: boolean, budget: TemplateBudget) {
    this.#args = args;
    this.#lookUp = lookUp;
    this.#escapes = escapes;
    this.#budget = budget;
  }

  format(source: string, depth: number): string {
    if (depth < 0) {
      throw new TemplateError("the fields of format() are nested more than 2 levels deep");
    }
    this.#budget.payText(source.length);
    let result = "";
    for (let at = 0; at < source.length;) {
      const open = source.slice(at).search(/[{}]/);
      if (open < 0) return result + source.slice(at);
      this.#budget.pay(PRICES.value + source.length * PRICES.scan);
      result += source.slice(at, at + open);
      at += open;
      if (source[at + 1] === source[at]) {
        result += source[at];
        at += 2;
        continue;
      }
      if (source[at] === "}") {
        throw new TemplateError('format() found a single "}"; write "}}" for the character');
      }
      const end = endOfField(source, at + 1);
      result += this.#field(source.slice(at + 1, end), depth);
      at = end + 1;
    }
    return result;
  }

  #field(field: string, depth: number): string {
    const match = /^((?:[^!:[]|\[[^\]]*\])*)(?:!([^:]*))?(?::([^]*))?$/.exec(field);
    if (match === null) throw new TemplateError(`format() cannot read the field "{${field}}"`);
    const [, name = "", conversion, spec = ""] = match;
    let value = this.#value(name);
    if (conversion !== undefined) value = this.#convert(value, conversion);
    const text = formatValue(value, this.format(spec, depth - 1), this.#budget);
    if (!this.#escapes || value instanceof Markup) return text;
    return escapeHtml(text, this.#budget).text;
  }

  #value(name: string): Value {
    const first = /^[^.[]*/.exec(name)![0];
    let value = this.#argument(first);
    const rest = name.slice(first.length);
    const parts = /\.([^.[]+)|\[([^\]]+)\]/gy;
    while (parts.lastIndex < rest.length) {
      const part = parts.exec(rest);
      if (part === null) throw new TemplateError(`format() cannot read the field "{${name}}"`);
      const [, attribute, index = ""] = part;
      if (attribute !== undefined) value = this.#lookUp.attribute(value, attribute);
      else value = this.#lookUp.item(value, /^\d+$/.test(index) ? BigInt(index) : index);
    }
    return value;
  }

  #argument(name: string): Value {
    if (name !== "" && !/^\d+$/.test(name)) {
      const value = this.#args.named.get(name);
      if (value === undefined) throw new TemplateError(`format() has no argument "${name}"`);
      return value;
    }
    const numbering = name === "" ? "automatic" : "explicit";
    if (this.#numbering !== undefined && this.#numbering !== numbering) {
      throw new TemplateError("format() got numbered and unnumbered fields; it takes one kind");
    }
    this.#numbering = numbering;
    const index = name === "" ? this.#automatic++ : Number(name);
    const value = this.#args.positional[index];
    if (value === undefined) throw new TemplateError(`format() has no argument ${index}`);
    return value;
  }

  #convert(value: Value, conversion: string): Value {
    if (conversion === "s") return toText(value, this.#budget);
    if (conversion === "r") return repr(value, this.#budget);
    if (conversion === "a") return ascii(value, this.#budget);
    throw new TemplateError(`format() has no conversion "!${conversion}"`);
  }
}

function endOfField(source: string, start: number): number {
  let depth = 1;
  for (let at = start; at < source.length; at++) {
    if (source[at] === "{") depth++;
    else if (source[at] === "}" && --depth === 0) return at;
  }
  throw new TemplateError('format() found "{" without a closing "}"');
}

const SPECIFICATION =
  /^(?:([^])?([<>=^]))?([-+ ])?(z)?(#)?(0)?(\d+)?([_,])?(?:\.(\d+))?([a-zA-Z%])?$/u;

/** Python's `format(value, specification)`. */
function formatValue(value: Value, specification: string, budget: TemplateBudget): string {
  if (specification === "") return toText(value, budget);
  const match = SPECIFICATION.exec(specification);
  const unknown = () => {
    const what = `"${specification}" for ${typeName(value)}`;
    return new TemplateError(`format() has no format ${what}`);
  };
  if (match === null) throw unknown();
  const [, fill, align, sign, , alternate, zero, width = "0", group, precision, type] = match;
  const digits = precision === undefined ? undefined : Number(precision);
  checkPrecision(digits, budget);
  const spec: NumberFormat = { sign: sign ?? "-", alternate: alternate !== undefined, group };
  let text: string;
  if (isText(value)) {
    const isOfNumbers = sign !== undefined || spec.alternate || group !== undefined;
    if ((type ?? "s") !== "s" || isOfNumbers || align === "=") {
      throw unknown();
    }
    text = plain(value);
    if (digits !== undefined) text = truncate(text, digits, budget);
  } else if (isNumber(value)) {
    if (isInteger(value) && "bcdoxXn".includes(type ?? "d")) {
      const isGroupable = group === undefined || (type ?? "d") === "d" ||
        (group === "_" && "boxX".includes(type!));
      const isPlainCharacter = sign === undefined && alternate === undefined;
      if (digits !== undefined || !isGroupable || (type === "c" && !isPlainCharacter)) {
        throw unknown();
      }
      text = type === "c"
        ? String.fromCodePoint(toIndex(value))
        : integerFormat(BigInt(value), type ?? "d", spec, budget);
    } else if (type === undefined || "eEfFgGn%".includes(type)) {
      if (type === "n" && group !== undefined) throw unknown();
      const number = floatOf(value, "format()");
      if (type === "%") text = floatFormat(number * 100, "f", digits ?? 6, spec) + "%";
      else if (type !== undefined) text = floatFormat(number, type, digits ?? 6, spec);
      else text = generalFormat(number, digits, spec);
    } else throw unknown();
  } else throw unknown();
  const size = Number(width);
  const missing = size - codePointCount(text);
  if (missing <= 0) return text;
  budget.payText(missing);
  const filling = fill ?? (zero === undefined ? " " : "0");
  const side = align ?? (zero !== undefined && !isText(value) ? "=" : isText(value) ? "<" : ">");
  if (side === "<") return text + filling.repeat(missing);
  if (side === ">") return filling.repeat(missing) + text;
  if (side === "^") {
    const before = Math.floor(missing / 2);
    return filling.repeat(before) + text + filling.repeat(missing - before);
  }
  const prefix = /^[-+ ]?(?:0[xXob](?=.))?/.exec(text)![0];
  const body = text.slice(prefix.length);
  if (group === undefined || filling !== "0") return prefix + filling.repeat(missing) + body;
  const groupSize = "boxX".includes(type ?? "d") ? 4 : 3;
  return prefix + groupZeros(body, size - prefix.length, group, groupSize);
}

/** Pads a number on the left with zeros to a width that includes its separators. */
function groupZeros(body: string, width: number, group: string, groupSize: number): string {
  const [whole = ""] = (groupSize === 3 ? /^[\d_,]*/ : /^[\da-fA-F_]*/).exec(body)!;
  const rest = body.slice(whole.length);
  let digits = whole.replace(/[_,]/g, "");
  while (groupDigits(digits, group, groupSize).length + rest.length < width) digits = `0${digits}`;
  return groupDigits(digits, group, groupSize) + rest;
}

interface NumberFormat {
  /** Sign option: `+` or a space precede positive numbers, `-` adds nothing. */
  readonly sign: string;
  readonly alternate: boolean;
  /** Separator of groups of digits. */
  readonly group?: string | undefined;
}

function integerFormat(
  value: bigint,
  type: string,
  spec: NumberFormat,
  budget: TemplateBudget,
): string {
  const digits = groupDigits(
    integerDigits(value, type === "n" ? "d" : type, budget),
    spec.group,
    type === "d" || type === "n" ? 3 : 4,
  );
  const prefix = spec.alternate && "boxX".includes(type) ? `0${type}` : "";
  return signOf(value < 0n, spec.sign) + prefix + digits;
}

function integerDigits(value: bigint, type: string, budget: TemplateBudget): string {
  const magnitude = value < 0n ? -value : value;
  switch (type) {
    case "b":
      return magnitude.toString(2);
    case "o":
      return magnitude.toString(8);
    case "x":
      return magnitude.toString(16);
    case "X":
      return magnitude.toString(16).toUpperCase();
    default:
      return integerText(magnitude, budget);
  }
}

function groupDigits(digits: string, group: string | undefined, size: number): string {
  if (group === undefined) return digits;
  const [whole = "", rest] = digits.split(/(?=\.)/, 2);
  const grouped = whole.replace(new RegExp(`\\B(?=(?:[\\da-fA-F]{${size}})+$)`, "g"), group);
  return grouped + (rest ?? "");
}

/** Formats a float as `e`, `f` or `g`. */
function floatFormat(value: number, type: string, precision: number, spec: NumberFormat): string {
  const isNegative = value < 0 || Object.is(value, -0);
  const magnitude = Math.abs(value);
  let text: string;
  if (!Number.isFinite(value)) text = Number.isNaN(value) ? "nan" : "inf";
  else if (type === "f" || type === "F") text = fixed(magnitude, precision);
  else if (type === "e" || type === "E") text = exponential(magnitude, precision);
  else {
    const digits = Math.max(1, precision);
    const scientific = exponential(magnitude, digits - 1);
    const power = Number(scientific.split("e")[1]);
    text = power < -4 || power >= digits ? scientific : fixed(magnitude, digits - 1 - power);
    text = withoutZeros(text, spec);
  }
  if (spec.alternate && !text.includes(".") && Number.isFinite(value)) {
    text = text.replace(/(?=e|$)/, ".");
  }
  if (type === type.toUpperCase()) text = text.toUpperCase();
  return signOf(isNegative, spec.sign) + groupDigits(text, spec.group, 3);
}

/** Drops the zeros after the last digit of a fraction, unless the format is alternate. */
function withoutZeros(text: string, { alternate }: NumberFormat): string {
  return alternate ? text : text.replace(/(\.\d*?)0+(?=e|$)/, "$1").replace(/\.(?=e|$)/, "");
}

/** Formats a float without a type: like `g`, but with a digit after the point. */
function generalFormat(
  value: number,
  precision: number | undefined,
  spec: NumberFormat,
): string {
  const isNegative = value < 0 || Object.is(value, -0);
  let text = floatText(Math.abs(value));
  if (precision !== undefined && Number.isFinite(value)) {
    const digits = Math.max(1, precision);
    const scientific = exponential(Math.abs(value), digits - 1);
    const power = Number(scientific.split("e")[1]);
    text = floatFormat(Math.abs(value), "g", digits, { sign: "-", alternate: spec.alternate });
    if (!text.includes("e") && power >= digits - 1) text = withoutZeros(scientific, spec);
    else if (!text.includes("e") && !text.includes(".")) text += ".0";
  }
  return signOf(isNegative, spec.sign) + groupDigits(text, spec.group, 3);
}

function signOf(isNegative: boolean, sign: string): string {
  return isNegative ? "-" : sign === "-" ? "" : sign;
}

/** Returns the exact value of a positive float as a fraction of integers. */
function fractionOf(value: number): [numerator: bigint, denominator: bigint] {
  let denominator = 1n;
  let scaled = value;
  // Multiplying by a power of two is exact.
  while (!Number.isInteger(scaled)) {
    scaled *= 2;
    denominator *= 2n;
  }
  return [BigInt(scaled), denominator];
}

/** Divides and rounds to the nearest integer, halves to the even one. */
function divideRounded(numerator: bigint, denominator: bigint): bigint {
  const quotient = numerator / denominator;
  const twice = (numerator % denominator) * 2n;
  const roundsUp = twice > denominator || (twice === denominator && quotient % 2n === 1n);
  return roundsUp ? quotient + 1n : quotient;
}

/**
 * Writes a positive float with a number of digits after the point, rounded from its exact value.
 */
function fixed(value: number, digits: number): string {
  const [numerator, denominator] = fractionOf(value);
  const scaled = divideRounded(numerator * 10n ** BigInt(digits), denominator).toString();
  const text = scaled.padStart(digits + 1, "0");
  return digits === 0 ? text : `${text.slice(0, -digits)}.${text.slice(-digits)}`;
}

/** Writes a positive float as one digit, digits after the point and an exponent. */
function exponential(value: number, digits: number): string {
  const [numerator, denominator] = fractionOf(value);
  let power = value === 0 ? 0 : Number(value.toExponential().split("e")[1]);
  const mantissa = () => {
    const shift = digits - power;
    return shift >= 0
      ? divideRounded(numerator * 10n ** BigInt(shift), denominator)
      : divideRounded(numerator, denominator * 10n ** BigInt(-shift));
  };
  let text = mantissa().toString();
  if (text.length > digits + 1) {
    power++;
    text = mantissa().toString();
  }
  text = text.padEnd(digits + 1, "0");
  const exponent = `${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
  return `${text[0]}${digits === 0 ? "" : `.${text.slice(1)}`}e${exponent}`;
}

/** Python's `round()` of a float to a number of digits, which can be negative. */
export function roundFloat(value: number, digits: number): number {
  if (!Number.isFinite(value) || digits > 323) return value;
  if (digits < -308) return value < 0 ? -0 : 0;
  const magnitude = Math.abs(value);
  const [numerator, denominator] = fractionOf(magnitude);
  const rounded = digits >= 0
    ? Number(fixed(magnitude, digits))
    : Number(divideRounded(numerator, denominator * 10n ** BigInt(-digits))) * 10 ** -digits;
  return value < 0 || Object.is(value, -0) ? -rounded : rounded;
}

/** Python's `round()` of an int to tens, hundreds, … */
export function roundInteger(value: bigint, digits: number): bigint {
  if (digits >= 0) return value;
  const unit = 10n ** BigInt(Math.min(-digits, 10_000));
  const magnitude = value < 0n ? -value : value;
  const rounded = divideRounded(magnitude, unit) * unit;
  return value < 0n ? -rounded : rounded;
}

/** Python's `int()` of a float. */
export function truncateFloat(value: number): bigint {
  if (!Number.isFinite(value)) throw new TemplateError(`${floatText(value)} is not a whole number`);
  return BigInt(Math.trunc(value));
}

/** Converts a number to a float. */
export function floatOf(value: Value, what: string): number {
  if (!isNumber(value)) throw new TemplateError(`${what} needs a number, not ${typeName(value)}`);
  const number = Number(value);
  if (!Number.isFinite(number) && typeof value === "bigint") {
    throw new TemplateError(`${what} needs a float, but the int is too large for one`);
  }
  return number;
}

/** Python's `ascii()`. */
function ascii(value: Value, budget: TemplateBudget): string {
  const text = repr(value, budget);
  budget.payText(6 * text.length);
  return text.replace(
    /\P{ASCII}/gu,
    (character) => escapeCodePoint(character.codePointAt(0)!),
  );
}

function truncate(text: string, length: number, budget: TemplateBudget): string {
  const points = codePoints(text, budget);
  return typeof points === "string" ? points.slice(0, length) : points.slice(0, length).join("");
}

function countOf(value: Value): number {
  if (!isInteger(value)) {
    throw new TemplateError(`* in a format needs an int, not ${typeName(value)}`);
  }
  return toIndex(value);
}

function checkPrecision(digits: number | undefined, budget: TemplateBudget): void {
  if (digits === undefined) return;
  // The time grows with the square of the number of digits.
  budget.payText(Math.min(digits, MAX_PRECISION) ** 2 / 16);
  if (digits > MAX_PRECISION) {
    throw new TemplateError(
      `a format asks for ${digits} digits; at most ${MAX_PRECISION} are valid`,
    );
  }
}
