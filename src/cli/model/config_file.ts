/**
 * The config file: short names of models and their options.
 *
 * ```json
 * { "models": { "qwen": { "model": "Qwen/Qwen3-0.6B", "ctx": 8192, "temp": 0.6 } } }
 * ```
 */
import { dirname, join } from "node:path";
import { ForgeError } from "../../errors.ts";
import { exists } from "../../formats/file.ts";
import {
  isJsonObject,
  type JsonObject,
  type JsonValue,
  readJsonObject,
} from "../../formats/json.ts";
import { quote, quoteList } from "../../formats/quote.ts";
import { GENERATION_FLAGS, LOADING_FLAGS } from "../options/flags.ts";
import { type OptionName, OPTIONS } from "../options/options.ts";
import { longFlag } from "../options/types.ts";
import { parseOptionValue } from "../options/value.ts";

/** Options that a model may have in the file, by their keys: long flags without dashes. */
const VALID_OPTIONS: ReadonlyMap<string, OptionName> = new Map(
  ([...LOADING_FLAGS, ...GENERATION_FLAGS, "system", "thinking"] as const)
    .map((name) => [keyOf(name), name]),
);

/** Keys whose values name files, or models that may be files. */
const PATH_KEYS = ["model", "draft-model", "chat-template"];

/** A model in the file. */
interface ConfiguredModel {
  /** Path or hub name. */
  readonly model: string;
  /** Values by the keys of options. */
  readonly options: ReadonlyMap<string, unknown>;
}

let models: ReadonlyMap<string, ConfiguredModel> | undefined;

/**
 * Returns the model with a short name, if the file has it.
 *
 * @throws {ForgeError} `usage` for a file that is not valid, naming the key and the valid values
 */
export function configuredModel(name: string): ConfiguredModel | undefined {
  models ??= readModels();
  return models.get(name);
}

/**
 * Returns flags with the defaults that the file has for a model. Flags that are given win.
 *
 * @param name name of the model; flags of other models are returned as they are
 * @throws {ForgeError} as {@linkcode configuredModel}
 */
export function withModelDefaults<T extends object>(flags: T, name: string | undefined): T {
  const known = name === undefined ? undefined : configuredModel(name);
  if (known === undefined) return flags;
  const defaults = Object.keys(flags).flatMap((option) => {
    const isGiven = ![undefined, false].includes(flags[option as keyof T] as undefined);
    const key = keyOf(option as OptionName);
    return isGiven || !known.options.has(key) ? [] : [[option, known.options.get(key)]];
  });
  return { ...flags, ...Object.fromEntries(defaults) };
}

function keyOf(name: OptionName): string {
  return longFlag(OPTIONS[name]).replace(/^--/, "");
}

/** Returns the path of the file; `undefined` if no home folder is known. */
function configPath(): string | undefined {
  const home = Deno.env.get("HOME") ?? Deno.env.get("USERPROFILE");
  const base = Deno.env.get("XDG_CONFIG_HOME") || (home && join(home, ".config"));
  return base && join(base, "forge", "config.json");
}

function readModels(): Map<string, ConfiguredModel> {
  const path = configPath();
  if (path === undefined || !exists(path)) return new Map();
  const { models, ...others } = readConfig(path);
  for (const key of Object.keys(others)) throw invalidKey(path, key, ["models"]);
  const entries = Object.entries(asObject(path, "models", models ?? {}));
  return new Map(entries.map(([name, value]) => [name, readModel(path, name, value)]));
}

function readConfig(path: string): JsonObject {
  try {
    return readJsonObject(path);
  } catch (error) {
    throw error instanceof ForgeError ? new ForgeError("usage", error.message) : error;
  }
}

function readModel(path: string, name: string, value: JsonValue | undefined): ConfiguredModel {
  const place = `models.${name}`;
  const fields = asObject(path, place, value);
  const options = new Map<string, unknown>();
  for (const [key, given] of Object.entries(fields)) {
    if (given === undefined) continue;
    const resolved = PATH_KEYS.includes(key) && typeof given === "string"
      ? resolvePath(path, given)
      : given;
    if (key === "model") options.set(key, resolved);
    else options.set(key, readOption(path, place, key, resolved));
  }
  const model = options.get("model");
  options.delete("model");
  if (typeof model === "string" && model !== "") return { model, options };
  const problem = model === undefined ? "is missing" : `is ${JSON.stringify(model)}`;
  throw new ForgeError(
    "usage",
    `${quote(path)}: ${place}.model ${problem}; valid is a path or hub name`,
  );
}

function readOption(path: string, place: string, key: string, value: JsonValue): unknown {
  const name = VALID_OPTIONS.get(key);
  if (name === undefined) {
    throw invalidKey(path, `${place}.${key}`, ["model", ...VALID_OPTIONS.keys()]);
  }
  const spec = OPTIONS[name];
  if (spec.kind === "flag") {
    if (typeof value === "boolean") return value;
    const problem = `${place}.${key} is ${JSON.stringify(value)}; valid is true or false`;
    throw new ForgeError("usage", `${quote(path)}: ${problem}`);
  }
  let parsed: unknown;
  for (const one of Array.isArray(value) ? value : [value]) {
    const isScalar = typeof one === "string" || typeof one === "number";
    try {
      parsed = parseOptionValue(spec, isScalar ? String(one) : JSON.stringify(one), parsed);
    } catch (error) {
      if (!(error instanceof ForgeError)) throw error;
      const message = error.message.replace(longFlag(spec), `${place}.${key}`);
      throw new ForgeError("usage", `${quote(path)}: ${message}`);
    }
  }
  return parsed;
}

/** Resolves `~/` to the home folder, and a path that starts with a dot from the file's folder. */
function resolvePath(path: string, given: string): string {
  if (given.startsWith("~/")) return join(Deno.env.get("HOME") ?? "~", given.slice(2));
  return given.startsWith(".") ? join(dirname(path), given) : given;
}

function asObject(path: string, place: string, value: JsonValue | undefined): JsonObject {
  if (isJsonObject(value)) return value;
  throw new ForgeError(
    "usage",
    `${quote(path)}: ${place} is ${JSON.stringify(value)}; valid is an object`,
  );
}

function invalidKey(path: string, key: string, valid: readonly string[]): ForgeError {
  return new ForgeError(
    "usage",
    `${quote(path)}: unknown key ${key}; valid is ${quoteList(valid)}`,
  );
}
