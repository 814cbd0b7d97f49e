import {
  ATTENTION_KERNELS,
  type AttentionKernels,
  type Backend,
  type BackendKind,
  type DeviceInfo,
  type DeviceMemory,
  type KvCache,
  type KvShape,
  type Meter,
  PRODUCT_NUMBERS,
  type ProductNumbers,
  type Quantizer,
  Recorder,
  type StateCache,
  type StateShape,
  type StepLimits,
  type StreamedBytes,
  type Weight,
  type WeightData,
  type WeightSlice,
} from "../src/backend.ts";
import { ForgeError } from "../src/errors.ts";
import {
  type PackedMatrix,
  TENSOR_TYPES,
  tensorBytes,
  type TensorInfo,
  type TensorType,
  type TensorTypeInfo,
} from "../src/formats/tensor_info.ts";
import { matrixStruct, placeStructs } from "./packed_matrix.ts";
import { Library } from "./library.ts";
import { NativeKvCache, NativeStateCache } from "./native_caches.ts";
import { NativeHandles } from "./native_handles.ts";
import { NativeRecorder, type OperationDescription, readOperations } from "./native_recorder.ts";
import { checkStatus } from "./status.ts";
import { cString, readText } from "./status.ts";

/** Bytes of a `forge_weight_part`. */
export const WEIGHT_PART_BYTES = 24;

/** Bytes of a key of a group: `FORGE_GROUP_KEY_BYTES`. */
export const GROUP_KEY_BYTES = 128;

/** The part of a group of devices that a process has. */
export interface GroupPart {
  /** Number of devices of all processes. */
  readonly nDevices: number;
  readonly nStages: number;
  /** Number in the group of the first device of the process. */
  readonly first: number;
  /** Keys that one of the processes has made by {@linkcode NativeBackend.makeGroupKeys}. */
  readonly keys: Uint8Array<ArrayBuffer>;
}

/** Selects a device. */
interface DeviceOptions {
  readonly kind: BackendKind;
  /** The library's name of a device or instruction set. @default "" (the best one) */
  readonly selector?: string;
  /** Number of compute threads. @default 0 (one per core) */
  readonly threads?: number;
  /** Path of the library. @default the first one found */
  readonly libraryPath?: string;
}

/** A device of a native library. */
export class NativeBackend implements Backend, Meter, Quantizer {
  readonly kind: BackendKind;
  /** Facts about the device with its chosen products. */
  info: DeviceInfo;
  memoryBound: number | undefined;
  readonly #native: NativeHandles;
  readonly #operations: ReadonlyMap<string, OperationDescription>;
  readonly #device: number;
  readonly #files = new Map<string, number>();
  readonly #packed = new Map<PackedMatrix, number>();

  private constructor(library: Library, device: number) {
    this.kind = library.kind;
    this.#operations = readOperations(library);
    this.#native = new NativeHandles(library);
    this.#device = this.#native.adopt(device);
    this.info = this.#readInfo();
  }

  #readInfo(): DeviceInfo {
    const { forge_device_info } = this.#native.symbols;
    return JSON.parse(readText((buffer, capacity) => {
      const status = forge_device_info(this.#device, buffer, capacity);
      this.#native.check(status, "reading device information", this.#device);
    })) as DeviceInfo;
  }

  /**
   * Opens a library and one of its devices.
   *
   * @throws {ForgeError} `not_found` without a library, `device` if the library or device fails to
   * open
   */
  static open(options: DeviceOptions): NativeBackend {
    const { kind, selector = "", threads = 0, libraryPath } = options;
    const library = Library.open(kind, libraryPath);
    try {
      const device = new Uint32Array(1);
      let status = 0;
      const message = readText((buffer, capacity) => {
        const name = cString(selector);
        status = library.symbols.forge_device_open(name, threads, device, buffer, capacity);
      });
      checkStatus(status, `opening the ${kind} device`, () => message);
      return new NativeBackend(library, device[0]!);
    } catch (error) {
      library.close();
      throw error;
    }
  }

  /**
   * Makes devices of one library a group before their first steps: stages of as many ranks each,
   * one stage after another.
   *
   * @throws {ForgeError} `unsupported` if they have no way to exchange values
   */
  static join(devices: readonly NativeBackend[], nStages = 1): void {
    const [first] = devices;
    if (first === undefined) throw new RangeError("a group without devices");
    const handles = Uint32Array.from(devices, (device) => device.#device);
    const group = Uint32Array.of(handles.length, nStages, 0);
    const { forge_devices_join } = first.#native.symbols;
    const status = forge_devices_join(handles, handles.length, group, null, 0n);
    first.#native.check(status, "joining devices", first.#device);
  }

  /**
   * Makes devices of this process a part of a group, once all other processes do the same.
   *
   * @throws {ForgeError} `unsupported` if they have no way to exchange values with other processes
   */
  static async joinProcesses(
    devices: readonly NativeBackend[],
    { nDevices, nStages, first: firstNumber, keys }: GroupPart,
  ): Promise<void> {
    const first = devices[0]!;
    const handles = Uint32Array.from(devices, (device) => device.#device);
    const group = Uint32Array.of(nDevices, nStages, firstNumber);
    await first.#native.call(
      "joining other processes",
      first.#device,
      ({ forge_devices_join_in_background }) =>
        forge_devices_join_in_background(
          handles,
          handles.length,
          group,
          keys,
          BigInt(keys.byteLength),
        ),
    );
  }

  /**
   * Returns the keys by which processes make a group of stages.
   *
   * @throws {ForgeError} `unsupported`, as {@linkcode joinProcesses}
   */
  makeGroupKeys(nStages: number): Uint8Array<ArrayBuffer> {
    const keys = new Uint8Array((nStages + 1) * GROUP_KEY_BYTES);
    const { forge_group_keys } = this.#native.symbols;
    const status = forge_group_keys(this.#device, keys, BigInt(keys.byteLength));
    this.#native.check(status, "making the keys of a group", this.#device);
    return keys;
  }

  /** Ends the runs of the process's devices of a group that wait for another process. */
  abortGroup(reason: string): void {
    this.#native.symbols.forge_group_abort(this.#device, cString(reason));
  }

  /**
   * Selects the attention kernels of steps whose recording ends after this call.
   *
   * @throws {ForgeError} `unsupported` if the device does not have these kernels
   */
  setAttention(kernels: AttentionKernels): void {
    const { forge_set_attention } = this.#native.symbols;
    const status = forge_set_attention(this.#device, ATTENTION_KERNELS.indexOf(kernels));
    this.#native.check(status, `attention "${kernels}"`, this.#device);
  }

  /**
   * Selects the numbers that products multiply, before the first step is recorded.
   *
   * @throws {ForgeError} `unsupported` if the device does not have these products
   */
  setProducts(numbers: ProductNumbers): void {
    const { forge_set_products } = this.#native.symbols;
    const status = forge_set_products(this.#device, PRODUCT_NUMBERS.indexOf(numbers));
    this.#native.check(status, `products "${numbers}"`, this.#device);
    this.info = this.#readInfo();
  }

  /**
   * Selects the NUMA nodes of a processor, before the first step is recorded.
   *
   * @param nodes 0 for those of the machine, 1 for none, or a number of equal parts
   * @throws {ForgeError} `unsupported` if the device is no processor with kernels of its own
   */
  setNodes(nodes: number): void {
    const { forge_set_nodes } = this.#native.symbols;
    this.#native.check(forge_set_nodes(this.#device, nodes), "NUMA nodes", this.#device);
    this.info = this.#readInfo();
  }

  #mappedFile(path: string): number {
    const known = this.#files.get(path);
    if (known !== undefined) return known;
    const file = new Uint32Array(1);
    const bytes = new BigUint64Array(1);
    const { forge_file_map } = this.#native.symbols;
    const status = forge_file_map(this.#device, cString(path), file, bytes);
    this.#native.check(status, "mapping a model file", this.#device);
    this.#files.set(path, this.#native.adopt(file[0]!));
    return file[0]!;
  }

  /** Returns the handle of the rows of a packed matrix. */
  #packedRows(matrix: PackedMatrix, tensor: TensorInfo): number {
    const known = this.#packed.get(matrix);
    if (known !== undefined) return known;
    const rows = new Uint32Array(1);
    const status = this.#native.symbols.forge_rows_create(
      this.#device,
      matrixStruct(matrix, tensor, typeId(tensor.type)),
      placeStructs(matrix, (path) => this.#mappedFile(path)),
      rows,
    );
    const what = `unpacking tensor "${tensor.name}" of "${tensor.file}"`;
    this.#native.check(status, what, this.#device);
    this.#packed.set(matrix, this.#native.adopt(rows[0]!));
    return rows[0]!;
  }

  /** Writes a `forge_weight_part` of rows of `cols` columns, and returns their number. */
  #writePart(
    view: DataView,
    { tensor, firstRow = 0, nRows }: WeightSlice,
    cols: number,
  ): number {
    const rowBytes = tensorBytes(tensor.type, [cols]);
    if (typeof rowBytes === "string") {
      throw new ForgeError("bad_model", `tensor "${tensor.name}": ${rowBytes}`);
    }
    const partRows = nRows ?? tensor.bytes / rowBytes - firstRow;
    const { packed } = tensor;
    const source = packed ? this.#packedRows(packed, tensor) : this.#mappedFile(tensor.file);
    const begin = packed ? 0 : tensor.offset;
    view.setUint32(0, source, true);
    view.setUint32(4, typeId(tensor.type), true);
    view.setBigUint64(8, BigInt(begin + firstRow * rowBytes), true);
    view.setBigUint64(16, BigInt(partRows), true);
    return partRows;
  }

  /** Returns the handle of columns of a `forge_weight_part`. */
  #columnsOf(part: Uint8Array<ArrayBuffer>, { tensor, columns }: WeightSlice): number {
    const rows = new Uint32Array(1);
    const status = this.#native.symbols.forge_columns_create(
      this.#device,
      part,
      BigInt(tensor.shape.at(-1)!),
      BigInt(columns![0]),
      BigInt(columns![1]),
      rows,
    );
    this.#native.check(status, `dividing the columns of "${tensor.name}"`, this.#device);
    return this.#native.adopt(rows[0]!);
  }

  mapWeight(
    parts: readonly WeightSlice[],
    cols: number,
    columnOrder?: Uint32Array<ArrayBuffer>,
  ): Weight {
    const view = new DataView(new ArrayBuffer(parts.length * WEIGHT_PART_BYTES));
    let rows = 0;
    const columnHandles: number[] = [];
    parts.forEach((part, i) => {
      const at = i * WEIGHT_PART_BYTES;
      const { columns, tensor } = part;
      if (columns === undefined) {
        rows += this.#writePart(new DataView(view.buffer, at), part, cols);
        return;
      }
      const nRows = this.#writePart(new DataView(view.buffer, at), part, tensor.shape.at(-1)!);
      const handle = this.#columnsOf(new Uint8Array(view.buffer, at, WEIGHT_PART_BYTES), part);
      columnHandles.push(handle);
      view.setUint32(at, handle, true);
      view.setBigUint64(at + 8, 0n, true);
      rows += nRows;
    });
    const weight = new Uint32Array(1);
    const status = this.#native.symbols.forge_weight_create(
      this.#device,
      new Uint8Array(view.buffer),
      BigInt(parts.length),
      BigInt(cols),
      weight,
    );
    for (const columns of columnHandles) this.#native.release(columns);
    this.#native.check(status, "mapping a weight", this.#device);
    const handle = this.#native.adopt(weight[0]!);
    if (columnOrder === undefined) return { handle, rows, cols };
    const columns = new Uint8Array(Float32Array.from(columnOrder).buffer);
    const order = this.uploadWeight("F32", columnOrder.length / cols, cols, columns);
    return { handle, rows, cols, columnOrder: order };
  }

  uploadWeight(type: TensorType, rows: number, cols: number, data: WeightData) {
    const bytes = typeof data === "function" ? data() : data;
    const weight = new Uint32Array(1);
    const status = this.#native.symbols.forge_weight_upload(
      this.#device,
      typeId(type),
      BigInt(rows),
      BigInt(cols),
      bytes,
      BigInt(bytes.byteLength),
      weight,
    );
    this.#native.check(status, "uploading a weight", this.#device);
    return { handle: this.#native.adopt(weight[0]!), rows, cols };
  }

  readWeight(weight: Weight, firstRow: number, nRows: number): Float32Array {
    const out = new Float32Array(nRows * weight.cols);
    const status = this.#native.symbols.forge_weight_read(
      weight.handle,
      BigInt(firstRow),
      BigInt(nRows),
      out,
      BigInt(out.byteLength),
    );
    this.#native.check(status, "reading a weight", weight.handle);
    return out;
  }

  quantize(
    type: TensorType,
    rows: number,
    cols: number,
    data: Float32Array<ArrayBuffer>,
    importance?: Float32Array<ArrayBuffer>,
  ) {
    const { out, parameters } = this.#quantizing(type, rows, cols, data, importance);
    const status = this.#native.symbols.forge_quantize(...parameters);
    this.#native.check(status, "quantizing", this.#device);
    return out;
  }

  async quantizeInBackground(
    type: TensorType,
    rows: number,
    cols: number,
    data: Float32Array<ArrayBuffer>,
    importance?: Float32Array<ArrayBuffer>,
  ) {
    const { out, parameters } = this.#quantizing(type, rows, cols, data, importance);
    await this.#native.call(
      "quantizing",
      this.#device,
      ({ forge_quantize_in_background }) => forge_quantize_in_background(...parameters),
    );
    return out;
  }

  /** Allocates the result of `forge_quantize`, and returns it with the call's parameters. */
  #quantizing(
    type: TensorType,
    rows: number,
    cols: number,
    data: Float32Array<ArrayBuffer>,
    importance: Float32Array<ArrayBuffer> | undefined,
  ) {
    const bytes = tensorBytes(type, [rows, cols]);
    if (typeof bytes === "string") throw new ForgeError("bad_input", `${type}: ${bytes}`);
    if (importance !== undefined && importance.length !== cols) {
      throw new RangeError(`${importance.length} importances of ${cols} columns`);
    }
    const out = new Uint8Array(bytes);
    const parameters = [
      this.#device,
      typeId(type),
      BigInt(rows),
      BigInt(cols),
      data,
      BigInt(data.byteLength),
      importance ?? null,
      out,
      BigInt(bytes),
    ] as const;
    return { out, parameters };
  }

  releaseWeight(weight: Weight): void {
    this.#native.release(weight.handle);
    if (weight.columnOrder !== undefined) this.releaseWeight(weight.columnOrder);
  }

  createKv(shape: KvShape): KvCache {
    const kv = new Uint32Array(1);
    const pageBytes = new BigUint64Array(1);
    const native = this.#native;
    const status = native.symbols.forge_kv_create(
      this.#device,
      typeId(shape.type),
      shape.nPages,
      shape.pageTokens,
      shape.nKvHeads,
      shape.kHeadDim,
      shape.vHeadDim,
      shape.valuesInKeys ? 1 : 0,
      kv,
      pageBytes,
    );
    native.check(status, "creating a KV cache", this.#device);
    return new NativeKvCache(native, native.adopt(kv[0]!), Number(pageBytes[0]));
  }

  createState(shape: StateShape): StateCache {
    const state = new Uint32Array(1);
    const slotBytes = new BigUint64Array(1);
    const native = this.#native;
    const { nSlots, rows, cols } = shape;
    const status = native.symbols.forge_state_create(
      this.#device,
      nSlots,
      rows,
      cols,
      state,
      slotBytes,
    );
    native.check(status, "creating a state cache", this.#device);
    return new NativeStateCache(native, native.adopt(state[0]!), Number(slotBytes[0]));
  }

  record(limits: StepLimits): Recorder {
    const step = new Uint32Array(1);
    const status = this.#native.symbols.forge_step_begin(
      this.#device,
      limits.maxTokens,
      limits.maxOutputs,
      limits.maxSequences,
      limits.maxPages,
      step,
    );
    this.#native.check(status, "beginning a step", this.#device);
    const handle = this.#native.adopt(step[0]!);
    return new Recorder(new NativeRecorder(this.#native, this.#operations, handle));
  }

  /**
   * Bounds the memory of weights, caches and activations, before the first step is recorded.
   * Weights that do not fit stay in their files.
   *
   * @param bytes 0 for the memory that is free
   * @throws {ForgeError} `unsupported` if the device keeps all weights
   */
  setMemory(bytes: number): void {
    const bound = new BigUint64Array(1);
    const { forge_set_memory } = this.#native.symbols;
    const status = forge_set_memory(this.#device, BigInt(bytes), bound);
    this.#native.check(status, "bounding the memory", this.#device);
    this.memoryBound = Number(bound[0]) || undefined;
  }

  streamedBytes(): StreamedBytes {
    const [all, perToken] = [new BigUint64Array(1), new BigUint64Array(1)];
    const status = this.#native.symbols.forge_streamed_bytes(this.#device, all, perToken);
    this.#native.check(status, "counting streamed weights", this.#device);
    return { all: Number(all[0]), perToken: Number(perToken[0]) };
  }

  memory(): DeviceMemory {
    const [total, free] = [new BigUint64Array(1), new BigUint64Array(1)];
    const status = this.#native.symbols.forge_device_memory(this.#device, total, free);
    this.#native.check(status, "reading the device's memory", this.#device);
    return { total: Number(total[0]), free: Number(free[0]) };
  }

  readBandwidth(): number {
    const rate = new BigUint64Array(1);
    const status = this.#native.symbols.forge_read_bandwidth(this.#device, rate);
    this.#native.check(status, "measuring the memory bandwidth", this.#device);
    return Number(rate[0]);
  }

  matrixRate(): number {
    const rate = new BigUint64Array(1);
    const status = this.#native.symbols.forge_matrix_rate(this.#device, rate);
    this.#native.check(status, "measuring products of matrices", this.#device);
    return Number(rate[0]);
  }

  peakMemory(): number {
    const bytes = new BigUint64Array(1);
    const status = this.#native.symbols.forge_peak_memory(bytes);
    this.#native.check(status, "reading the peak memory", this.#device);
    return Number(bytes[0]);
  }

  close(): void {
    this.#native.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/** Returns the ABI's number of a weight type. */
function typeId(type: TensorType): number {
  const { ggmlId, nativeId, supported }: TensorTypeInfo = TENSOR_TYPES[type];
  const id = ggmlId ?? nativeId;
  if (id === undefined || !supported) {
    throw new ForgeError("unsupported", `forge cannot compute with weights of type ${type}`);
  }
  return id;
}
