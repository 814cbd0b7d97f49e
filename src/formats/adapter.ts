import { join } from "node:path";
import { ForgeError } from "../errors.ts";
import { isFile, statPath } from "./file.ts";
import { type GgufValue, isGgufFile, readGguf } from "./gguf/gguf.ts";
import { metadataText } from "./gguf/metadata.ts";
import { isJsonObject, type JsonObject, readJsonObject } from "./json.ts";
import { LIMITS } from "./limits.ts";
import { quote, quoteList, show } from "./quote.ts";
import { readSafetensors } from "./safetensors.ts";
import { assertComputable, type TensorInfo } from "./tensor_info.ts";

/**
 * Low-rank correction of one matrix: `factor * B A` is added to it, or to its transpose if the
 * matrix is an embedding.
 */
export interface LoraPair {
  /** Name of the tensor in a model of the adapter's format. */
  readonly target: string;
  /** `[rank, cols]`; of embeddings in GGUF files `[tokens, rank]` */
  readonly a: TensorInfo;
  /** `[rows, rank]` */
  readonly b: TensorInfo;
  readonly rank: number;
  readonly isOfEmbedding: boolean;
  /**
   * Number of experts for which the pair stacks matrices: in GGUF files `[experts, rank, cols]` and
   * `[experts, rows, rank]`, in folders `[experts * rank, cols]` and `[rows, rank * experts]`.
   * `undefined` for a pair of one matrix.
   */
  readonly nExperts?: number | undefined;
  /** `alpha / rank`, or `alpha / sqrt(rank)` for rank-stabilised adapters. */
  readonly factor: number;
}

/** Low-rank adapter (LoRA) on disk. */
export interface Adapter {
  /** Format of its files: a folder of peft, or a GGUF file. */
  readonly kind: "safetensors" | "gguf";
  /** The folder or file it was opened from. */
  readonly path: string;
  readonly files: readonly string[];
  readonly pairs: readonly LoraPair[];
  /** Architecture of the model that it is for; only GGUF files name it. */
  readonly architecture: string | undefined;
  /** Name of the model that it was trained on. */
  readonly baseModel: string | undefined;
}

const CONFIG = "adapter_config.json";
const WEIGHTS = "adapter_model.safetensors";

/** The largest rank of a matrix. Adapters in use have up to 512. */
const MAX_RANK = 4096;

/**
 * True if the path is an adapter: a folder with adapter_config.json, or a GGUF file that says so.
 */
export function isAdapter(path: string): boolean {
  if (statPath(path).isDirectory) return isFile(join(path, CONFIG));
  return isGgufFile(path) && readGguf(path).metadata.get("general.type") === "adapter";
}

/**
 * Opens an adapter: a folder of peft with adapter_config.json and adapter_model.safetensors, or a
 * GGUF file. Reads only headers and configuration.
 *
 * @throws {ForgeError} `not_found` if a file is missing; `bad_model` for a damaged adapter;
 * `unsupported` for an adapter with parts that are not computed
 */
export function openAdapter(path: string): Adapter {
  if (statPath(path).isDirectory) return openFolder(path);
  if (isGgufFile(path)) return openGguf(path);
  const hint = path.endsWith(".safetensors")
    ? `give the folder of the file, which must also hold ${CONFIG}`
    : `an adapter is a folder with ${CONFIG} and ${WEIGHTS}, or a GGUF file`;
  throw new ForgeError("bad_model", `${quote(path)} is no adapter; ${hint}`);
}

/** Settings of peft that change what is computed, with the values that change nothing. */
const PLAIN_SETTINGS: Readonly<Record<string, readonly unknown[]>> = {
  use_dora: [false],
  bias: ["none"],
  lora_bias: [false],
  fan_in_fan_out: [false],
  modules_to_save: [],
  trainable_token_indices: [],
  layer_replication: [],
  alora_invocation_tokens: [],
  arrow_config: [],
  use_qalora: [false],
  use_bdlora: [],
  kasa_config: [],
  monteclora_config: [],
};

/** Initialisations that change the model's own weights, which the adapter does not hold. */
const CHANGED_BASE = /^(?:pissa|olora|corda|loftq|lora_ga)/i;

/**
 * Copies of the model's own output matrix or embedding, which peft adds if an adapter changes it.
 */
const COPY = /\.(?:lm_head|embed_tokens)\.base_layer\.weight$/;

/**
 * Tensors of a folder: `base_model.model.<module>.lora_A.weight`, in old files with a name, and
 * `base_model.model.<module>.lora_embedding_A` of embeddings.
 */
const FOLDER_TENSOR =
  /^base_model\.model\.(.+)\.(?:lora_([AB])(?:\.[^.]+)?\.weight|lora_embedding_([AB])(?:\.[^.]+)?)$/;

/** Pairs of embeddings in GGUF files. */
const GGUF_EMBEDDING = /^token_embd\.weight\.lora_/;

function openFolder(path: string): Adapter {
  const configPath = join(path, CONFIG);
  const weightsPath = join(path, WEIGHTS);
  for (const file of [configPath, weightsPath]) {
    if (isFile(file)) continue;
    throw new ForgeError(
      "not_found",
      `the adapter ${quote(path)} has no ${file.slice(path.length + 1)}`,
    );
  }
  const config = readJsonObject(configPath, LIMITS.configBytes);
  checkConfig(config, configPath);
  const { tensors } = readSafetensors(weightsPath);
  const own = new Map([...tensors].filter(([name]) => !COPY.test(name)));
  const modules = [...own.keys()].flatMap((name) => FOLDER_TENSOR.exec(name)?.[1] ?? []);
  const parameterOf = readParameters(config, modules, configPath);
  const pairs = pairUp(own, weightsPath, (name) => {
    const [, module, side, embeddingSide] = FOLDER_TENSOR.exec(name) ?? [];
    return module === undefined ? undefined : {
      target: parameterOf(module) ?? `${module}.weight`,
      side: (side ?? embeddingSide) as Side,
      isOfEmbedding: embeddingSide !== undefined,
    };
  });
  const parameters = new Set(modules.map(parameterOf));
  const rankOf = readNumbers(config, "r", "rank_pattern", configPath);
  const alphaOf = readNumbers(config, "lora_alpha", "alpha_pattern", configPath);
  return {
    kind: "safetensors",
    path,
    files: [weightsPath],
    architecture: undefined,
    baseModel: typeof config.base_model_name_or_path === "string"
      ? config.base_model_name_or_path
      : undefined,
    pairs: pairs.map((pair) => {
      const isParameter = parameters.has(pair.target);
      // Patterns are matched with the name of the module, or with that of the parameter.
      const module = isParameter ? pair.target : pair.target.slice(0, -".weight".length);
      const rank = rankOf(module);
      const nExperts = pair.rank / rank;
      if (isParameter ? !Number.isInteger(nExperts) : nExperts !== 1) {
        throw new ForgeError(
          "bad_model",
          `${quote(weightsPath)}: tensor ${quote(pair.a.name)} has rank ${pair.rank}; ` +
            `${CONFIG} implies ${rank}${isParameter ? " for each expert" : ""}`,
        );
      }
      const alpha = alphaOf(module);
      const divisor = config.use_rslora === true ? Math.sqrt(rank) : rank;
      const stacked = isParameter && nExperts > 1 ? { nExperts } : {};
      return { ...pair, ...stacked, rank, factor: alpha / divisor };
    }),
  };
}

/** Most ends of a module's name that are looked up; the names in use have up to a dozen parts. */
const MAX_ENDS = 64;

/** Returns the ends of a module's name that consist of whole parts. */
function endsOf(module: string): string[] {
  const ends = [module];
  for (let dot = module.lastIndexOf("."); dot > 0 && ends.length < MAX_ENDS;) {
    ends.push(module.slice(dot + 1));
    dot = module.lastIndexOf(".", dot - 1);
  }
  return ends;
}

/** A module inside the wrappers of its adapted parameters. */
const WRAPPED = /^(.+?)((?:\.base_layer)*)$/;

/**
 * Reads `target_parameters`: tensors that peft adapts by wrappers around their module, nested if it
 * has several. Names in the file tell the wrappers of a module apart only by their depth.
 *
 * @param modules names of the modules that have adapters
 * @returns the name of the tensor that a wrapper adapts; `undefined` for other modules
 */
function readParameters(
  config: JsonObject,
  modules: readonly string[],
  path: string,
): (module: string) => string | undefined {
  const parameters = config.target_parameters ?? [];
  if (!Array.isArray(parameters) || parameters.some((name) => typeof name !== "string")) {
    throw new ForgeError(
      "bad_model",
      `${quote(path)} has target_parameters ${show(parameters)}; valid is a list of names`,
    );
  }
  const split = (module: string) => {
    const [, owner = "", wrappers = ""] = WRAPPED.exec(module) ?? [];
    return { owner, depth: wrappers.length / ".base_layer".length };
  };
  const counts = new Map<string, number>();
  for (const { owner, depth } of modules.map(split)) {
    counts.set(owner, Math.max(counts.get(owner) ?? 0, depth + 1));
  }
  const named = new Map<string, string[]>();
  for (const name of parameters as string[]) {
    // peft writes plain names for those of experts.
    const dot = name.lastIndexOf("."), module = dot < 0 ? "experts" : name.slice(0, dot);
    const own = named.get(module) ?? [];
    own.push(name.slice(dot + 1));
    named.set(module, own);
  }
  // Wrappers are nested in the order in which the modules of transformers define the parameters.
  const owned = new Map(Array.from(counts.keys(), (owner) => {
    const own = new Set(endsOf(owner).flatMap((end) => named.get(end) ?? []));
    const isLast = (name: string) => Number(name === "down_proj");
    return [owner, [...own].sort((a, b) => isLast(a) - isLast(b))];
  }));

  return (module) => {
    const { owner, depth } = split(module);
    const own = owned.get(owner) ?? [];
    if (own.length === 0) return undefined;
    const count = counts.get(owner)!;
    if (own.length !== count) {
      throw new ForgeError(
        "bad_model",
        `${quote(path)}: target_parameters names ${quoteList(own)} of ${quote(owner)}; ` +
          `${quote(WEIGHTS)} has pairs of ${count}`,
      );
    }
    return `${owner}.${own[count - 1 - depth]}`;
  };
}

function checkConfig(config: JsonObject, path: string): void {
  if (config.peft_type !== "LORA") {
    throw new ForgeError(
      "unsupported",
      `${quote(path)} has peft_type ${show(config.peft_type)}; forge computes "LORA"`,
    );
  }
  for (const [key, plain] of Object.entries(PLAIN_SETTINGS)) {
    const value = config[key] ?? undefined;
    const isEmpty = value === undefined || (Array.isArray(value) && value.length === 0) ||
      (isJsonObject(value) && Object.keys(value).length === 0);
    if (isEmpty || plain.includes(value)) continue;
    throw new ForgeError(
      "unsupported",
      `${quote(path)} has ${key} ${
        Array.isArray(value) ? quoteList(value.map(String)) : show(value)
      }, which forge does not compute`,
    );
  }
  const { use_rslora: isStabilised = false } = config;
  if (typeof (isStabilised ?? false) !== "boolean") {
    throw new ForgeError(
      "bad_model",
      `${quote(path)} has use_rslora ${show(isStabilised)}; valid is true or false`,
    );
  }
  const start = config.init_lora_weights;
  if (typeof start === "string" && CHANGED_BASE.test(start)) {
    throw new ForgeError(
      "unsupported",
      `${quote(path)} has init_lora_weights ${
        quote(start)
      }: its model has other weights than the ` +
        "original; convert the adapter with peft",
    );
  }
}

/** Names of modules in rank_pattern and alpha_pattern. */
const MODULE_NAME = /^\^?(?:[\w-]|\\?\.)+\$?$/;
/** Part of a regular expression that is matched: a character, a class or alternatives. */
const EXPRESSION_PART = /(?:[\w-]|\\?\.|\\d|\[\w+\]|\[0-9\])[*+?]?|\([\w|-]+\)/g;
/** Limits that bound the time of matching. */
const MAX_REPETITIONS = 2;
const MAX_EXPRESSIONS = 32;
const MAX_MODULE_LENGTH = 256;

/**
 * Returns a regular expression as peft applies it, to the end of a module's name; `undefined` for
 * one that could take long: with repeated groups or more than {@linkcode MAX_REPETITIONS}.
 */
function moduleExpression(pattern: string): RegExp | undefined {
  const own = pattern.replace(/^\^?\.\*\\?\./, "").replace(/\$$/, "");
  const isRead = own.replace(/^\^/, "").replace(EXPRESSION_PART, "") === "";
  const repetitions = own.match(/[*+?]/g)?.length ?? 0;
  if (!isRead || repetitions > MAX_REPETITIONS) return undefined;
  // If the expression begins with "^", the prefix before it can only be empty.
  return new RegExp(`^(?:.*\\.)?${own}$`);
}

/**
 * Reads a number of the configuration, and the patterns that replace it for some modules.
 *
 * @returns the number for a module: that of the first pattern that it matches
 */
function readNumbers(
  config: JsonObject,
  key: "r" | "lora_alpha",
  patternsKey: "rank_pattern" | "alpha_pattern",
  path: string,
): (module: string) => number {
  const patterns = config[patternsKey] ?? {};
  if (!isJsonObject(patterns)) {
    throw new ForgeError(
      "bad_model",
      `${quote(path)}: ${patternsKey} is ${show(patterns)}; expected an object`,
    );
  }
  // By whole name, or by end with its dot. Comparing each module with each pattern takes too long.
  const known = new Map<string, { readonly index: number; readonly pattern: string }>();
  const expressions: { index: number; pattern: string; expression: RegExp }[] = [];
  for (const [index, pattern] of Object.keys(patterns).entries()) {
    if (MODULE_NAME.test(pattern)) {
      const name = pattern.replace(/^\^|\$$/g, "").replaceAll("\\.", ".");
      const place = pattern.startsWith("^") ? name : `.${name}`;
      if (!known.has(place)) known.set(place, { index, pattern });
      continue;
    }
    const expression = moduleExpression(pattern);
    if (expression === undefined || expressions.length === MAX_EXPRESSIONS) {
      throw new ForgeError(
        "unsupported",
        `${quote(path)}: ${patternsKey} has the regular expression ${
          quote(pattern)
        }; forge reads ` +
          `up to ${MAX_EXPRESSIONS} without repeated groups and with up to ${MAX_REPETITIONS} ` +
          "repetitions each",
      );
    }
    expressions.push({ index, pattern, expression });
  }
  return (module) => {
    const places = [module, ...endsOf(module).map((end) => `.${end}`)];
    const isShort = module.length <= MAX_MODULE_LENGTH;
    const [first] = [
      ...places.flatMap((place) => known.get(place) ?? []),
      ...expressions.filter(({ expression }) => isShort && expression.test(module)),
    ].sort((a, b) => a.index - b.index);
    const value = first === undefined ? config[key] : patterns[first.pattern];
    const isValid = typeof value === "number" && Number.isFinite(Math.fround(value)) &&
      (key === "lora_alpha" || (Number.isInteger(value) && value >= 1 && value <= MAX_RANK));
    if (isValid) return value;
    const name = first === undefined ? key : `${patternsKey} of ${quote(first.pattern)}`;
    const valid = key === "r"
      ? `a whole number from 1 to ${MAX_RANK}`
      : "a number of at most 3.4e38";
    throw new ForgeError(
      "bad_model",
      `${quote(path)}: ${name} is ${show(value)}; valid is ${valid}`,
    );
  };
}

function openGguf(path: string): Adapter {
  const { metadata, tensors } = readGguf(path);
  const type = metadataText(metadata, "general.type", path);
  if (type !== "adapter") {
    throw new ForgeError(
      "bad_model",
      `${quote(path)} has general.type ${show(type)}; an adapter has "adapter"`,
    );
  }
  const kind = metadataText(metadata, "adapter.type", path);
  if (kind !== "lora") {
    throw new ForgeError(
      "unsupported",
      `${quote(path)} has adapter.type ${show(kind)}; forge computes "lora"`,
    );
  }
  if (metadata.has("adapter.alora.invocation_tokens")) {
    throw new ForgeError(
      "unsupported",
      `${
        quote(path)
      } is applied from its invocation tokens on (aLoRA), which forge does not compute`,
    );
  }
  const alpha = ggufAlpha(metadata, path);
  const pairs = pairUp(tensors, path, (name) => {
    const [, target, side] = /^(.+)\.lora_([ab])$/.exec(name) ?? [];
    return target === undefined ? undefined : {
      target,
      side: side === "a" ? "A" : "B",
      isOfEmbedding: GGUF_EMBEDDING.test(name),
    };
  });
  return {
    kind: "gguf",
    path,
    files: [path],
    architecture: metadataText(metadata, "general.architecture", path),
    baseModel: metadataText(metadata, "general.base_model.0.name", path),
    pairs: pairs.map((pair) => {
      if (pair.rank > MAX_RANK) {
        throw new ForgeError(
          "unsupported",
          `the adapter ${quote(path)}: ${quote(pair.a.name)} has rank ${pair.rank}; forge ` +
            `computes up to ${MAX_RANK}`,
        );
      }
      // llama.cpp takes an alpha of 0 as none.
      return { ...pair, factor: alpha === 0 ? 1 : alpha / pair.rank };
    }),
  };
}

function ggufAlpha(metadata: ReadonlyMap<string, GgufValue>, path: string): number {
  const alpha = metadata.get("adapter.lora.alpha");
  if (typeof alpha === "number" && Number.isFinite(alpha)) return alpha;
  throw new ForgeError(
    "bad_model",
    `${quote(path)}: adapter.lora.alpha is ${typeof alpha === "object" ? "a list" : alpha}; ` +
      "valid is a number",
  );
}

type Side = "A" | "B";

/** Place of a tensor in an adapter. */
interface PairName extends Pick<LoraPair, "target" | "isOfEmbedding"> {
  readonly side: Side;
}

/**
 * Finds the pairs of an adapter's tensors and checks their shapes against each other.
 *
 * @param read returns what the name of a tensor says
 */
function pairUp(
  tensors: ReadonlyMap<string, TensorInfo>,
  path: string,
  read: (name: string) => PairName | undefined,
): Omit<LoraPair, "factor">[] {
  const sides = new Map<
    string,
    Pick<PairName, "isOfEmbedding"> & Partial<Record<Side, TensorInfo>>
  >();
  for (const [name, tensor] of tensors) {
    const parsed = read(name);
    if (parsed === undefined) {
      throw new ForgeError(
        "unsupported",
        `the adapter ${quote(path)} has the tensor ${quote(name)}; forge computes low-rank pairs ` +
          "of matrices only",
      );
    }
    const { target, side, isOfEmbedding } = parsed;
    const known = sides.get(target) ?? { isOfEmbedding };
    if (known[side] !== undefined) {
      throw new ForgeError(
        "bad_model",
        `the adapter ${quote(path)} has ${quoteList([known[side].name, name])} for one matrix`,
      );
    }
    assertComputable(tensor);
    sides.set(target, { ...known, [side]: tensor });
  }
  if (sides.size === 0) {
    throw new ForgeError("bad_model", `the adapter ${quote(path)} has no tensors`);
  }
  return Array.from(sides, ([target, { A: a, B: b, isOfEmbedding }]) => {
    if (a === undefined || b === undefined) {
      throw new ForgeError(
        "bad_model",
        `the adapter ${quote(path)} has ${quote((a ?? b)!.name)} without its ${
          a === undefined ? "A" : "B"
        } matrix`,
      );
    }
    const nExperts = a.shape.length === 3 ? a.shape[0] : undefined;
    const isStacked = nExperts !== undefined && nExperts === b.shape[0];
    const [aShape, bShape] = [a, b].map(({ shape }) => isStacked ? shape.slice(1) : shape);
    const rank = bShape![1] ?? 0;
    const fits = aShape!.length === 2 && bShape!.length === 2 &&
      (aShape![0] === rank || (isOfEmbedding && aShape![1] === rank));
    if (!fits) {
      throw new ForgeError(
        "bad_model",
        `the adapter ${quote(path)}: ${quote(a.name)} has the shape [${a.shape}], ${
          quote(b.name)
        } ` +
          `[${b.shape}]; expected [rank, columns] and [rows, rank]`,
      );
    }
    return { target, a, b, rank, isOfEmbedding, nExperts };
  });
}
