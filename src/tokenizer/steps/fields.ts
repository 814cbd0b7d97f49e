import { ForgeError } from "../../errors.ts";
import { quote, show } from "../../formats/quote.ts";

/** Maximum nesting of objects; known tokenizers nest steps at most twice. */
const DEEPEST_NESTING = 16;

/** Maximum length of a text that a step inserts; usually it is "▁". */
const LONGEST_INSERT = 64;

/** Reads the fields of a JSON object; errors name the field. */
export class Fields {
  readonly #object: Readonly<Record<string, unknown>>;
  readonly #depth: number;
  /** The file and key of the object, for messages. */
  readonly where: string;

  /** @throws ForgeError `bad_model` if `value` is not an object */
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

  /** Returns the value of a field; `undefined` if it is missing or null. */
  get(key: string): unknown {
    return Object.hasOwn(this.#object, key) ? this.#object[key] ?? undefined : undefined;
  }

  /** Returns the object at a field, or `undefined` if it is missing or null. */
  object(key: string): Fields | undefined {
    const value = this.get(key);
    return value === undefined ? undefined : new Fields(value, this.path(key), this.#depth + 1);
  }

  /** Returns the array at a field, or `undefined` if it is missing or null. */
  array(key: string): readonly unknown[] | undefined {
    const value = this.get(key);
    if (value === undefined || Array.isArray(value)) return value;
    throw this.wrong(key, "an array");
  }

  /** Returns the objects of the array at a field; none if it is missing or null. */
  objects(key: string): Fields[] {
    const array = this.array(key) ?? [];
    return array.map((value, i) => new Fields(value, `${this.path(key)}[${i}]`, this.#depth + 1));
  }

  /** Returns the string at a field, or `fallback`. Without a fallback the field is required. */
  string(key: string, fallback?: string): string {
    const value = this.get(key) ?? fallback;
    if (typeof value !== "string") throw this.wrong(key, "a string");
    return value;
  }

  /** Returns a string that is inserted into text; its length is limited, to bound the text. */
  insert(key: string, fallback?: string): string {
    const value = this.string(key, fallback);
    if (value.length > LONGEST_INSERT) {
      throw this.wrong(key, `a string of at most ${LONGEST_INSERT} characters`);
    }
    return value;
  }

  /** Returns the boolean at a field, or `fallback`. */
  boolean(key: string, fallback: boolean): boolean {
    const value = this.get(key) ?? fallback;
    if (typeof value !== "boolean") throw this.wrong(key, "true or false");
    return value;
  }

  /** Returns an integer of 0 or more, or `fallback`. Without a fallback the field is required. */
  count(key: string, fallback?: number): number {
    const value = this.get(key) ?? fallback;
    if (typeof value !== "number" || !Number.isSafeInteger(value) || value < 0) {
      throw this.wrong(key, "a whole number of 0 or more");
    }
    return value;
  }

  /** Returns the string at a field, which must be one of `choices`, or `fallback`. */
  oneOf<T extends string>(key: string, choices: readonly T[], fallback: T): T {
    const value = this.get(key) ?? fallback;
    const choice = choices.find((one) => one === value);
    if (choice === undefined) throw this.wrong(key, `one of ${choices.join(", ")}`);
    return choice;
  }

  /** Returns all fields with their values. */
  entries(): [string, unknown][] {
    return Object.entries(this.#object);
  }

  /** Returns the path of a field, for messages. */
  path(key: string): string {
    if (!/^\w+$/.test(key)) return `${this.where}[${quote(key)}]`;
    return this.where.endsWith(":") ? `${this.where} ${key}` : `${this.where}.${key}`;
  }

  /** Returns the error for an unexpected value of a field. */
  wrong(key: string, expected: string): ForgeError {
    const value = this.get(key);
    return new ForgeError(
      "bad_model",
      `${this.path(key)} is ${value === undefined ? "missing" : show(value)}; expected ${expected}`,
    );
  }

  /** Returns the error for a `type` that forge does not implement. */
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
