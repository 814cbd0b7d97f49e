import { ForgeError } from "../../errors.ts";
import { quote } from "../../formats/quote.ts";

/** Reads and checks the `tokenizer.ggml.*` values of a GGUF file. */
export class GgufTokenizerFields {
  readonly #metadata: ReadonlyMap<string, unknown>;
  readonly #source: string;

  /** @param source the file, for messages */
  constructor(metadata: ReadonlyMap<string, unknown>, source: string) {
    this.#metadata = metadata;
    this.#source = source;
  }

  /** The file and key, for messages. */
  where(key: string): string {
    return `${this.#source}: tokenizer.ggml.${key}`;
  }

  /** The model's own name, or "". */
  modelName(): string {
    const name = this.#metadata.get("general.name");
    return typeof name === "string" ? name : "";
  }

  /** The model's architecture, or "". */
  architecture(): string {
    const name = this.#metadata.get("general.architecture");
    return typeof name === "string" ? name : "";
  }

  /** Returns a required string. */
  string(key: string): string {
    const value = this.#get(key);
    if (typeof value !== "string") throw this.wrong(key, "a string");
    return value;
  }

  /** Returns a string, or `undefined` if it is missing. */
  optionalString(key: string): string | undefined {
    return this.#get(key) === undefined ? undefined : this.string(key);
  }

  /** Returns a boolean, or `undefined` if it is missing. */
  boolean(key: string): boolean | undefined {
    const value = this.#get(key);
    if (value !== undefined && typeof value !== "boolean") throw this.wrong(key, "true or false");
    return value;
  }

  /** Returns a token id below `size`, or `undefined` if it is missing. */
  id(key: string, size: number): number | undefined {
    const value = this.#get(key);
    if (value === undefined) return undefined;
    const id = typeof value === "bigint" ? Number(value) : value;
    if (typeof id !== "number" || !Number.isInteger(id) || id < 0 || id >= size) {
      throw this.wrong(key, `a token id from 0 to ${size - 1}`);
    }
    return id;
  }

  /** Returns a required array of strings. */
  strings(key: string): readonly string[] {
    const value = this.#get(key);
    if (!isStringArray(value)) throw this.wrong(key, "an array of strings");
    return value;
  }

  /** Returns an array of at least `length` numbers, or `undefined` if it is missing. */
  numbers(key: string, length: number): Float32Array | undefined {
    const value = this.#get(key);
    if (value === undefined) return undefined;
    const numbers = toFloats(value);
    if (numbers === undefined) throw this.wrong(key, "an array of numbers");
    if (numbers.length < length) {
      throw new ForgeError(
        "bad_model",
        `${this.where(key)} has ${numbers.length} entries for ${length} tokens`,
      );
    }
    for (let i = 0; i < numbers.length; i++) {
      if (Number.isNaN(numbers[i])) {
        throw new ForgeError("bad_model", `${this.where(key)}[${i}] is NaN`);
      }
    }
    return numbers;
  }

  /** Returns bytes, or `undefined` if they are missing. */
  bytes(key: string): Uint8Array | undefined {
    const value = this.#get(key);
    if (value === undefined) return undefined;
    if (value instanceof Uint8Array) return value;
    if (value instanceof Int8Array) {
      return new Uint8Array(value.buffer, value.byteOffset, value.length);
    }
    throw this.wrong(key, "an array of bytes");
  }

  /** Returns the error for an unexpected value. */
  wrong(key: string, expected: string): ForgeError {
    return new ForgeError(
      "bad_model",
      `${this.where(key)} is ${show(this.#get(key))}; expected ${expected}`,
    );
  }

  #get(key: string): unknown {
    return this.#metadata.get(`tokenizer.ggml.${key}`);
  }
}

function isStringArray(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every((entry) => typeof entry === "string");
}

function toFloats(value: unknown): Float32Array | undefined {
  if (value instanceof Float32Array) return value;
  if (
    value instanceof Float64Array || value instanceof Int8Array || value instanceof Uint8Array ||
    value instanceof Int16Array || value instanceof Uint16Array || value instanceof Int32Array ||
    value instanceof Uint32Array
  ) {
    return Float32Array.from(value);
  }
  // The element type of an empty array does not matter.
  return Array.isArray(value) && value.length === 0 ? new Float32Array(0) : undefined;
}

function show(value: unknown): string {
  if (value === undefined) return "missing";
  if (typeof value === "object") return "an array";
  return typeof value === "string" ? quote(value) : String(value);
}
