import { PRICES, type TemplateBudget } from "./budget.ts";

/**
 * Value in a running template, with Python's types: `null` is None, a bigint is an int, a number
 * is a float, and an array is a list. Everything else is an object of a class below.
 */
export type Value = null | boolean | bigint | number | string | Value[] | TemplateObject;

/** Error of a template, such as an operation that Python rejects. */
export class TemplateError extends Error {
  /** Offset into the source of the construct that failed, once known. */
  at: number | undefined;
}

/** Value without a JavaScript type of its own. */
export abstract class TemplateObject {
  /** Name of the type in error messages; Python's, where Python has the type. */
  abstract readonly typeName: string;

  /** Returns the attribute of that name, if any. */
  attribute(_name: string): Value | undefined {
    return undefined;
  }

  /** Python's `repr()`. */
  repr(_budget: TemplateBudget): string {
    throw new TemplateError(`a ${this.typeName} cannot be printed`);
  }
}

/** Arguments of a call. */
export class Arguments {
  readonly positional: readonly Value[];
  readonly named: ReadonlyMap<string, Value>;

  constructor(positional: readonly Value[] = [], named: ReadonlyMap<string, Value> = new Map()) {
    this.positional = positional;
    this.named = named;
  }

  /**
   * Assigns the arguments to parameters, in order. A parameter whose name ends in `?` can be left
   * out and is `undefined` then.
   *
   * @throws {TemplateError} for missing, unknown or surplus arguments
   */
  bind(callee: string, ...parameters: string[]): (Value | undefined)[] {
    const names = parameters.map((parameter) => parameter.replace("?", ""));
    if (this.positional.length > names.length) {
      const limit = names.length === 0 ? "no arguments" : `at most ${names.length}`;
      throw new TemplateError(
        `${callee}() got ${this.positional.length} arguments; it takes ${limit}`,
      );
    }
    const values: (Value | undefined)[] = names.map((_, index) => this.positional[index]);
    for (const [name, value] of this.named) {
      const index = names.indexOf(name);
      if (index < 0) throw new TemplateError(`${callee}() has no parameter "${name}"`);
      if (values[index] !== undefined) {
        throw new TemplateError(`${callee}() got two values for "${name}"`);
      }
      values[index] = value;
    }
    for (const [index, value] of values.entries()) {
      if (value === undefined && !parameters[index]!.endsWith("?")) {
        throw new TemplateError(`${callee}() got no argument "${names[index]}"`);
      }
    }
    return values;
  }

  /** Assigns the arguments to positional-only parameters, as most methods of `str` have. */
  bindPositional(callee: string, ...parameters: string[]): (Value | undefined)[] {
    if (this.named.size > 0) throw new TemplateError(`${callee}() takes no named arguments`);
    return this.bind(callee, ...parameters);
  }
}

/** Value that can be called. */
export abstract class Callable extends TemplateObject {
  abstract call(args: Arguments): Value;
}

/** Built-in function, or a method with its object. */
export class NativeFunction extends Callable {
  readonly typeName = "function";
  readonly #run: (args: Arguments) => Value;
  readonly #printed: string | undefined;

  /** @param printed text that Python prints for the function, if it has no address */
  constructor(run: (args: Arguments) => Value, printed?: string) {
    super();
    this.#run = run;
    this.#printed = printed;
  }

  override call(args: Arguments): Value {
    return this.#run(args);
  }

  override repr(budget: TemplateBudget): string {
    return this.#printed ?? super.repr(budget);
  }
}

/** Value of a missing name, attribute or item. */
export class Undefined extends TemplateObject {
  readonly typeName = "Undefined";
  readonly #reason: () => string;

  /** @param reason returns what is missing, for error messages */
  constructor(reason: () => string) {
    super();
    this.#reason = reason;
  }

  /** Returns the error of an operation that undefined values do not support. */
  error(): TemplateError {
    return new TemplateError(this.#reason());
  }

  override repr(): string {
    return "Undefined";
  }
}

/** Returns a value, or an {@linkcode Undefined} with the reason if it is `undefined`. */
export function defined(value: Value | undefined, reason: () => string): Value {
  return value === undefined ? new Undefined(reason) : value;
}

/** Text marked as safe, which is not escaped again. */
export class Markup extends TemplateObject {
  readonly typeName = "Markup";
  readonly text: string;

  constructor(text: string) {
    super();
    this.text = text;
  }

  override repr(budget: TemplateBudget): string {
    return `Markup(${repr(this.text, budget)})`;
  }
}

/** Python's `tuple`. */
export class Tuple extends TemplateObject {
  readonly typeName = "tuple";
  readonly items: readonly Value[];
  readonly #names: readonly string[];

  /** @param names attributes that the items can be read by, as in a named tuple */
  constructor(items: readonly Value[], names: readonly string[] = []) {
    super();
    this.items = items;
    this.#names = names;
  }

  override attribute(name: string): Value | undefined {
    const index = this.#names.indexOf(name);
    return index < 0 ? undefined : this.items[index];
  }

  override repr(budget: TemplateBudget): string {
    const inner = this.items.map((item) => repr(item, budget));
    return inner.length === 1 ? `(${inner[0]},)` : `(${inner.join(", ")})`;
  }
}

/** Python's `dict`: keys of any hashable type, in the order of insertion. */
export class Dict extends TemplateObject {
  readonly typeName = "dict";
  readonly #entries = new Map<unknown, { readonly key: Value; value: Value }>();

  constructor(entries: Iterable<readonly [Value, Value]> = []) {
    super();
    for (const [key, value] of entries) this.set(key, value);
  }

  get size(): number {
    return this.#entries.size;
  }

  get(key: Value): Value | undefined {
    return this.#entries.get(hashKey(key))?.value;
  }

  has(key: Value): boolean {
    return this.#entries.has(hashKey(key));
  }

  /** Sets a value. As in Python, an equal key that exists stays. */
  set(key: Value, value: Value): void {
    const hash = hashKey(key);
    const entry = this.#entries.get(hash);
    if (entry === undefined) this.#entries.set(hash, { key, value });
    else entry.value = value;
  }

  *keys(): Generator<Value> {
    for (const entry of this.#entries.values()) yield entry.key;
  }

  *values(): Generator<Value> {
    for (const entry of this.#entries.values()) yield entry.value;
  }

  *entries(): Generator<[Value, Value]> {
    for (const entry of this.#entries.values()) yield [entry.key, entry.value];
  }

  override repr(budget: TemplateBudget): string {
    const inner: string[] = [];
    for (const [key, value] of this.entries()) {
      inner.push(`${repr(key, budget)}: ${repr(value, budget)}`);
    }
    return `{${inner.join(", ")}}`;
  }
}

/** Result of `keys()`, `values()` or `items()` of a dict. */
export class DictView extends TemplateObject {
  readonly dict: Dict;
  readonly part: "keys" | "values" | "items";

  constructor(dict: Dict, part: "keys" | "values" | "items") {
    super();
    this.dict = dict;
    this.part = part;
  }

  get typeName(): string {
    return `dict_${this.part}`;
  }

  *items(): Generator<Value> {
    if (this.part === "keys") yield* this.dict.keys();
    else if (this.part === "values") yield* this.dict.values();
    else for (const entry of this.dict.entries()) yield new Tuple(entry);
  }

  override repr(budget: TemplateBudget): string {
    return `${this.typeName}(${repr(Array.from(this.items()), budget)})`;
  }
}

/** Python's `range`. */
export class Range extends TemplateObject {
  readonly typeName = "range";
  readonly start: number;
  readonly stop: number;
  readonly step: number;
  readonly length: number;

  constructor(start: number, stop: number, step: number) {
    super();
    this.start = start;
    this.stop = stop;
    this.step = step;
    this.length = Math.max(0, Math.ceil((stop - start) / step));
  }

  at(index: number): bigint {
    return BigInt(this.start + index * this.step);
  }

  *items(): Generator<Value> {
    for (let index = 0; index < this.length; index++) yield this.at(index);
  }

  override attribute(name: string): Value | undefined {
    return name === "start" || name === "stop" || name === "step" ? BigInt(this[name]) : undefined;
  }

  override repr(): string {
    const step = this.step === 1 ? "" : `, ${this.step}`;
    return `range(${this.start}, ${this.stop}${step})`;
  }
}

/** Generator, which can be read once: the result of `map`, `select`, `reverse` and others. */
export class LazyValues extends TemplateObject {
  readonly typeName = "generator";
  readonly iterator: Iterator<Value>;

  constructor(values: Iterable<Value>) {
    super();
    this.iterator = values[Symbol.iterator]();
  }

  override repr(): string {
    throw new TemplateError("a generator cannot be printed; convert it by the filter `list`");
  }
}

/** Result of `namespace()`: an object whose attributes `set` can change. */
export class Namespace extends TemplateObject {
  readonly typeName = "Namespace";
  readonly attributes: Dict;

  constructor(attributes: Dict) {
    super();
    this.attributes = attributes;
  }

  override attribute(name: string): Value | undefined {
    return this.attributes.get(name);
  }

  override repr(budget: TemplateBudget): string {
    return `<Namespace ${repr(this.attributes, budget)}>`;
  }
}

/** True for text, marked as safe or not. */
export function isText(value: Value | undefined): value is string | Markup {
  return typeof value === "string" || value instanceof Markup;
}

/** Returns the characters of text. */
export function plain(text: string | Markup): string {
  return typeof text === "string" ? text : text.text;
}

/** True for an int or a boolean. */
export function isInteger(value: Value | undefined): value is bigint | boolean {
  return typeof value === "bigint" || typeof value === "boolean";
}

/** True for an int, a float or a boolean. */
export function isNumber(value: Value | undefined): value is bigint | boolean | number {
  return typeof value === "number" || isInteger(value);
}

/** Converts an int to a position or a count, clamped to the range of safe integers. */
export function toIndex(value: bigint | boolean): number {
  const number = Number(value);
  return Math.max(-Number.MAX_SAFE_INTEGER, Math.min(number, Number.MAX_SAFE_INTEGER));
}

/** Returns the name of a value's type in error messages. */
export function typeName(value: Value): string {
  if (value === null) return "None";
  if (Array.isArray(value)) return "list";
  switch (typeof value) {
    case "boolean":
      return "bool";
    case "bigint":
      return "int";
    case "number":
      return "float";
    case "string":
      return "str";
    default:
      return value.typeName;
  }
}

/** Python's `bool()`. */
export function isTrue(value: Value): boolean {
  if (typeof value !== "object") return Boolean(value);
  if (value === null || value instanceof Undefined) return false;
  return (sizeOf(value) ?? 1) > 0;
}

/** Returns the number of items of a collection or code points of text; else `undefined`. */
function sizeOf(value: Value): number | undefined {
  if (Array.isArray(value)) return value.length;
  if (typeof value === "string") return codePointCount(value);
  if (value instanceof Markup) return codePointCount(value.text);
  if (value instanceof Tuple) return value.items.length;
  if (value instanceof Dict) return value.size;
  if (value instanceof DictView) return value.dict.size;
  if (value instanceof Range) return value.length;
  if (value instanceof Undefined) return 0;
  return undefined;
}

/** Python's `len()`. */
export function lengthOf(value: Value, budget: TemplateBudget): number {
  if (isText(value)) budget.pay(plain(value).length * PRICES.scan);
  const size = sizeOf(value) ??
    (value instanceof TemplateObject ? value.attribute("length") : null);
  if (typeof size !== "number" && typeof size !== "bigint") {
    throw new TemplateError(`${typeName(value)} has no length`);
  }
  return Number(size);
}

const SURROGATE = /[\ud800-\udfff]/;

/** Returns the text itself if each code point is one UTF-16 unit, else a list of code points. */
export function codePoints(text: string, budget: TemplateBudget): string | string[] {
  budget.pay(text.length * PRICES.scan);
  if (!SURROGATE.test(text)) return text;
  budget.pay(text.length * PRICES.value);
  return Array.from(text);
}

/** Returns the number of code points of a text, as Python's `len()` does. */
export function codePointCount(text: string): number {
  if (!SURROGATE.test(text)) return text.length;
  let count = 0;
  for (const _ of text) count++;
  return count;
}

/** Returns the items of an iterable value; `undefined` for other values. */
function tryIterate(value: Value, budget: TemplateBudget): Iterable<Value> | undefined {
  if (Array.isArray(value)) {
    budget.pay(value.length * PRICES.visit);
    return value;
  }
  if (isText(value)) {
    budget.pay(plain(value).length * PRICES.value);
    return Array.from(plain(value));
  }
  if (value instanceof Tuple) return value.items;
  if (value instanceof Undefined) return [];
  if (value instanceof Dict) return paid(value.keys(), budget);
  if (value instanceof DictView || value instanceof Range) return paid(value.items(), budget);
  if (value instanceof LazyValues) {
    const { iterator } = value;
    return { [Symbol.iterator]: () => ({ next: () => iterator.next() }) };
  }
  return undefined;
}

/**
 * Returns the items that a loop over a value visits.
 *
 * @throws {TemplateError} for a value that is not iterable
 */
export function iterate(value: Value, budget: TemplateBudget): Iterable<Value> {
  const items = tryIterate(value, budget);
  if (items === undefined) throw new TemplateError(`${typeName(value)} cannot be iterated over`);
  return items;
}

/** Returns the items of a value as a new list. */
export function listOf(value: Value, budget: TemplateBudget): Value[] {
  const items: Value[] = [];
  for (const item of iterate(value, budget)) {
    budget.pay(PRICES.visit);
    items.push(item);
  }
  return items;
}

function* paid(items: Iterable<Value>, budget: TemplateBudget): Generator<Value> {
  for (const item of items) {
    budget.pay(PRICES.value);
    yield item;
  }
}

/** Most characters of a tuple as a key. A tuple can contain another one many times over. */
const MAX_KEY_CHARACTERS = 10_000;
const UNDEFINED_HASH = Symbol("undefined");

/** Returns a key of a JavaScript map: the same for values that are equal in Python. */
export function hashKey(value: Value): unknown {
  switch (typeof value) {
    case "string":
      // Strings that start with NUL stand for tuples, so such texts get another prefix.
      return value.startsWith("\0") ? `\0s${value}` : value;
    case "boolean":
      return Number(value);
    case "bigint":
      return Number.isSafeInteger(Number(value)) ? Number(value) : value;
    case "number":
      return Number.isInteger(value) && !Number.isSafeInteger(value) ? BigInt(value) : value;
  }
  if (value instanceof Markup) return hashKey(value.text);
  if (value instanceof Undefined) return UNDEFINED_HASH;
  if (value instanceof Tuple) {
    const parts = value.items.map((item) => {
      const part = hashKey(item);
      if (typeof part === "object" && part !== null) {
        throw new TemplateError(`a tuple that contains ${typeName(item)} cannot be a key`);
      }
      const text = String(part);
      return `${typeof part}:${text.length}:${text}`;
    });
    const text = `\0t${parts.join()}`;
    if (text.length > MAX_KEY_CHARACTERS) {
      throw new TemplateError(
        `a tuple of ${text.length} characters is too large for a key; at most ` +
          `${MAX_KEY_CHARACTERS} are valid`,
      );
    }
    return text;
  }
  if (Array.isArray(value) || value instanceof Dict || value instanceof DictView) {
    throw new TemplateError(`${typeName(value)} cannot be a key of a dict`);
  }
  return value;
}

/** Python's `==`. */
export function equals(a: Value, b: Value, budget: TemplateBudget): boolean {
  budget.pay(PRICES.visit);
  if (isText(a) && isText(b)) {
    budget.pay(Math.min(plain(a).length, plain(b).length) * PRICES.scan);
    return plain(a) === plain(b);
  }
  if (a === b) return true;
  // JavaScript compares a bigint and a number by their exact values.
  // deno-lint-ignore eqeqeq
  if (isNumber(a) && isNumber(b)) return a == b;
  if (a instanceof Undefined) return b instanceof Undefined;
  if (Array.isArray(a)) return Array.isArray(b) && listsEqual(a, b, budget);
  if (a instanceof Tuple) return b instanceof Tuple && listsEqual(a.items, b.items, budget);
  if (a instanceof Dict && b instanceof Dict) return dictsEqual(a, b, budget);
  if (a instanceof Range && b instanceof Range) {
    return listsEqual(listOf(a, budget), listOf(b, budget), budget);
  }
  if (a instanceof DictView && b instanceof DictView) {
    if (a.part === "values" || a.part !== b.part) return false;
    if (a.part === "items") return dictsEqual(a.dict, b.dict, budget);
    return a.dict.size === b.dict.size && Array.from(a.dict.keys()).every((key) => b.dict.has(key));
  }
  return false;
}

function listsEqual(a: readonly Value[], b: readonly Value[], budget: TemplateBudget): boolean {
  if (a.length !== b.length) return false;
  return budget.nested(() => a.every((item, index) => same(item, b[index]!, budget)));
}

function dictsEqual(a: Dict, b: Dict, budget: TemplateBudget): boolean {
  if (a.size !== b.size) return false;
  return budget.nested(() => {
    for (const [key, value] of a.entries()) {
      const other = b.get(key);
      if (other === undefined || !same(value, other, budget)) return false;
    }
    return true;
  });
}

/** True if values are identical or equal, as collections compare their items. */
export function same(a: Value, b: Value, budget: TemplateBudget): boolean {
  return (typeof a !== "string" && Object.is(a, b)) || equals(a, b, budget);
}

/**
 * Compares two values by Python's order: negative, zero or positive; NaN if one is a NaN.
 *
 * @throws {TemplateError} for types that have no order
 */
export function compare(a: Value, b: Value, budget: TemplateBudget): number {
  budget.pay(PRICES.visit);
  if (isNumber(a) && isNumber(b)) return a < b ? -1 : a > b ? 1 : a >= b ? 0 : NaN;
  if (isText(a) && isText(b)) return compareText(plain(a), plain(b), budget);
  for (const value of [a, b]) if (value instanceof Undefined) throw value.error();
  const [left, right] = [sequenceOf(a), sequenceOf(b)];
  if (left === undefined || right === undefined || Array.isArray(a) !== Array.isArray(b)) {
    throw new TemplateError(`${typeName(a)} and ${typeName(b)} have no order`);
  }
  return budget.nested(() => {
    for (const [index, item] of left.entries()) {
      const other = right[index];
      if (other === undefined) break;
      if (!same(item, other, budget)) return compare(item, other, budget);
    }
    return left.length - right.length;
  });
}

/** Compares text by code points, as Python does; JavaScript compares halves of surrogate pairs. */
function compareText(a: string, b: string, budget: TemplateBudget): number {
  const shared = Math.min(a.length, b.length);
  budget.pay(shared * PRICES.scan);
  if (a === b) return 0;
  let at = 0;
  while (at < shared && a.charCodeAt(at) === b.charCodeAt(at)) at++;
  if (at === shared) return a.length - b.length;
  const [left, right] = [a.charCodeAt(at), b.charCodeAt(at)];
  const [leftHalf, rightHalf] = [(left & 0xf800) === 0xd800, (right & 0xf800) === 0xd800];
  return leftHalf === rightHalf ? left - right : leftHalf ? 1 : -1;
}

function sequenceOf(value: Value): readonly Value[] | undefined {
  return value instanceof Tuple ? value.items : Array.isArray(value) ? value : undefined;
}

/** Python's `in`. */
export function contains(whole: Value, part: Value, budget: TemplateBudget): boolean {
  if (isText(whole)) {
    if (!isText(part)) throw new TemplateError(`"in" cannot look for ${typeName(part)} in text`);
    payForSearch(plain(whole), plain(part), budget);
    return plain(whole).includes(plain(part));
  }
  if (whole instanceof Dict) return whole.has(part);
  if (whole instanceof DictView && whole.part === "keys") return whole.dict.has(part);
  if (whole instanceof Range && isInteger(part)) {
    const index = (Number(part) - whole.start) / whole.step;
    return Number.isInteger(index) && index >= 0 && index < whole.length;
  }
  for (const item of iterate(whole, budget)) if (same(item, part, budget)) return true;
  return false;
}

/**
 * Pays for a search of `mark` in `text`. A search reads each character about once, but more often
 * if a mark of hundreds of characters nearly matches everywhere.
 */
export function payForSearch(text: string, mark: string, budget: TemplateBudget): void {
  budget.pay(text.length * PRICES.scan * (1 + mark.length / 64));
}

/** Python's `str()`, which is what `{{ value }}` prints. */
export function toText(value: Value, budget: TemplateBudget): string {
  if (typeof value === "string") return value;
  if (value instanceof Markup) return value.text;
  if (value instanceof Undefined) return "";
  const text = repr(value, budget);
  budget.payText(text.length);
  return text;
}

/** Python's `repr()`, which is what a list prints for its items. */
export function repr(value: Value, budget: TemplateBudget): string {
  budget.pay(PRICES.value);
  switch (typeof value) {
    case "string":
      budget.payText(value.length);
      return quote(value);
    case "boolean":
      return value ? "True" : "False";
    case "bigint":
      return integerText(value, budget);
    case "number":
      return floatText(value);
  }
  if (value === null) return "None";
  if (value instanceof ContentParts) {
    throw new TemplateError("the parts of a message's content cannot be printed");
  }
  const text = budget.nested(() => {
    if (!Array.isArray(value)) return value.repr(budget);
    return `[${value.map((item) => repr(item, budget)).join(", ")}]`;
  });
  // Text is copied once for each level of nesting.
  budget.pay(text.length * PRICES.scan);
  return text;
}

/**
 * Text of a message as a list of parts, for templates that read only such lists. It cannot be
 * printed: a template that prints the content takes text.
 */
export class ContentParts extends Array<Value> {
  // Slices and copies are ordinary lists.
  static override get [Symbol.species](): ArrayConstructor {
    return Array;
  }
}

/** Most digits that Python converts between an int and text. */
export const MAX_INTEGER_DIGITS = 4300;
const LARGEST_PRINTED = 10n ** BigInt(MAX_INTEGER_DIGITS) - 1n;

/** Writes an int in decimal digits. */
export function integerText(value: bigint, budget: TemplateBudget): string {
  if (BigInt.asIntN(64, value) === value) return value.toString();
  // The time grows with the square of the number of digits; Python has the same limit.
  if (value > LARGEST_PRINTED || value < -LARGEST_PRINTED) {
    throw new TemplateError(`an int of more than ${MAX_INTEGER_DIGITS} digits cannot be printed`);
  }
  const text = value.toString();
  budget.payText(2 * text.length);
  return text;
}

/** Writes a float with the fewest digits that identify it, as Python does. */
export function floatText(value: number): string {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : value < 0 ? "-inf" : "inf";
  if (Object.is(value, -0)) return "-0.0";
  const [mantissa = "", exponent = ""] = value.toExponential().split("e");
  const power = Number(exponent);
  if (power < -4 || power >= 16) {
    const sign = power < 0 ? "-" : "+";
    return `${mantissa}e${sign}${String(Math.abs(power)).padStart(2, "0")}`;
  }
  if (power >= 0) return Number.isInteger(value) ? `${BigInt(value)}.0` : String(value);
  const digits = mantissa.replace(/[-.]/g, "");
  return `${value < 0 ? "-" : ""}0.${"0".repeat(-power - 1)}${digits}`;
}

/** Characters that Python escapes in the `repr()` of text. */
const UNPRINTABLE = /[\\'"]|(?! )[\p{C}\p{Z}]/gu;

function quote(text: string): string {
  const mark = text.includes("'") && !text.includes('"') ? '"' : "'";
  const escaped = text.replace(UNPRINTABLE, (character) => {
    switch (character) {
      case "\n":
        return "\\n";
      case "\r":
        return "\\r";
      case "\t":
        return "\\t";
      case "\\":
        return "\\\\";
      case "'":
      case '"':
        return character === mark ? `\\${character}` : character;
    }
    return escapeCodePoint(character.codePointAt(0)!);
  });
  return mark + escaped + mark;
}

/** Python's shortest escape of a code point: `\x07`, `\u200b` or `\U0001f600`. */
export function escapeCodePoint(code: number): string {
  const digits = code.toString(16);
  if (code < 0x100) return `\\x${digits.padStart(2, "0")}`;
  return code < 0x10000 ? `\\u${digits.padStart(4, "0")}` : `\\U${digits.padStart(8, "0")}`;
}

/** Escapes text for HTML, unless it is marked as safe. */
export function escapeHtml(value: Value, budget: TemplateBudget): Markup {
  if (value instanceof Markup) return value;
  const text = toText(value, budget);
  // One character can become an entity of six.
  budget.payText(6 * text.length);
  return new Markup(
    text.replace(/[&<>"']/g, (character) => `&${HTML_ENTITIES.get(character)};`),
  );
}

const HTML_ENTITIES: ReadonlyMap<string, string> = new Map([
  ["&", "amp"],
  ["<", "lt"],
  [">", "gt"],
  ['"', "#34"],
  ["'", "#39"],
]);

/** Converts a plain JavaScript value, as parsed from JSON, to a value of templates. */
export function fromJson(value: unknown, budget: TemplateBudget): Value {
  switch (typeof value) {
    case "string":
    case "boolean":
      return value;
    case "bigint":
      return value;
    case "number":
      // JSON has one type of numbers: whole ones that JavaScript writes without an exponent are
      // ints.
      return Number.isInteger(value) && Math.abs(value) < 1e21 ? BigInt(value) : value;
    case "object":
      if (value === null) return null;
      if (value instanceof TemplateObject || value instanceof ContentParts) return value as Value;
      return budget.nested(() => {
        if (Array.isArray(value)) return value.map((item) => fromJson(item, budget));
        const dict = new Dict();
        for (const [key, item] of Object.entries(value)) {
          if (item !== undefined) dict.set(key, fromJson(item, budget));
        }
        return dict;
      });
    default:
      return null;
  }
}
