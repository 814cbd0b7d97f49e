import { ForgeError } from "../../errors.ts";
import { quote } from "../../formats/quote.ts";

/** Objects in one another; the steps of a tokenizer are not nested more than twice. */
const DEEPEST_NESTING = 16;

/** The longest text that a step may put into other text; "▁" is what they put. */
const LONGEST_INSERT = 64;

/** A JSON object with a name for messages: reads fields and says which one is wrong. */
export class Fields {
  readonly #object: Readonly<Record<string, unknown>>;
  readonly #depth: number;
  /** The file and key this object is at, for messages. */
  readonly where: string;

  /** @throws ForgeError `bad_model` when `value` is not an object */
  constructor(value: unknown, where: string, depth = 0) {
    if (!isObject(value)) {
      throw new ForgeError("bad_model", `${where} is ${show(value)}; expected an object`);
    }
    if (depth > DEEPEST_NESTING) {
      throw new ForgeError("bad_model", `${where} is nested deeper than ${DEEPEST_NESTING} levels`);
    }
    this.#object = value;
    this.#depth = depth;
    this.where = where;
  }

  /** The value of a field; `undefined` where it is absent or null. */
  get(key: string): unknown {
    return Object.hasOwn(this.#object, key) ? this.#object[key] ?? undefined : undefined;
  }

  /** The object at a field, or `undefined` where it is absent or null. */
  object(key: string): Fields | undefined {
    const value = this.get(key);
    return value === undefined ? undefined : new Fields(value, this.path(key), this.#depth + 1);
  }

  /** The array at a field, or `undefined` where it is absent or null. */
  array(key: string): readonly unknown[] | undefined {
    const value = this.get(key);
    if (value === undefined || Array.isArray(value)) return value;
    throw this.wrong(key, "an array");
  }

  /** The objects of the array at a field; none where it is absent or null. */
  objects(key: string): Fields[] {
    const array = this.array(key) ?? [];
    return array.map((value, i) => new Fields(value, `${this.path(key)}[${i}]`, this.#depth + 1));
  }

  /** The string at a field, or `fallback`; without one the field must be there. */
  string(key: string, fallback?: string): string {
    const value = this.get(key) ?? fallback;
    if (typeof value !== "string") throw this.wrong(key, "a string");
    return value;
  }

  /** The string at a field that is put into text: a short one, so that text does not explode. */
  insert(key: string, fallback?: string): string {
    const value = this.string(key, fallback);
    if (value.length > LONGEST_INSERT) {
      throw this.wrong(key, `a string of at most ${LONGEST_INSERT} characters`);
    }
    return value;
  }

  /** The boolean at a field, or `fallback`. */
  boolean(key: string, fallback: boolean): boolean {
    const value = this.get(key) ?? fallback;
    if (typeof value !== "boolean") throw this.wrong(key, "true or false");
    return value;
  }

  /** The integer of 0 or more at a field, or `fallback`; without one the field must be there. */
  count(key: string, fallback?: number): number {
    const value = this.get(key) ?? fallback;
    if (typeof value !== "number" || !Number.isSafeInteger(value) || value < 0) {
      throw this.wrong(key, "a whole number of 0 or more");
    }
    return value;
  }

  /** The string at a field, one of `choices`, or `fallback`. */
  oneOf<T extends string>(key: string, choices: readonly T[], fallback: T): T {
    const value = this.get(key) ?? fallback;
    const choice = choices.find((one) => one === value);
    if (choice === undefined) throw this.wrong(key, `one of ${choices.join(", ")}`);
    return choice;
  }

  /** All fields with their values. */
  entries(): [string, unknown][] {
    return Object.entries(this.#object);
  }

  /** The place of a field, for messages. */
  path(key: string): string {
    if (!/^\w+$/.test(key)) return `${this.where}[${quote(key)}]`;
    return this.where.endsWith(":") ? `${this.where} ${key}` : `${this.where}.${key}`;
  }

  /** The error of a field that is not what it should be. */
  wrong(key: string, expected: string): ForgeError {
    return new ForgeError(
      "bad_model",
      `${this.path(key)} is ${show(this.get(key))}; expected ${expected}`,
    );
  }

  /** The error of a `type` that forge does not implement. */
  unsupportedType(supported: readonly string[]): ForgeError {
    return new ForgeError(
      "unsupported",
      `${this.path("type")} ${show(this.get("type"))} is not supported; ` +
        `supported are ${supported.join(", ")}`,
    );
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function show(value: unknown): string {
  if (value === undefined) return "missing";
  if (Array.isArray(value)) return "an array";
  if (isObject(value)) return "an object";
  return typeof value === "string" ? quote(value) : String(value);
}
