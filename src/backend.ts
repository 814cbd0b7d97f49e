/**
 * What a model graph and the engine see of a device. A step is recorded once, as operations over
 * values, and run many times with different inputs; see `csrc/forge.h` for the exact meaning of every
 * operation. `ffi/` implements these interfaces over a native library.
 */
import type {
  KvCache,
  KvShape,
  StateCache,
  StateShape,
  Weight,
  WeightData,
  WeightSlice,
} from "./backend/memory.ts";
import type { Recorder } from "./backend/recorder.ts";
import type { StepLimits } from "./backend/step.ts";
import type { TensorType } from "./formats/tensor_info.ts";

export type * from "./backend/memory.ts";
export * from "./backend/recorder.ts";
export type * from "./backend/step.ts";

/** A native library that implements the ABI. */
export type BackendKind = "cpu" | "reference" | "cuda" | "metal";

/** Which kernels compute attention; `auto` takes the fastest that device and shapes allow. */
export type AttentionKernels = "auto" | "flash" | "tiled" | "naive";

/** Kernels of attention, in the order of `FORGE_ATTENTION_AUTO` and on. */
export const ATTENTION_KERNELS: readonly AttentionKernels[] = ["auto", "flash", "tiled", "naive"];

/** What a device says of itself. */
export interface DeviceInfo {
  /** The processor's or GPU's own name. */
  readonly name: string;
  /** Threads of the host that compute. */
  readonly threads: number;
  /** What the kernels can make use of, such as `avx512_vnni`. */
  readonly features: readonly string[];
  /** The kernel set in use, such as `avx512`. */
  readonly kernels: string;
  /** What else there is to know, a line each: memory, drivers, where files were found. */
  readonly details?: readonly string[];
}

/** Memory of a device, in bytes; 0 where the system does not tell. */
export interface DeviceMemory {
  /** A GPU's own, or what the host and its control groups grant. */
  readonly total: number;
  /**
   * Free on a GPU, as its driver reports it. A processor reports its total: weights and caches take
   * memory there as they are first touched.
   */
  readonly free: number;
}

/** An open device. Its methods throw `ForgeError("device")` for what it cannot do. */
export interface Backend {
  readonly kind: BackendKind;
  readonly info: DeviceInfo;
  /** Asks the device for its memory as it is now. */
  memory(): DeviceMemory;
  /**
   * Returns the weight whose rows are those of the tensors, in order; they must agree in columns.
   *
   * @param columnOrder the numbers of {@linkcode Weight.columnOrder}, a row after another
   */
  mapWeight(
    parts: readonly WeightSlice[],
    cols: number,
    columnOrder?: Uint32Array<ArrayBuffer>,
  ): Weight;
  /** A weight from memory, in the block format of its type; a device that holds nothing makes no data. */
  uploadWeight(type: TensorType, rows: number, cols: number, data: WeightData): Weight;
  /** Dequantised rows, `[nRows, cols]`. */
  readWeight(weight: Weight, firstRow: number, nRows: number): Float32Array;
  createKv(shape: KvShape): KvCache;
  /** Refused where the device has no operations with recurrent state. */
  createState(shape: StateShape): StateCache;
  /** Begins a step that can hold runs up to the limits. */
  record(limits: StepLimits): Recorder;
  /** Releases the device and everything made on it. */
  close(): void;
}

/** What can make weights of a type from floats. */
export interface Quantizer {
  /**
   * Quantises `data[rows, cols]` to the block format of a type: round to nearest, no search. Meant for
   * synthetic models: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q6_K.
   */
  quantize(
    type: TensorType,
    rows: number,
    cols: number,
    data: Float32Array<ArrayBuffer>,
  ): Uint8Array<ArrayBuffer>;
}

/** What a device knows of its machine, for benchmarks. */
export interface Meter {
  /** Bytes a second that the device reads of its memory at most, measured now; 0 where unknown. */
  readBandwidth(): number;
  /** The most memory that this process has held resident so far, in bytes; 0 where unknown. */
  peakMemory(): number;
}
