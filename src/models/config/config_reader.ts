import { ForgeError } from "../../errors.ts";
import type { Checkpoint } from "../../formats/checkpoint.ts";
import type { GgufField } from "../../formats/gguf/writer.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../../formats/json.ts";
import { quote } from "../../formats/quote.ts";
import type { GgufSink } from "../gguf_rules.ts";
import { configDefaults, settingAlias } from "./config_defaults.ts";

/**
 * Name of one setting in both formats: a key of config.json, and a GGUF key without its
 * architecture prefix. `undefined` if a format lacks the setting.
 */
export type Key = readonly [huggingFace: string | undefined, gguf: string | undefined];

/** Settings of a model whose GGUF keys have no architecture prefix. */
const UNPREFIXED = /^xielu\./;

/** Returns the whole key of a setting in GGUF files of an architecture. */
export function ggufKey(architecture: string, key: string): string {
  return UNPREFIXED.test(key) ? key : `${architecture}.${key}`;
}

/** Largest value of any size in a config. Keeps products of two within 2^53. */
const MAX_SIZE = 2 ** 26;

/**
 * Reads typed settings of a model from either format. A setting that config.json lacks has the
 * default in `config_defaults.ts`. An explicit `null` does not get that default and is an error if
 * there is one.
 *
 * A fallback applies to a setting that has neither a value nor a default.
 */
export class ConfigReader {
  readonly isGguf: boolean;
  readonly modelType: string;
  /** The folder or file, for error messages. */
  readonly path: string;
  readonly #checkpoint: Checkpoint;
  readonly #defaults: JsonObject;
  readonly #layer: number | undefined;
  /** Receives the settings of a folder, under the names of GGUF files. */
  readonly sink: GgufSink | undefined;

  /** @param layer the layer whose settings are read where they differ between layers */
  constructor(checkpoint: Checkpoint, layer?: number, sink?: GgufSink) {
    this.#checkpoint = checkpoint;
    this.sink = sink;
    this.#layer = layer;
    this.isGguf = checkpoint.kind === "gguf";
    this.modelType = checkpoint.modelType;
    this.#defaults = this.isGguf ? {} : configDefaults(checkpoint.modelType);
    this.path = checkpoint.path;
  }

  /**
   * Returns a reader for one layer's settings: its entry of lists, and its object in
   * `per_layer_config`.
   */
  ofLayer(index: number): ConfigReader {
    return new ConfigReader(this.#checkpoint, index, this.sink);
  }

  /** Returns the value of a key, or `undefined` if it is null, or absent without a default. */
  raw(key: Key): unknown {
    const name = this.#name(key);
    if (name === undefined) return undefined;
    const { metadata } = this.#checkpoint;
    const own = this.#ownSettings()?.[name];
    return own ?? (metadata === undefined ? this.setting(name) : metadata.get(name)) ?? undefined;
  }

  /** Returns a setting of config.json as it is written, including `null`, or else its default. */
  setting(name: string): JsonValue | undefined {
    const value = this.written(name);
    return value === undefined ? this.#defaults[name] : value;
  }

  /** Returns a setting that config.json itself holds. */
  written(name: string): JsonValue | undefined {
    const config = this.#checkpoint.config ?? {};
    const alias = settingAlias(this.modelType, name);
    return alias !== undefined && Object.hasOwn(config, alias) ? config[alias] : config[name];
  }

  /** Returns the default of a setting, whatever config.json holds. */
  default(name: string): JsonValue | undefined {
    return this.#defaults[name];
  }

  /**
   * Reads a whole number. A list with the same number for every layer counts as that number.
   *
   * @throws {ForgeError} `bad_model` for anything else; `unsupported` if it differs between layers
   */
  int(key: Key, options: { min?: number; max?: number; fallback?: number } = {}): number {
    const { min = 1, max = MAX_SIZE, fallback } = options;
    const value = this.#ofAllLayers(key, this.#orElse(key, fallback));
    if (!Number.isSafeInteger(value) || Number(value) < min || Number(value) > max) {
      throw this.invalid(key, value, `a whole number from ${min} to ${max}`);
    }
    this.#note(key, ["u32", Number(value)]);
    return Number(value);
  }

  /**
   * Reads a number that is finite in float32, the type that devices take.
   *
   * @throws {ForgeError} `bad_model` for anything else
   */
  number(key: Key, fallback?: number): number {
    const value = this.#orElse(key, fallback);
    if (typeof value !== "number" || !Number.isFinite(Math.fround(value))) {
      throw this.invalid(key, value, "a finite number, of at most 3.4e38");
    }
    this.#note(key, ["f32", value]);
    return value;
  }

  /**
   * Reads a number above 0, in float32 too.
   *
   * @throws {ForgeError} `bad_model` for anything else
   */
  positive(key: Key, fallback?: number): number {
    const value = this.number(key, fallback);
    if (Math.fround(value) <= 0) throw this.invalid(key, value, "a number above 0");
    return value;
  }

  boolean(key: Key, fallback?: boolean): boolean {
    const value = this.#orElse(key, fallback);
    if (typeof value !== "boolean") throw this.invalid(key, value, "true or false");
    this.#note(key, ["bool", value]);
    return value;
  }

  string(key: Key, fallback?: string): string {
    const value = this.#orElse(key, fallback);
    if (typeof value !== "string") throw this.invalid(key, value, "text");
    return value;
  }

  /** Reads an array with one entry for each layer; `undefined` if it is absent. */
  perLayer(key: Key, nLayers: number): readonly unknown[] | undefined {
    const value = this.raw(key);
    if (value === undefined) return undefined;
    const list = asList(value);
    const hasAll = list !== undefined &&
      (this.isGguf ? list.length >= nLayers : list.length === nLayers);
    if (!hasAll) {
      throw this.invalid(key, value, `a list with an entry for each of ${nLayers} layers`);
    }
    return list;
  }

  /** Reads a nested object of config.json; `undefined` if it is absent and for GGUF. */
  object(name: string): JsonObject | undefined {
    const value = this.isGguf ? undefined : this.setting(name) ?? undefined;
    if (value === undefined || isJsonObject(value)) return value;
    throw this.invalid([name, undefined], value, "an object");
  }

  /** Returns the error for an invalid setting. */
  invalid(key: Key, value: unknown, expected: string): ForgeError {
    const name = this.#name(key) ?? key[0] ?? "?";
    const found = value === undefined
      ? "missing"
      : value === null
      ? "null"
      : quote(describe(value));
    return new ForgeError(
      "bad_model",
      `${quote(this.path)}: ${name} is ${found}; expected ${expected}`,
    );
  }

  /** Returns the settings of config.json for this layer alone. */
  #ownSettings(): JsonObject | undefined {
    if (this.#layer === undefined) return undefined;
    const settings = this.#checkpoint.config?.per_layer_config ?? undefined;
    const own = isJsonObject(settings) ? settings[this.#layer] : undefined;
    return isJsonObject(own) ? own : undefined;
  }

  /** Returns the error for a valid setting that forge does not support. */
  unsupported(key: Key, value: unknown, expected: string): ForgeError {
    return new ForgeError(
      "unsupported",
      `${quote(this.path)}: ${this.#name(key)} is ${
        quote(describe(value))
      }; forge supports ${expected}`,
    );
  }

  /**
   * Returns a value, its default or the fallback. An explicit `null` in place of a default is
   * returned for the caller to reject.
   */
  #orElse(key: Key, fallback: unknown): unknown {
    const value = this.raw(key);
    if (value !== undefined) return value;
    const name = this.#name(key);
    if (name === undefined || this.#defaults[name] === undefined) return fallback;
    return this.setting(name);
  }

  /** Tells the sink a setting that both formats have. */
  #note([huggingFace, gguf]: Key, field: GgufField): void {
    if (this.isGguf || huggingFace === undefined || gguf === undefined) return;
    this.sink?.setting(gguf, field);
  }

  #ofAllLayers(key: Key, value: unknown): unknown {
    const list = asList(value);
    if (list === undefined || list.length === 0) return value;
    if (this.#layer !== undefined) return list[this.#layer];
    if (list.every((entry) => entry === list[0])) return list[0];
    throw new ForgeError(
      "unsupported",
      `${quote(this.path)}: ${this.#name(key)} differs between layers: ${quote(describe(list))}`,
    );
  }

  #name(key: Key): string | undefined {
    if (!this.isGguf) return key[0];
    return key[1] && ggufKey(this.modelType, key[1]);
  }
}

/** Returns the entries of a JSON array or of a GGUF array, whose numbers are in a typed array. */
function asList(value: unknown): readonly unknown[] | undefined {
  if (Array.isArray(value)) return value;
  return ArrayBuffer.isView(value)
    ? Array.from<unknown>(value as unknown as Iterable<unknown>)
    : undefined;
}

function describe(value: unknown): string {
  const list = asList(value);
  if (list !== undefined) return `[${list.map(describe).join(", ")}]`;
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
