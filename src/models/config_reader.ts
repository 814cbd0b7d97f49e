import { ForgeError } from "../errors.ts";
import type { Checkpoint } from "../formats/checkpoint.ts";
import { isJsonObject, type JsonObject } from "../formats/json.ts";
import { quote } from "../formats/quote.ts";

/**
 * The name of one setting in both formats: a key of config.json, and a GGUF key without its
 * architecture prefix. A format that lacks the setting has `undefined`.
 */
export type Key = readonly [huggingFace: string | undefined, gguf: string | undefined];

/** The largest value any size in a config may have; keeps products of two within 2^53. */
const MAX_SIZE = 2 ** 26;

/** Reads typed settings of a model, whichever format they come in. */
export class ConfigReader {
  readonly isGguf: boolean;
  readonly modelType: string;
  readonly #checkpoint: Checkpoint;

  constructor(checkpoint: Checkpoint) {
    this.#checkpoint = checkpoint;
    this.isGguf = checkpoint.kind === "gguf";
    this.modelType = checkpoint.modelType;
  }

  /** The value under a key, or `undefined` when it is absent or null. */
  raw(key: Key): unknown {
    const name = this.#name(key);
    if (name === undefined) return undefined;
    const { metadata, config } = this.#checkpoint;
    return (metadata === undefined ? config?.[name] : metadata.get(name)) ?? undefined;
  }

  /** A whole number from `min` up. @throws {ForgeError} `bad_model` when it is anything else. */
  int(key: Key, options: { min?: number; fallback?: number } = {}): number {
    const { min = 1, fallback } = options;
    const value = this.raw(key) ?? fallback;
    if (!Number.isSafeInteger(value) || Number(value) < min || Number(value) > MAX_SIZE) {
      throw this.invalid(key, value, `a whole number from ${min} to ${MAX_SIZE}`);
    }
    return Number(value);
  }

  /** A finite number. @throws {ForgeError} `bad_model` when it is anything else. */
  number(key: Key, fallback?: number): number {
    const value = this.raw(key) ?? fallback;
    if (typeof value !== "number" || !Number.isFinite(value)) {
      throw this.invalid(key, value, "a finite number");
    }
    return value;
  }

  /** A finite number above 0. @throws {ForgeError} `bad_model` when it is anything else. */
  positive(key: Key, fallback?: number): number {
    const value = this.number(key, fallback);
    if (value <= 0) throw this.invalid(key, value, "a number above 0");
    return value;
  }

  boolean(key: Key, fallback: boolean): boolean {
    const value = this.raw(key) ?? fallback;
    if (typeof value !== "boolean") throw this.invalid(key, value, "true or false");
    return value;
  }

  string(key: Key, fallback?: string): string {
    const value = this.raw(key) ?? fallback;
    if (typeof value !== "string") throw this.invalid(key, value, "text");
    return value;
  }

  /** An array with one entry a layer, or `undefined` when it is absent. */
  perLayer(key: Key, nLayers: number): readonly unknown[] | undefined {
    const value = this.raw(key);
    if (value === undefined) return undefined;
    const list = ArrayBuffer.isView(value) ? Array.from(value as Int32Array) : value;
    if (!Array.isArray(list) || list.length < nLayers) {
      throw this.invalid(key, value, `a list with an entry for each of ${nLayers} layers`);
    }
    return list;
  }

  /** A nested object of config.json, or `undefined`; GGUF has none. */
  object(name: string): JsonObject | undefined {
    const value = this.#checkpoint.config?.[name];
    return isJsonObject(value) ? value : undefined;
  }

  /** The error for a setting that cannot be used. */
  invalid(key: Key, value: unknown, expected: string): ForgeError {
    const name = this.#name(key) ?? key[0] ?? "?";
    const found = value === undefined ? "missing" : quote(describe(value));
    return new ForgeError(
      "bad_model",
      `${quote(this.#checkpoint.path)}: ${name} is ${found}; expected ${expected}`,
    );
  }

  #name(key: Key): string | undefined {
    if (!this.isGguf) return key[0];
    return key[1] === undefined ? undefined : `${this.modelType}.${key[1]}`;
  }
}

function describe(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value) ?? String(value);
}
