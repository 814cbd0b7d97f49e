import { join } from "node:path";
import { ForgeError } from "../errors.ts";
import { checkArgument, STRING } from "./arguments.ts";
import { exists, isFile, listFolder, statPath } from "./file.ts";
import { type GgufValue, isGgufFile } from "./gguf/gguf.ts";
import { metadataText } from "./gguf/metadata.ts";
import { readGgufModel } from "./gguf/split.ts";
import {
  isJsonObject,
  type JsonObject,
  type JsonValue,
  readJsonObject,
  readPythonObject,
  readText,
} from "./json.ts";
import { LIMITS } from "./limits.ts";
import { unpackedTensors } from "./packed/mod.ts";
import { unpackedGgufTensors } from "./packed/nvfp4.ts";
import { quote, quoteList } from "./quote.ts";
import { readSafetensors, readSafetensorsIndex } from "./safetensors.ts";
import type { TensorInfo } from "./tensor_info.ts";
import { textPart } from "./text_part.ts";

/** A model on disk in either format: its configuration and the locations of its tensors. */
export interface Checkpoint {
  /** The format of its files. */
  readonly kind: "safetensors" | "gguf";
  /** The folder or file it was opened from. */
  readonly path: string;
  /** Paths of the files that hold tensors. */
  readonly files: readonly string[];
  /**
   * Tensors of the text model. GGUF tensors have their names in the file. Tensors of a folder have
   * the names of a text-only model, without the prefix of a multimodal one. A packed matrix is one
   * tensor.
   */
  readonly tensors: ReadonlyMap<string, TensorInfo>;
  /**
   * Creates a tensor that `tensors` lacks, with the shape that the model requests. Only synthetic
   * checkpoints have it.
   */
  readonly supply?: (name: string, shape: readonly number[]) => TensorInfo;
  /** The architecture: `model_type` of the text model's settings, or `general.architecture`. */
  readonly modelType: string;
  /** Architecture of the multimodal model that contains this text model. */
  readonly multimodal?: string | undefined;
  /** config.json, or its part for the text model (safetensors). */
  readonly config: JsonObject | undefined;
  /** generation_config.json, if present (safetensors). */
  readonly generationConfig: JsonObject | undefined;
  /** The header's metadata (GGUF). */
  readonly metadata: ReadonlyMap<string, GgufValue> | undefined;
  /**
   * Returns tokenizer.json, if present (safetensors). Reads it at the first call, because it is
   * large.
   *
   * @throws {ForgeError} `bad_model` if it is damaged
   */
  tokenizerJson(): JsonObject | undefined;
  /**
   * Returns tokenizer_config.json, if present (safetensors); read and thrown as `tokenizerJson`.
   */
  tokenizerConfig(): JsonObject | undefined;
  /**
   * Source of the chat template, if the model has one: chat_template.jinja, or else the one in
   * tokenizer_config.json, or else the one in chat_template.json; in GGUF
   * `tokenizer.chat_template`. Read at the first use; throws as `tokenizerJson`.
   */
  readonly chatTemplate: string | undefined;
}

/**
 * Opens a model: a folder with config.json and safetensors files, or a GGUF file (any part of a
 * split model). Reads only headers and configuration.
 *
 * @throws {ForgeError} `not_found` if the model or a part of it is missing; `bad_model` if it is in
 * neither format or damaged
 */
export function openCheckpoint(path: string): Checkpoint {
  checkArgument("the path of the model", path, STRING);
  const { isDirectory } = statPath(path);
  if (isDirectory) return openFolder(path);
  if (isGgufFile(path)) return openGguf(path);
  const hint = path.endsWith(".safetensors")
    ? "give the folder of a safetensors file, which must also hold config.json"
    : "a model is a GGUF file or a folder with config.json and safetensors files";
  throw new ForgeError("bad_model", `${quote(path)} is not a GGUF file; ${hint}`);
}

function openGguf(path: string): Checkpoint {
  const { files, metadata, tensors: stored } = readGgufModel(path);
  const modelType = metadataText(metadata, "general.architecture", path);
  if (modelType === undefined) {
    throw new ForgeError("bad_model", `${quote(path)} has no key "general.architecture"`);
  }
  return {
    kind: "gguf",
    path,
    files,
    tensors: unpackedGgufTensors(stored),
    modelType,
    config: undefined,
    generationConfig: undefined,
    metadata,
    tokenizerJson: () => undefined,
    tokenizerConfig: () => undefined,
    get chatTemplate() {
      return metadataText(metadata, "tokenizer.chat_template", path);
    },
  };
}

function openFolder(path: string): Checkpoint {
  const configPath = join(path, "config.json");
  if (!isFile(configPath)) {
    throw new ForgeError("not_found", describeMissingConfig(path));
  }
  const whole = withPacking(readPythonObject(configPath, LIMITS.configBytes), path);
  const { model_type: wholeType } = whole;
  if (typeof wholeType !== "string") {
    const found = wholeType === undefined ? "no" : "an unreadable";
    throw new ForgeError("bad_model", `${quote(configPath)} has ${found} "model_type"`);
  }
  const { files, tensors: stored } = readWeights(path);
  const { modelType, config, nameOf, multimodal } = textPart(wholeType, whole, stored.keys());
  const own = new Map([...stored].filter(([name]) => nameOf(name) !== undefined));
  // The parts of a packed matrix refer to each other by their names in the files.
  const unpacked = unpackedTensors(config, own, path);
  const tensors = new Map(
    Array.from(unpacked, ([name, tensor]) => [nameOf(name) ?? name, tensor] as const),
  );
  const tokenizerJson = lazily(() => readOptional(path, "tokenizer.json"));
  const tokenizerConfig = lazily(() => readOptional(path, "tokenizer_config.json"));
  const chatTemplate = lazily(() => readChatTemplate(path, tokenizerConfig()));
  return {
    kind: "safetensors",
    path,
    files,
    tensors,
    modelType,
    multimodal,
    config,
    generationConfig: readOptional(path, "generation_config.json", LIMITS.configBytes),
    metadata: undefined,
    tokenizerJson,
    tokenizerConfig,
    get chatTemplate() {
      return chatTemplate();
    },
  };
}

/**
 * Adds the `quantization_config` that older versions of TensorRT Model Optimizer write to
 * hf_quant_config.json.
 */
function withPacking(config: JsonObject, folder: string): JsonObject {
  if (config.quantization_config !== undefined) return config;
  const quantization = readOptional(folder, "hf_quant_config.json", LIMITS.configBytes)
    ?.quantization;
  if (!isJsonObject(quantization)) return config;
  return { ...config, quantization_config: { ...quantization, quant_method: "modelopt" } };
}

function readWeights(
  folder: string,
): { files: readonly string[]; tensors: ReadonlyMap<string, TensorInfo> } {
  const single = join(folder, "model.safetensors");
  if (isFile(single)) return { files: [single], tensors: readSafetensors(single).tensors };
  const indexName = "model.safetensors.index.json";
  if (isFile(join(folder, indexName))) return readSafetensorsIndex(folder, indexName);
  throw new ForgeError("not_found", describeMissingWeights(folder));
}

function readOptional(
  folder: string,
  name: string,
  maxBytes?: number,
): JsonObject | undefined {
  const path = join(folder, name);
  return exists(path) ? readJsonObject(path, maxBytes) : undefined;
}

function readChatTemplate(folder: string, tokenizerConfig?: JsonObject): string | undefined {
  const templatePath = join(folder, "chat_template.jinja");
  // Some repositories have an empty file, which counts as missing.
  const isEmpty = isFile(templatePath) && statPath(templatePath).size === 0;
  if (exists(templatePath) && !isEmpty) return readText(templatePath, LIMITS.configBytes);
  const configured = tokenizerConfig?.chat_template ??
    readOptional(folder, "chat_template.json", LIMITS.configBytes)?.chat_template;
  if (configured === undefined || configured === null) return undefined;
  return selectTemplate(configured, folder);
}

/** Returns a template, or from a list the one named "default" or the only one. */
function selectTemplate(configured: JsonValue, folder: string): string {
  if (typeof configured === "string") return configured;
  const templates = new Map<JsonValue | undefined, JsonValue | undefined>();
  for (const entry of Array.isArray(configured) ? configured : []) {
    if (isJsonObject(entry)) templates.set(entry.name, entry.template);
  }
  const [only] = templates.size === 1 ? templates.values() : [];
  const selected = templates.get("default") ?? only;
  if (typeof selected === "string") return selected;
  const names = Array.from(templates.keys(), String);
  const found = names.length > 0 ? `only ${quoteList(names)}` : "no template at all";
  throw new ForgeError(
    "bad_model",
    `the "chat_template" of ${quote(folder)} must be text or a list with one named "default"; ` +
      `it holds ${found}`,
  );
}

function describeMissingConfig(folder: string): string {
  const names = listFolder(folder);
  const ggufs = names
    .filter((name) => name.endsWith(".gguf") && !/-(?!00001)\d{5}-of-\d{5}\.gguf$/.test(name))
    .map((name) => join(folder, name));
  const missing = `${quote(folder)} is a folder without config.json`;
  if (ggufs.length > 0) return `${missing}; to use a GGUF file, give its path: ${quoteList(ggufs)}`;
  const found = names.length > 0 ? `it holds ${quoteList(names)}` : "it is empty";
  return `${missing}; ${found}; a model folder holds config.json and safetensors files`;
}

function describeMissingWeights(folder: string): string {
  const names = listFolder(folder);
  const missing = `${
    quote(folder)
  } has neither "model.safetensors" nor "model.safetensors.index.json"`;
  const pickled = names.filter((name) => /\.(bin|pt|pth|ckpt)$/.test(name));
  if (pickled.length > 0) {
    return `${missing}; pickled weights are not read: ${quoteList(pickled)}`;
  }
  const weights = names.filter((name) => /\.(safetensors|gguf)$/.test(name));
  return weights.length > 0
    ? `${missing}; it holds ${quoteList(weights)}`
    : `${missing}, nor any other weights`;
}

function lazily<T>(read: () => T): () => T {
  let kept: { readonly value: T } | undefined;
  return () => (kept ??= { value: read() }).value;
}
