/**
 * The config file: short names of models and their options.
 *
 * ```json
 * { "models": { "qwen": { "model": "Qwen/Qwen3-0.6B", "ctx": 8192, "temp": 0.6 } } }
 * ```
 */
import { dirname, join } from "node:path";
import { ForgeError } from "../../errors.ts";
import { exists, expandHome, homeFolder } from "../../formats/file.ts";
import {
  isJsonObject,
  type JsonObject,
  type JsonValue,
  readJsonObject,
} from "../../formats/json.ts";
import { quote, quoteList, show } from "../../formats/quote.ts";
import { GENERATION_FLAGS, LOADING_FLAGS, REPLICA_FLAGS } from "../options/flags.ts";
import { type OptionName, OPTIONS } from "../options/options.ts";
import { longFlag } from "../options/types.ts";
import { parseOptionValue } from "../options/value.ts";

/** Options that a model may have in the file. Each takes a value. */
const VALID_NAMES = [
  ...LOADING_FLAGS,
  ...REPLICA_FLAGS,
  ...GENERATION_FLAGS,
  "system",
  "thinking",
] as const;

/** The options by their keys: long flags without dashes. */
const VALID_OPTIONS: ReadonlyMap<string, (typeof VALID_NAMES)[number]> = new Map(
  VALID_NAMES.map((name) => [keyOf(name), name]),
);

/** Keys whose values name files or folders, or models that may be files. */
const PATH_KEYS = ["model", "draft-model", "chat-template", "kv-dir", "lora"];

/** Keys of the file that a given flag replaces together with its own. */
const REPLACED: Partial<Record<OptionName, readonly OptionName[]>> = {
  device: ["devices"],
  devices: ["device", "dataParallel"],
  dataParallel: ["devices"],
};

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
  const names = Object.keys(flags) as (OptionName & keyof T)[];
  const given = names.filter((name) => flags[name] !== undefined);
  const replaced = new Set([...given, ...given.flatMap((name) => REPLACED[name] ?? [])]);
  const defaults = names.flatMap((name) => {
    const key = keyOf(name);
    return replaced.has(name) || !known.options.has(key) ? [] : [[name, known.options.get(key)]];
  });
  return { ...flags, ...Object.fromEntries(defaults) };
}

function keyOf(name: OptionName): string {
  return longFlag(OPTIONS[name]).replace(/^--/, "");
}

/** Returns the path of the file; `undefined` if no home folder is known. */
function configPath(): string | undefined {
  const home = homeFolder();
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
    const resolved = PATH_KEYS.includes(key) ? resolvePaths(path, given) : given;
    if (key === "model") options.set(key, resolved);
    else options.set(key, readOption(path, place, key, resolved));
  }
  const model = options.get("model");
  options.delete("model");
  if (typeof model === "string" && model !== "") return { model, options };
  const problem = model === undefined ? "is missing" : `is ${show(model)}`;
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
  if (name === "devices" && Array.isArray(value)) value = value.join(",");
  let parsed: unknown;
  for (const one of Array.isArray(value) ? value : [value]) {
    const text = typeof one === "string" ? one : JSON.stringify(one);
    try {
      parsed = parseOptionValue(spec, text, parsed);
    } catch (error) {
      if (!(error instanceof ForgeError)) throw error;
      const message = error.message.replace(longFlag(spec), `${place}.${key}`);
      throw new ForgeError("usage", `${quote(path)}: ${message}`);
    }
  }
  return parsed;
}

/**
 * Resolves `~/` to the home folder, and paths that start with a dot from the file's folder. The
 * name of an adapter may precede its path.
 */
function resolvePaths(path: string, given: JsonValue): JsonValue {
  if (Array.isArray(given)) return given.map((one) => resolvePaths(path, one));
  if (typeof given !== "string") return given;
  const [, name = "", file = given] = /^([\w.-]+=)(?=[.~])(.+)$/s.exec(given) ?? [];
  return name + (file.startsWith(".") ? join(dirname(path), file) : expandHome(file));
}

function asObject(path: string, place: string, value: JsonValue | undefined): JsonObject {
  if (isJsonObject(value)) return value;
  throw new ForgeError(
    "usage",
    `${quote(path)}: ${place} is ${show(value)}; valid is an object`,
  );
}

function invalidKey(path: string, key: string, valid: readonly string[]): ForgeError {
  return new ForgeError(
    "usage",
    `${quote(path)}: unknown key ${key}; valid is ${quoteList(valid)}`,
  );
}
