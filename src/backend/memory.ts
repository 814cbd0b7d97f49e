/**
 * Memory that a device holds from step to step: weights, paged keys and values, recurrent state.
 */
import type { TensorInfo } from "../formats/tensor_info.ts";

/** Weight matrix `[rows, cols]` = `[out_features, in_features]` on a device. */
export interface Weight {
  readonly handle: number;
  readonly rows: number;
  readonly cols: number;
  /**
   * `[1 or nExperts, cols]`: the column of `x` that each column is multiplied with, if their orders
   * differ. Only products support it.
   */
  readonly columnOrder?: Weight | undefined;
  /** Low-rank adapters that correct products with the weight, or the rows of an embedding. */
  readonly adapters?: AdapterWeights | undefined;
}

/**
 * Low-rank adapters of one weight: `y += scale * B (A x)`, see `lora` in the table of operations.
 */
export interface AdapterWeights {
  /** Of an embedding: `[rows, ranks]`, the `x` of each row. */
  readonly rows?: Weight | undefined;
  /** Number of experts or heads whose matrices the weight stacks. @default 1 */
  readonly nBlocks?: number;
  /** `[ranks, cols]` of all adapters; with blocks those of each, or those that all share. */
  readonly a: Weight;
  /** `[ranks, width]`, as `a`: each row begins with the numbers for the columns of its rank. */
  readonly b: Weight;
  /** `[ranks, 3]`: adapter, first column and number of columns of each rank. */
  readonly ranks: Weight;
  /** Names of the matrices that they change, as the adapters have them. */
  readonly targets: readonly string[];
  /** Number of adapters of the model. */
  readonly nAdapters: number;
}

/** Consecutive rows of a tensor in a file, its leading dimensions flattened. */
export interface WeightSlice {
  readonly tensor: TensorInfo;
  /** @default 0 */
  readonly firstRow?: number;
  /** @default all rows from `firstRow` on */
  readonly nRows?: number;
  /** Columns of the rows, in whole blocks of their type; `nRows` must be given. @default all */
  readonly columns?: readonly [first: number, count: number];
}

/** Bytes of a weight, or a function that makes them. */
export type WeightData = Uint8Array<ArrayBuffer> | (() => Uint8Array<ArrayBuffer>);

/** Element types of a KV cache. */
export type KvType = "F32" | "F16" | "BF16" | "Q8_0" | "Q4_0";

/** Paged keys and values of one layer. */
export interface KvCache {
  readonly handle: number;
  /** Bytes of one page. */
  readonly pageBytes: number;
  /** Copies a page onto another. */
  copyPage(from: number, to: number): void;
  /** Returns the `pageBytes` bytes of a page, in the device's own layout. */
  readPage(page: number): Uint8Array<ArrayBuffer>;
  /** Writes the bytes that {@linkcode readPage} returned for a page of the same shape. */
  writePage(page: number, data: Uint8Array<ArrayBuffer>): void;
}

/** Shape of a KV cache: pages of `pageTokens` tokens with keys and values of all heads. */
export interface KvShape {
  readonly type: KvType;
  readonly nPages: number;
  readonly pageTokens: number;
  readonly nKvHeads: number;
  readonly kHeadDim: number;
  readonly vHeadDim: number;
  /** True if values are the first `vHeadDim` elements of the keys, stored once. @default false */
  readonly valuesInKeys?: boolean;
  /** Stage of a group of devices that holds it. @default 0 */
  readonly stage?: number | undefined;
}

/**
 * Recurrent state of one operation of one layer: a matrix `[rows, cols]` of floats for each
 * sequence with a slot.
 */
export interface StateCache {
  readonly handle: number;
  /** Bytes of one slot. */
  readonly slotBytes: number;
  /** Copies a slot onto another. */
  copySlot(from: number, to: number): void;
  /** Returns the `slotBytes` bytes of a slot, in the device's own layout. */
  readSlot(slot: number): Uint8Array<ArrayBuffer>;
  /** Writes the bytes that {@linkcode readSlot} returned for a slot of the same shape. */
  writeSlot(slot: number, data: Uint8Array<ArrayBuffer>): void;
}

/** Shape of a state cache. */
export interface StateShape {
  readonly nSlots: number;
  readonly rows: number;
  readonly cols: number;
  /** As in {@linkcode KvShape}. */
  readonly stage?: number | undefined;
}
