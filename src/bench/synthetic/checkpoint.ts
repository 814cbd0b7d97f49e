/**
 * Models of any architecture with random weights. The architecture's own loader runs on a backend
 * that records the requested tensors and their shapes. Those tensors are then written to a file.
 */
import type { Backend, Weight, WeightSlice } from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import type { Checkpoint } from "../../formats/checkpoint.ts";
import type { JsonObject } from "../../formats/json.ts";
import { quote } from "../../formats/quote.ts";
import {
  dataParts,
  float32Tensor,
  type TensorData,
  writeParts,
} from "../../formats/tensor_data.ts";
import { textPart } from "../../formats/text_part.ts";
import { TENSOR_TYPES, tensorBytes, type TensorInfo } from "../../formats/tensor_info.ts";
import { loadModel } from "../../models/registry.ts";
import { outputType, type SyntheticType } from "./shapes.ts";
import type { SyntheticWeights } from "./weights.ts";

/** Alignment of tensors in the file. */
const ALIGNMENT = 64;

/** A configuration of a synthetic model, and the type of its matrices. */
export interface ConfigSpec {
  /** As a user writes it, such as `gemma-3-1b:Q4_0`. */
  readonly name: string;
  readonly config: JsonObject;
  readonly type: SyntheticType;
}

/** The name and shape of a tensor. */
interface Wanted {
  readonly name: string;
  readonly shape: readonly number[];
}

/**
 * Writes random weights for a configuration to `path`, and returns the checkpoint.
 *
 * @throws {ForgeError} as loading a model of this configuration
 */
export function writeSyntheticCheckpoint(
  path: string,
  spec: ConfigSpec,
  weights: SyntheticWeights,
): Checkpoint {
  const data = wantedTensors(spec).map((wanted) => tensorData(wanted, spec, weights));
  writeParts(path, alignedParts(data));
  return { ...checkpointOf(spec), files: [path], tensors: placeTensors(path, data).tensors };
}

/**
 * Writes a sparse file of zeros in place of weights, and returns the checkpoint: for plans of
 * models of any size.
 *
 * @throws {ForgeError} as loading a model of this configuration
 */
export function writeEmptyCheckpoint(path: string, spec: ConfigSpec): Checkpoint {
  const types = wantedTensors(spec).map(({ name, shape }) => ({
    name,
    shape,
    type: shape.length < 2 ? "F32" as const : matrixType(name, shape.at(-1) ?? 1, spec),
  }));
  const { tensors, end } = placeTensors(path, types);
  using file = Deno.openSync(path, { write: true, create: true, truncate: true });
  file.truncateSync(end);
  return { ...checkpointOf(spec), files: [path], tensors };
}

/** Places tensors in a file, one after another. */
function placeTensors(
  path: string,
  list: readonly Pick<TensorInfo, "name" | "type" | "shape">[],
): { readonly tensors: Map<string, TensorInfo>; readonly end: number } {
  const tensors = new Map<string, TensorInfo>();
  let end = 0;
  for (const { name, type, shape } of list) {
    const bytes = Number(tensorBytes(type, shape));
    tensors.set(name, { name, type, shape, file: path, offset: end, bytes });
    end = Math.ceil((end + bytes) / ALIGNMENT) * ALIGNMENT;
  }
  return { tensors, end };
}

/**
 * Returns the tensors that a model of a configuration requires, without optional ones.
 *
 * @throws {ForgeError} as loading a model of this configuration
 */
export function wantedTensors(spec: ConfigSpec): Wanted[] {
  const wanted = new Map<string, Wanted>();
  const supply = (name: string, shape: readonly number[]): TensorInfo => {
    wanted.set(name, { name, shape });
    return { name, shape, type: "F32", file: "", offset: 0, bytes: 0 };
  };
  loadModel(new EmptyBackend(), { ...checkpointOf(spec), supply });
  return [...wanted.values()];
}

function checkpointOf({ name, config }: ConfigSpec): Checkpoint {
  if (typeof config.model_type !== "string") {
    throw new ForgeError("bad_model", `--synthetic: ${quote(name)} has no "model_type"`);
  }
  const { modelType, multimodal, config: settings } = textPart(config.model_type, config, []);
  return {
    modelType,
    multimodal,
    config: settings,
    tensors: new Map(),
    kind: "safetensors",
    path: name,
    files: [],
    generationConfig: undefined,
    metadata: undefined,
    tokenizerJson: () => undefined,
    tokenizerConfig: () => undefined,
    chatTemplate: undefined,
  };
}

function tensorData(wanted: Wanted, spec: ConfigSpec, weights: SyntheticWeights): TensorData {
  const { name, shape } = wanted;
  const cols = shape.at(-1) ?? 1;
  const rows = shape.slice(0, -1).reduce((product, size) => product * size, 1);
  if (shape.length < 2) {
    // `A_log` is the logarithm of a delta net's decay rate. At 1, the state would decay at once.
    const value = name.endsWith(".bias") ? 0 : name.endsWith(".A_log") ? -3 : 1;
    return float32Tensor(name, shape, new Float32Array(cols).fill(value));
  }
  return { ...weights.matrix(name, matrixType(name, cols, spec), rows, cols), shape };
}

/** Follows common files: F32 for routers, and F16 for rows that the type's blocks do not divide. */
function matrixType(name: string, cols: number, { config, type }: ConfigSpec): SyntheticType {
  if (/\.gate\.weight$/.test(name)) return "F32";
  const isOutput = name === "lm_head.weight" ||
    (/(^|\.)embed_tokens\.weight$/.test(name) && config.tie_word_embeddings !== false);
  const wanted = isOutput ? outputType(type, cols) : type;
  return cols % TENSOR_TYPES[wanted].blockElements === 0 ? wanted : "F16";
}

function* alignedParts(tensors: readonly TensorData[]): Generator<Uint8Array> {
  for (const tensor of tensors) {
    let bytes = 0;
    for (const part of dataParts(tensor)) {
      bytes += part.length;
      yield part;
    }
    yield new Uint8Array((ALIGNMENT - bytes % ALIGNMENT) % ALIGNMENT);
  }
}

/** A backend that stores no weights and computes nothing. */
class EmptyBackend implements Backend {
  readonly kind = "reference";
  readonly info = { name: "none", threads: 0, features: [], kernels: "" };

  memory() {
    return { total: 0, free: 0 };
  }

  mapWeight(parts: readonly WeightSlice[], cols: number): Weight {
    const rows = parts.reduce((sum, { tensor, nRows }) => sum + (nRows ?? tensor.shape[0]!), 0);
    return { handle: 0, rows, cols };
  }

  uploadWeight(_type: string, rows: number, cols: number): Weight {
    return { handle: 0, rows, cols };
  }

  readWeight(weight: Weight, _firstRow: number, nRows: number): Float32Array {
    return new Float32Array(nRows * weight.cols);
  }

  createKv(): never {
    throw new TypeError("this backend stores nothing");
  }

  createState(): never {
    throw new TypeError("this backend stores nothing");
  }

  record(): never {
    throw new TypeError("this backend computes nothing");
  }

  close(): void {}
}
