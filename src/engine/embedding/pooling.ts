import { join } from "node:path";
import { ForgeError } from "../../errors.ts";
import type { Checkpoint } from "../../formats/checkpoint.ts";
import { isFile } from "../../formats/file.ts";
import { isJsonObject, type JsonObject, readJsonList, readJsonObject } from "../../formats/json.ts";
import { quote } from "../../formats/quote.ts";
import type { DenseLayer, Pooling } from "../../models/causal_lm.ts";

export type { Pooling };

/** All values of {@linkcode Pooling}. */
export const POOLINGS = ["last", "mean", "cls"] as const satisfies readonly Pooling[];

/** Values of `pooling_type` in GGUF, by llama.cpp's numbers. 4, of rerankers, embeds nothing. */
const GGUF_POOLINGS: ReadonlyMap<unknown, Pooling | "none"> = new Map([
  [0, "none"],
  [1, "mean"],
  [2, "cls"],
  [3, "last"],
]);

/**
 * Names in sentence-transformers' config of a pooling module: keys that are true in older versions,
 * values of `pooling_mode` in newer ones.
 */
const POOLING_MODES: ReadonlyMap<string, Pooling> = new Map([
  ["pooling_mode_lasttoken", "last"],
  ["pooling_mode_mean_tokens", "mean"],
  ["pooling_mode_cls_token", "cls"],
  ["lasttoken", "last"],
  ["mean", "mean"],
  ["cls", "cls"],
]);

/** Limit of these files, which have a few lines. */
const MAX_BYTES = 2 ** 20;

/** Embedding settings of a model's files; `undefined` where they set none. */
export interface EmbeddingRecipe {
  readonly pooling: Pooling | undefined;
  readonly normalize: boolean | undefined;
  /** Layers after the pooling. @default none */
  readonly dense?: readonly DenseModule[] | undefined;
}

/** One of sentence-transformers' Dense modules. */
export interface DenseModule {
  /** Folder of its files, in the model's folder. */
  readonly path: string;
  readonly inputs: number;
  readonly outputs: number;
  readonly bias: boolean;
  readonly activation: DenseLayer["activation"];
}

/** Activations of Dense modules, by the ends of their classes' names. */
const DENSE_ACTIVATIONS: Readonly<Record<string, DenseLayer["activation"]>> = {
  Identity: "identity",
  Tanh: "tanh",
  GELU: "gelu",
  ReLU: "relu",
  SiLU: "silu",
};

/**
 * Reads a model's embedding settings: `pooling_type` of a GGUF file, or sentence-transformers'
 * `modules.json` and the config of its pooling module in a folder.
 *
 * @throws {ForgeError} `unsupported` for a pooling other than {@linkcode POOLINGS}, or unknown
 * modules; `bad_model` for unreadable files
 */
export function embeddingRecipe(checkpoint: Checkpoint): EmbeddingRecipe {
  const { metadata, modelType, path } = checkpoint;
  if (metadata === undefined) return folderRecipe(path);
  const type = metadata.get(`${modelType}.pooling_type`);
  if (type === undefined) return { pooling: undefined, normalize: undefined };
  const pooling = GGUF_POOLINGS.get(type);
  if (type === 4) {
    throw new ForgeError(
      "unsupported",
      `${quote(path)} is a reranker: it scores texts (forge rerank)`,
    );
  }
  if (pooling === undefined) throw unsupported(path, `pooling_type ${type}`);
  return { pooling: pooling === "none" ? undefined : pooling, normalize: undefined };
}

function folderRecipe(folder: string): EmbeddingRecipe {
  const path = join(folder, "modules.json");
  if (!isFile(path)) return { pooling: poolingOf(folder, "1_Pooling"), normalize: undefined };
  let pooling: Pooling | undefined;
  let normalize = false;
  const dense: DenseModule[] = [];
  for (const module of readJsonList(path, MAX_BYTES)) {
    const { type, path: place } = isJsonObject(module) ? module : {};
    const name = typeof type === "string" ? type.split(".").at(-1) : undefined;
    if (name === "Pooling") pooling = poolingOf(folder, placeOf(place, path));
    else if (name === "Normalize") normalize = true;
    else if (name === "Dense") dense.push(denseModule(folder, placeOf(place, path)));
    else if (name !== "Transformer") throw unsupported(path, `the module ${quote(String(type))}`);
  }
  return { pooling, normalize, ...(dense.length === 0 ? {} : { dense }) };
}

function denseModule(folder: string, place: string): DenseModule {
  const path = join(folder, place, "config.json");
  const { in_features, out_features, bias = true, activation_function } = readJsonObject(
    path,
    MAX_BYTES,
  );
  const name = typeof activation_function === "string" ? activation_function : "Tanh";
  const activation = DENSE_ACTIVATIONS[name.split(".").at(-1) ?? ""];
  if (activation === undefined) throw unsupported(path, `the activation ${quote(name)}`);
  const isSize = (size: unknown): size is number => Number.isSafeInteger(size) && Number(size) > 0;
  if (!isSize(in_features) || !isSize(out_features)) {
    throw new ForgeError("bad_model", `${quote(path)} lacks in_features or out_features`);
  }
  return {
    path: place,
    inputs: in_features,
    outputs: out_features,
    bias: bias === true,
    activation,
  };
}

/** Returns the folder of a module, which must lie in the model's folder. */
function placeOf(place: unknown, path: string): string {
  if (typeof place === "string" && /^[\w.-]+$/.test(place) && !/^\.+$/.test(place)) return place;
  throw new ForgeError(
    "bad_model",
    `${quote(path)} has a module at ${
      quote(String(place))
    }; valid is the name of a folder in the model's`,
  );
}

function poolingOf(folder: string, place: string): Pooling | undefined {
  const path = join(folder, place, "config.json");
  if (!isFile(path)) return undefined;
  const config = readJsonObject(path, MAX_BYTES);
  const modes = typeof config.pooling_mode === "string" ? [config.pooling_mode] : modesOf(config);
  const [mode, ...others] = modes;
  if (mode === undefined) return undefined;
  const pooling = POOLING_MODES.get(mode);
  if (pooling !== undefined && others.length === 0) return pooling;
  throw unsupported(path, modes.join(" and "));
}

function modesOf(config: JsonObject): string[] {
  return Object.entries(config)
    .filter(([key, value]) => key.startsWith("pooling_mode_") && value === true)
    .map(([key]) => key);
}

function unsupported(path: string, what: string): ForgeError {
  return new ForgeError(
    "unsupported",
    `${quote(path)} asks for ${what}, which forge does not compute; it pools by ` +
      `${POOLINGS.join(", ")}, and normalises`,
  );
}
