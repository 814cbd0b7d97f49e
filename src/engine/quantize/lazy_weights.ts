/** Weights that are read from their files only when their rows are, one at a time. */
import type {
  Backend,
  DeviceInfo,
  KvCache,
  Quantizer,
  Recorder,
  StateCache,
  Weight,
  WeightData,
  WeightSlice,
} from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import { tensorBytes, type TensorType } from "../../formats/tensor_info.ts";

/** Makes a weight on the device. */
type MakeWeight = (device: Backend) => Weight;

/**
 * A device for reading the weights of models that are larger than memory. A weight is made on
 * another device when its rows are read, and replaced by the next one.
 */
export class LazyWeights implements Backend, Disposable {
  readonly kind = "reference";
  readonly info: DeviceInfo = { name: "lazy", threads: 0, features: [], kernels: "none" };
  readonly #device: Backend & Quantizer;
  readonly #makers: MakeWeight[] = [];
  /** Source column of each column, of weights whose columns are reordered. */
  readonly #orders = new Map<number, Uint32Array>();
  #current: { readonly handle: number; readonly weight: Weight } | undefined;

  constructor(device: Backend & Quantizer) {
    this.#device = device;
  }

  mapWeight(
    parts: readonly WeightSlice[],
    cols: number,
    columnOrder?: Uint32Array<ArrayBuffer>,
  ): Weight {
    const rows = parts.reduce((sum, { tensor, firstRow = 0, nRows }) => {
      const rowBytes = tensorBytes(tensor.type, [cols]);
      if (typeof rowBytes === "string") {
        throw new ForgeError("bad_model", `tensor "${tensor.name}": ${rowBytes}`);
      }
      return sum + (nRows ?? tensor.bytes / rowBytes - firstRow);
    }, 0);
    const weight = this.#add(rows, cols, (device) => device.mapWeight(parts, cols));
    if (columnOrder !== undefined) this.#orders.set(weight.handle, columnOrder);
    return weight;
  }

  uploadWeight(type: TensorType, rows: number, cols: number, data: WeightData): Weight {
    return this.#add(rows, cols, (device) => device.uploadWeight(type, rows, cols, data));
  }

  readWeight(weight: Weight, firstRow: number, nRows: number): Float32Array<ArrayBuffer> {
    const { handle, cols, rows } = weight;
    if (this.#current?.handle !== handle) {
      this.#release();
      this.#current = { handle, weight: this.#makers[handle]!(this.#device) };
    }
    const stored = new Float32Array(
      this.#device.readWeight(this.#current!.weight, firstRow, nRows),
    );
    const order = this.#orders.get(handle);
    if (order === undefined) return stored;
    const values = new Float32Array(stored.length);
    const nOrders = order.length / cols;
    for (let row = 0; row < nRows; row++) {
      const first = Math.floor((firstRow + row) * nOrders / rows) * cols;
      for (let col = 0; col < cols; col++) {
        values[row * cols + order[first + col]!] = stored[row * cols + col]!;
      }
    }
    return values;
  }

  memory() {
    return this.#device.memory();
  }

  createKv(): KvCache {
    throw new ForgeError("unsupported", "lazy weights have no KV cache");
  }

  createState(): StateCache {
    throw new ForgeError("unsupported", "lazy weights have no recurrent state");
  }

  record(): Recorder {
    throw new ForgeError("unsupported", "lazy weights cannot be run");
  }

  close(): void {
    this.#release();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #add(rows: number, cols: number, make: MakeWeight): Weight {
    this.#makers.push(make);
    return { handle: this.#makers.length - 1, rows, cols };
  }

  #release(): void {
    if (this.#current !== undefined) this.#device.releaseWeight(this.#current.weight);
    this.#current = undefined;
  }
}
