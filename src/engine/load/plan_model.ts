import {
  type Backend,
  DeviceGroup,
  type DeviceInfo,
  type DeviceMemory,
  type KvCache,
  type Recorder,
  type StateCache,
  type Weight,
  type WeightSlice,
} from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import type { Checkpoint } from "../../formats/checkpoint.ts";
import { tensorBytes } from "../../formats/tensor_info.ts";
import type { LayerKvShape, StateMatrix } from "../../models/causal_lm.ts";
import { loadModel } from "../../models/registry.ts";
import type { Division } from "./options.ts";

/** Facts of a checkpoint that loading would find. */
export interface ModelPlan {
  readonly vocabSize: number;
  readonly hiddenSize: number;
  /** True if the model generates; one without an output matrix only embeds texts. */
  readonly hasHead: boolean;
  /** Longest sequence that the model was trained for. */
  readonly contextLength: number;
  readonly kvLayers: readonly LayerKvShape[];
  readonly stateLayers: readonly StateMatrix[];
  /** Bytes of weights of all devices. */
  readonly weightBytes: number;
  /** Bytes of weights of each device. */
  readonly deviceBytes: readonly number[];
  /** True if a layer for multi-token prediction is part of it. */
  readonly predicts: boolean;
  /** Tensors of the files that the model does not use. */
  readonly unusedTensors: readonly string[];
}

/**
 * Loads a model without a device: reads the configuration and checks the presence, shape and type
 * of every tensor, but reads no weights.
 *
 * @param drafts true to include a layer for multi-token prediction, which drafts tokens
 * @param division devices that divide the model
 * @param memory their memory, by which layers are divided. @default the same for all
 * @throws {ForgeError} as {@linkcode loadModel}
 */
export function planModel(
  checkpoint: Checkpoint,
  drafts = false,
  { ranks, stages }: Division = { ranks: 1, stages: 1 },
  memory: readonly DeviceMemory[] = [],
): ModelPlan {
  const devices = Array.from(
    { length: ranks * stages },
    (_, i) => new PlanBackend(memory[i] ?? { total: 0, free: 0 }),
  );
  const device = devices.length > 1 ? new DeviceGroup(devices, stages) : devices[0]!;
  const { lm, weights, loaders } = loadModel(device, checkpoint, { drafts });
  const deviceBytes = loaders.map(({ mappedBytes }) => mappedBytes);
  return {
    vocabSize: lm.vocabSize,
    hiddenSize: lm.hiddenSize,
    hasHead: lm.hasHead,
    contextLength: lm.contextLength,
    kvLayers: lm.kvLayers,
    stateLayers: lm.stateLayers,
    weightBytes: deviceBytes.reduce((sum, bytes) => sum + bytes, 0),
    deviceBytes,
    predicts: lm.draft !== undefined,
    unusedTensors: weights.unusedTensors(loaders),
  };
}

/**
 * Returns the bytes of one token in the KV caches of all layers, with elements of `elementBytes`.
 */
export function kvBytesPerToken(layers: readonly LayerKvShape[], elementBytes: number): number {
  return layers.reduce((sum, layer) => {
    const values = layer.valuesInKeys ? 0 : layer.vHeadDim;
    const bytes = layer.keepsHidden ? (elementBytes === 4 ? 4 : 2) : elementBytes;
    return sum + layer.nKvHeads * (layer.kHeadDim + values) * bytes;
  }, 0);
}

/** Returns the bytes of one sequence's recurrent state. */
export function stateBytes(layers: readonly StateMatrix[]): number {
  return layers.reduce((sum, { rows, cols }) => sum + 4 * rows * cols, 0);
}

/** Device that accepts all weights, reads them as ones, and runs nothing. */
class PlanBackend implements Backend {
  readonly kind = "reference";
  readonly info: DeviceInfo = { name: "plan", threads: 0, features: [], kernels: "none" };
  readonly #memory: DeviceMemory;

  constructor(memory: DeviceMemory) {
    this.#memory = memory;
  }

  memory(): DeviceMemory {
    return this.#memory;
  }

  mapWeight(parts: readonly WeightSlice[], cols: number): Weight {
    let rows = 0;
    for (const { tensor, firstRow = 0, nRows } of parts) {
      const rowBytes = tensorBytes(tensor.type, [cols]);
      if (typeof rowBytes === "string") {
        throw new ForgeError("bad_model", `tensor "${tensor.name}": ${rowBytes}`);
      }
      rows += nRows ?? tensor.bytes / rowBytes - firstRow;
    }
    return { handle: 0, rows, cols };
  }

  uploadWeight(_type: unknown, rows: number, cols: number): Weight {
    return { handle: 0, rows, cols };
  }

  readWeight(weight: Weight, _firstRow: number, nRows: number): Float32Array {
    return new Float32Array(nRows * weight.cols).fill(1);
  }

  createKv(): KvCache {
    throw new ForgeError("unsupported", "a plan has no KV cache");
  }

  createState(): StateCache {
    throw new ForgeError("unsupported", "a plan has no recurrent state");
  }

  record(): Recorder {
    throw new ForgeError("unsupported", "a plan cannot be run");
  }

  close(): void {}
}
