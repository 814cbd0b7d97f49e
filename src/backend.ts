/**
 * Interface of a device for models and the engine. A step is recorded once, as operations over
 * values, and run many times with different inputs; `csrc/forge.h` defines every operation. `ffi/`
 * implements these interfaces over a native library.
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
export * from "./backend/device_group.ts";
export * from "./backend/recorder.ts";
export type * from "./backend/step.ts";

/** Kind of native library that implements the ABI. */
export type BackendKind = "cpu" | "reference" | "cuda" | "metal";

/**
 * Kernels that compute attention; `auto` takes the fastest that the device and the shapes allow.
 */
export type AttentionKernels = "auto" | "flash" | "tiled" | "naive";

/** Kernels of attention, in the order of `FORGE_ATTENTION_AUTO` and the following constants. */
export const ATTENTION_KERNELS: readonly AttentionKernels[] = ["auto", "flash", "tiled", "naive"];

/**
 * Numbers that products with BF16 and F16 weights multiply on the CPU: `f32` is float32; `bf16`
 * rounds activations and F16 weights to BF16; `auto` rounds activations for BF16 weights. A
 * processor without instructions for BF16 computes in float32.
 */
export type ProductNumbers = "auto" | "f32" | "bf16";

/** Numbers of products, in the order of `FORGE_PRODUCTS_AUTO` and the following constants. */
export const PRODUCT_NUMBERS: readonly ProductNumbers[] = ["auto", "f32", "bf16"];

/**
 * NUMA nodes of a processor: `auto` are those of the machine, `off` none; a number divides threads
 * and weights into as many parts, wherever the system runs them.
 */
export type NumaNodes = "auto" | "off" | number;

/** Facts about a device. */
export interface DeviceInfo {
  /** Name of the processor or GPU. */
  readonly name: string;
  /** Threads of the host that compute. */
  readonly threads: number;
  /** Features that the kernels can use, such as `avx512_vnni`. */
  readonly features: readonly string[];
  /** The kernel set in use, such as `avx512`. */
  readonly kernels: string;
  /** Further facts, one per line: memory, drivers, paths of files. */
  readonly details?: readonly string[];
}

/** Memory of a device, in bytes; 0 if unknown. */
export interface DeviceMemory {
  /** A GPU's own, or what the host and its control groups grant. */
  readonly total: number;
  /**
   * Free on a GPU, as its driver reports it. A processor reports its total: weights and caches take
   * memory there as they are first touched.
   */
  readonly free: number;
}

/**
 * Open device, or several that run the same steps on parts of a model. Its methods throw
 * `ForgeError("device")` for unsupported requests.
 */
export interface Device {
  readonly kind: BackendKind;
  readonly info: DeviceInfo;
  /** Bytes that weights, caches and activations take at most; `undefined` without a bound. */
  readonly memoryBound?: number | undefined;
  /** Asks the device for its memory as it is now. */
  memory(): DeviceMemory;
  createKv(shape: KvShape): KvCache;
  /** Fails on a device without operations with recurrent state. */
  createState(shape: StateShape): StateCache;
  /** Begins recording a step for runs up to the limits. */
  record(limits: StepLimits): Recorder;
  /** Releases the device and everything on it. One of another process is told to. */
  close(): void | Promise<void>;
}

/** Open device with weights of its own. */
export interface Backend extends Device {
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
  /**
   * Makes a weight from memory, in the block format of its type; a device that holds no data never
   * calls a function for it.
   */
  uploadWeight(type: TensorType, rows: number, cols: number, data: WeightData): Weight;
  /** Returns dequantised rows, `[nRows, cols]`. */
  readWeight(weight: Weight, firstRow: number, nRows: number): Float32Array;
}

/** Quantises weights from floats. */
export interface Quantizer {
  /**
   * Quantises `data[rows, cols]` to the block format of a type, with the scales of least squared
   * error: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, IQ4_NL, IQ4_XS.
   *
   * @param importance factors of the squared errors in each column. @default equal ones
   */
  quantize(
    type: TensorType,
    rows: number,
    cols: number,
    data: Float32Array<ArrayBuffer>,
    importance?: Float32Array<ArrayBuffer>,
  ): Uint8Array<ArrayBuffer>;
  /** The same on another thread. Calls may run at the same time. */
  quantizeInBackground(
    ...parameters: Parameters<Quantizer["quantize"]>
  ): Promise<Uint8Array<ArrayBuffer>>;
  /** Releases a weight that no step uses. */
  releaseWeight(weight: Weight): void;
}

/** Measurements of a device's machine, for benchmarks. */
export interface Meter {
  /** Measures the most bytes per second that the device reads from its memory; 0 if unknown. */
  readBandwidth(): number;
  /** Measures the operations per second of products of small matrices; 0 if unknown. */
  matrixRate(): number;
  /** Returns the peak resident memory of this process in bytes; 0 if unknown. */
  peakMemory(): number;
  /** Returns the weights that recorded steps read from their files. */
  streamedBytes(): StreamedBytes;
}

/** Bytes of weights that stay in their files because the device's memory is bounded. */
export interface StreamedBytes {
  /** Bytes of all of them. */
  readonly all: number;
  /** Bytes of them that a token reads, about. */
  readonly perToken: number;
}
