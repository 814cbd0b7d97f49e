/**
 * Folders as GGUF files. Families name every setting and tensor in both formats, so a load of a
 * folder also says what a GGUF file of the model holds. A sink collects it, and rules describe what
 * the names do not express.
 */
import type { Weight } from "../backend.ts";
import type { GgufField } from "../formats/gguf/writer.ts";

/** Differences between the folders of a `model_type` and their GGUF files. */
export interface GgufRules {
  /** Value of `general.architecture`. */
  readonly architecture: string;
  /**
   * True if the rows of each head of q and k are reordered, so that rotated pairs are neighbours.
   *
   * @default false
   */
  readonly reordersHeads?: boolean;
  /** True if 1 is added to the weights of norms. @default false */
  readonly addsToNorms?: boolean;
  /**
   * True if files of the architecture may hold a layer for multi-token prediction, which llama.cpp
   * would run as one of the model's own in others.
   *
   * @default false
   */
  readonly mayPredict?: boolean;
}

/** Rows of a weight that form a tensor of a GGUF file. */
export interface TensorRows {
  readonly weight: Weight;
  /** Ranges of rows, in the order of the file. */
  readonly ranges: readonly (readonly [first: number, count: number])[];
  /** Columns of each row. @default all */
  readonly columns?: readonly [first: number, count: number];
  /** Outermost dimension first. */
  readonly shape: readonly number[];
}

/**
 * Receives what a family reads, under its names in GGUF files: settings of folders, and tensors.
 */
export interface GgufSink {
  /** Receives a setting, without the prefix of the architecture. */
  setting(key: string, field: GgufField): void;
  tensor(name: string, rows: TensorRows): void;
  /** Receives a tensor of computed numbers. */
  numbers(name: string, values: Float32Array<ArrayBuffer>): void;
}
