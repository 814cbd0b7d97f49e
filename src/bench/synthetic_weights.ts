import type { Quantizer } from "../backend.ts";
import { TENSOR_TYPES, tensorBytes } from "../formats/tensor_info.ts";
import type { TensorData } from "../formats/tensor_data.ts";
import { Random } from "./random.ts";
import type { SyntheticType } from "./synthetic_shapes.ts";

/** Weights made of each type: enough that no cache holds them, few enough to be made at once. */
const POOL_ELEMENTS = 2 ** 20;

/** As models are initialised. */
const DEVIATION = 0.02;

/**
 * Random weights of any type, normally distributed. A million of them are quantised; the rest repeat
 * those, each tensor from where the one before left off, so that gigabytes are made at the speed of
 * the disk.
 */
export class SyntheticWeights {
  readonly #quantizer: Quantizer;
  readonly #pools = new Map<SyntheticType, { bytes: Uint8Array; at: number }>();

  constructor(quantizer: Quantizer) {
    this.#quantizer = quantizer;
  }

  /** A matrix `[rows, cols]`, whose `cols` must be a whole number of the type's blocks. */
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
