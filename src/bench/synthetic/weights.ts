import type { Quantizer } from "../../backend.ts";
import { TENSOR_TYPES, tensorBytes } from "../../formats/tensor_info.ts";
import type { TensorData } from "../../formats/tensor_data.ts";
import { Random } from "../random.ts";
import type { SyntheticType } from "./shapes.ts";

/** Number of distinct weights per type: more than caches hold, and quick to make. */
const POOL_ELEMENTS = 2 ** 20;

/** Standard deviation, as in common initializations. */
const DEVIATION = 0.02;

/**
 * Normally distributed random weights of any type. A million of them are quantized and then
 * repeated, each tensor starting where the previous one ended, so that gigabytes are written at
 * disk speed.
 */
export class SyntheticWeights {
  readonly #quantizer: Quantizer;
  readonly #pools = new Map<SyntheticType, { bytes: Uint8Array; at: number }>();

  constructor(quantizer: Quantizer) {
    this.#quantizer = quantizer;
  }

  /** Returns a matrix `[rows, cols]`; `cols` must be a whole number of the type's blocks. */
  matrix(name: string, type: SyntheticType, rows: number, cols: number): TensorData {
    const shape = [rows, cols];
    const bytes = tensorBytes(type, shape);
    if (typeof bytes === "string") throw new RangeError(`${name}: ${bytes}`);
    return { name, type, shape, data: () => this.#take(type, bytes) };
  }

  *#take(type: SyntheticType, bytes: number): Generator<Uint8Array> {
    const pool = this.#pool(type);
    for (let left = bytes; left > 0;) {
      const part = pool.bytes.subarray(pool.at, pool.at + left);
      yield part;
      left -= part.length;
      pool.at = (pool.at + part.length) % pool.bytes.length;
    }
  }

  #pool(type: SyntheticType) {
    let pool = this.#pools.get(type);
    if (pool === undefined) {
      const random = new Random(TENSOR_TYPES[type].ggmlId ?? 0);
      const values = Float32Array.from(
        { length: POOL_ELEMENTS },
        () => random.normal(DEVIATION),
      );
      pool = { bytes: this.#quantizer.quantize(type, 1, POOL_ELEMENTS, values), at: 0 };
      this.#pools.set(type, pool);
    }
    return pool;
  }
}
