/** A checkpoint and a device in memory. */
import type {
  Backend,
  DeviceInfo,
  KvCache,
  Recorder,
  StateCache,
  Weight,
  WeightData,
  WeightSlice,
} from "../../../src/backend.ts";
import type { Checkpoint } from "../../../src/formats/checkpoint.ts";
import type { GgufValue } from "../../../src/formats/gguf/types.ts";
import type { JsonObject } from "../../../src/formats/json.ts";
import { tensorBytes, type TensorInfo, type TensorType } from "../../../src/formats/tensor_info.ts";
import { ConfigReader } from "../../../src/models/config/config_reader.ts";

/** The shape of a tensor, and its type unless it is F32. */
export type FakeTensor = readonly number[] | { type: TensorType; shape: readonly number[] };

export interface FakeModel {
  readonly config?: JsonObject;
  readonly metadata?: Readonly<Record<string, GgufValue>>;
  readonly tensors?: Readonly<Record<string, FakeTensor>>;
}

/** A checkpoint of a Hugging Face folder or, with metadata, of a GGUF file, without tensor data. */
export function fakeCheckpoint(model: FakeModel): Checkpoint {
  const { config, metadata, tensors = {} } = model;
  const kind = metadata === undefined ? "safetensors" : "gguf";
  const path = kind === "gguf" ? "model.gguf" : "model";
  const architecture = metadata?.["general.architecture"] ?? config?.model_type ?? "llama";
  return {
    kind,
    path,
    files: [path],
    tensors: new Map(
      Object.entries(tensors).map(([name, tensor]) => [name, tensorInfo(name, tensor, path)]),
    ),
    modelType: String(architecture),
    config: kind === "gguf" ? undefined : config ?? {},
    generationConfig: undefined,
    metadata: metadata === undefined ? undefined : new Map(Object.entries(metadata)),
    tokenizerJson: () => undefined,
    tokenizerConfig: () => undefined,
    chatTemplate: undefined,
  };
}

function tensorInfo(name: string, tensor: FakeTensor, file: string): TensorInfo {
  const { type, shape } = "shape" in tensor ? tensor : { type: "F32" as const, shape: tensor };
  const bytes = tensorBytes(type, shape);
  if (typeof bytes === "string") throw new Error(bytes);
  return { name, type, shape, file, offset: 0, bytes };
}

/** The settings of config.json. */
export function jsonConfig(config: JsonObject): ConfigReader {
  return new ConfigReader(fakeCheckpoint({ config: { model_type: "llama", ...config } }));
}

/** The settings of a GGUF file. Keys are given without the architecture. */
export function ggufConfig(
  settings: Readonly<Record<string, GgufValue>>,
  architecture = "llama",
): ConfigReader {
  const keys = Object.entries(settings).map(([key, value]) => [`${architecture}.${key}`, value]);
  return new ConfigReader(
    fakeCheckpoint({
      metadata: { "general.architecture": architecture, ...Object.fromEntries(keys) },
    }),
  );
}

/** A device that records mapped weights, and whose weights hold given values or ones. */
export class FakeBackend implements Backend {
  readonly kind = "reference";
  readonly info: DeviceInfo = { name: "fake", threads: 1, features: [], kernels: "none" };
  readonly mapped: { readonly parts: readonly WeightSlice[]; readonly cols: number }[] = [];
  readonly uploaded: Float32Array[] = [];
  readonly #values: Readonly<Record<string, readonly number[]>>;
  readonly #names: string[] = [];

  /** @param values the rows of each weight, or the first one, by the name of its first tensor */
  constructor(values: Readonly<Record<string, readonly number[]>> = {}) {
    this.#values = values;
  }

  memory() {
    return { total: 0, free: 0 };
  }

  mapWeight(parts: readonly WeightSlice[], cols: number): Weight {
    this.mapped.push({ parts, cols });
    const rows = parts.reduce((sum, { tensor, nRows }) => {
      const all = tensor.shape.slice(0, -1).reduce((product, size) => product * size, 1);
      return sum + (nRows ?? all);
    }, 0);
    return { handle: this.#names.push(parts[0]?.tensor.name ?? "") - 1, rows, cols };
  }

  uploadWeight(_type: TensorType, rows: number, cols: number, data: WeightData) {
    this.uploaded.push(new Float32Array((typeof data === "function" ? data() : data).buffer));
    return { handle: this.#names.push("") - 1, rows, cols };
  }

  readWeight(weight: Weight, firstRow: number, nRows: number): Float32Array {
    const values = this.#values[this.#names[weight.handle] ?? ""];
    const size = nRows * weight.cols;
    if (values === undefined) return new Float32Array(size).fill(1);
    const first = values.length > size ? firstRow * weight.cols : 0;
    return Float32Array.from(values.slice(first, first + size));
  }

  createKv(): KvCache {
    throw new Error("a fake device has no KV cache");
  }

  createState(): StateCache {
    throw new Error("a fake device has no recurrent state");
  }

  record(): Recorder {
    throw new Error("a fake device cannot record");
  }

  close(): void {}
}
