import type { Backend, Weight, WeightSlice } from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import { InputFile } from "../../formats/file.ts";
import type { Checkpoint } from "../../formats/checkpoint.ts";
import { quote } from "../../formats/quote.ts";
import { assertComputable, type TensorInfo, type TensorType } from "../../formats/tensor_info.ts";
import { withColumnOrder } from "./column_order.ts";

/**
 * The name of one tensor in both formats, without the prefix of its layer and without `.weight`. A
 * format that lacks the tensor has `undefined`.
 */
export type TensorName = readonly [huggingFace: string | undefined, gguf: string | undefined];

/** What the loaders of one checkpoint have in common. */
interface Shared {
  /** Names of the tensors that were asked for. */
  readonly used: Set<string>;
  /** Prefixes of the layers that were asked for. */
  readonly layers: Set<string>;
  readonly mapped: { readonly weight: Weight; readonly slices: readonly WeightSlice[] }[];
}

/** The decoder's prefix; the output matrix alone stands outside. */
const DECODER_PREFIX = "model.";

/** What a layer may hold that is computed anew: frequencies that old checkpoints stored. */
const SURPLUS = /\.rotary_emb\.inv_freq$/;

/**
 * Finds a checkpoint's tensors by name, checks their shapes against what the config implies, and
 * puts them on a device.
 *
 * Its methods throw `ForgeError("bad_model")` naming the tensor when it is missing or has another
 * shape, and `unsupported` for a type forge cannot compute with.
 */
export class WeightLoader {
  readonly backend: Backend;
  readonly isGguf: boolean;
  readonly #checkpoint: Checkpoint;
  readonly #prefix: string;
  readonly #shared: Shared;

  private constructor(backend: Backend, checkpoint: Checkpoint, prefix: string, shared: Shared) {
    this.backend = backend;
    this.isGguf = checkpoint.kind === "gguf";
    this.#checkpoint = checkpoint;
    this.#prefix = prefix;
    this.#shared = shared;
  }

  /** A loader for a checkpoint's tensors outside the layers. */
  static for(backend: Backend, checkpoint: Checkpoint): WeightLoader {
    const prefix = checkpoint.kind === "gguf" ? "" : DECODER_PREFIX;
    const shared = { used: new Set<string>(), layers: new Set<string>(), mapped: [] };
    return new WeightLoader(backend, checkpoint, prefix, shared);
  }

  /** A loader for the tensors of one layer. */
  layer(index: number): WeightLoader {
    const prefix = this.isGguf ? `blk.${index}.` : `${this.#prefix}layers.${index}.`;
    this.#shared.layers.add(prefix);
    return new WeightLoader(this.backend, this.#checkpoint, prefix, this.#shared);
  }

  /** Tensors of the checkpoint that nothing has asked for. */
  unusedTensors(): string[] {
    return [...this.#checkpoint.tensors.keys()].filter((name) => !this.#shared.used.has(name));
  }

  /**
   * Refuses a model one of whose layers holds a tensor that nothing has asked for: without it the
   * result would be wrong, and nothing would show.
   *
   * @throws {ForgeError} `unsupported`, naming the tensor.
   */
  assertLayersUsed(): void {
    const layerOf = (name: string) => /^.*?\d+\./.exec(name)?.[0] ?? "";
    const surplus = this.unusedTensors().find((name) =>
      this.#shared.layers.has(layerOf(name)) && !SURPLUS.test(name)
    );
    if (surplus === undefined) return;
    throw new ForgeError(
      "unsupported",
      `${quote(this.#checkpoint.path)} has the tensor ${
        quote(surplus)
      }, which forge does not use ` +
        `in a ${quote(this.#checkpoint.modelType)} model`,
    );
  }

  /** The tensors on the device. */
  get mappedTensors(): TensorInfo[] {
    const tensors = this.#shared.mapped.flatMap(({ slices }) => slices.map(({ tensor }) => tensor));
    return [...new Set(tensors)];
  }

  /** Bytes of the tensors on the device. */
  get mappedBytes(): number {
    return this.mappedTensors.reduce((total, tensor) => total + tensor.bytes, 0);
  }

  /** Describes the first tensor that holds NaN or infinity, reading all of them. */
  findNonFinite(): string | undefined {
    for (const { weight, slices } of this.#shared.mapped) {
      for (let row = 0; row < weight.rows; row++) {
        const values = this.backend.readWeight(weight, row, 1);
        const at = values.findIndex((value) => !Number.isFinite(value));
        if (at < 0) continue;
        const names = [...new Set(slices.map(({ tensor }) => quote(tensor.name)))];
        return `${quote(this.#checkpoint.path)}: tensor ${names.join(" or ")} holds ${values[at]}`;
      }
    }
    return undefined;
  }

  has(name: TensorName, suffix = "weight"): boolean {
    return this.#find(name, suffix) !== undefined;
  }

  /** True if there is a tensor of this shape. */
  hasShape(name: TensorName, suffix: string, expected: readonly number[]): boolean {
    const shape = this.#find(name, suffix)?.shape;
    return shape?.length === expected.length && shape.every((size, i) => size === expected[i]);
  }

  /** True if two tensors of the same type and shape hold the same bytes. Packed ones never do. */
  holdSame(one: TensorName, other: TensorName): boolean {
    const [a, b] = [this.#find(one, "weight"), this.#find(other, "weight")];
    return a !== undefined && b !== undefined && holdSame(a, b);
  }

  /** The shape of a tensor. */
  shape(name: TensorName): readonly number[] {
    return this.#require(name, "weight", undefined).shape;
  }

  /** A weight `[rows, cols]`. */
  matrix(name: TensorName, rows: number, cols: number): Weight {
    return this.concat([[name, rows]], cols);
  }

  /** One weight whose rows are those of several tensors. */
  concat(parts: readonly (readonly [TensorName, rows: number])[], cols: number): Weight {
    const slices = parts.map(([name, rows]) => {
      return { tensor: this.#require(name, "weight", [rows, cols]) };
    });
    return this.#map(slices, cols);
  }

  /**
   * The weights of all experts, each expert's rows being those of the given tensors in order. HF
   * has a tensor for each expert (`{}` in the name stands for its number); GGUF stacks them.
   */
  experts(names: readonly (readonly [TensorName, rows: number])[], nExperts: number, cols: number) {
    const slices: WeightSlice[] = [];
    for (let expert = 0; expert < nExperts; expert++) {
      for (const [[huggingFace, gguf], rows] of names) {
        if (this.isGguf) {
          const tensor = this.#require([undefined, gguf], "weight", [nExperts, rows, cols]);
          slices.push({ tensor, firstRow: expert * rows, nRows: rows });
        } else {
          const name = huggingFace?.replace("{}", String(expert));
          slices.push({ tensor: this.#require([name, undefined], "weight", [rows, cols]) });
        }
      }
    }
    return this.#map(slices, cols, nExperts);
  }

  /**
   * The biases of stacked experts, `[nExperts, rows]`, each row being those of the given tensors in
   * order.
   */
  expertBiases(names: readonly (readonly [TensorName, rows: number])[], nExperts: number): Weight {
    const total = names.reduce((sum, [, rows]) => sum + rows, 0);
    const values = new Float32Array(nExperts * total);
    let at = 0;
    for (const [name, rows] of names) {
      const stacked = this.#map([{ tensor: this.#require(name, "bias", [nExperts, rows]) }], rows);
      for (let expert = 0; expert < nExperts; expert++) {
        values.set(this.backend.readWeight(stacked, expert, 1), expert * total + at);
      }
      at += rows;
    }
    return this.backend.uploadWeight("F32", nExperts, total, new Uint8Array(values.buffer));
  }

  /** A weight of one row. */
  vector(name: TensorName, size: number, suffix = "weight"): Weight {
    return this.#map([{ tensor: this.#require(name, suffix, [size]) }], size);
  }

  /**
   * A weight of one row that files hold as a vector or as a matrix of one row; `usual` is the
   * common shape.
   */
  row(name: TensorName, size: number, usual: readonly number[], suffix = "weight"): Weight {
    const shape = [[size], [1, size]].find((shape) => this.hasShape(name, suffix, shape)) ?? usual;
    return this.mapWhole(this.#require(name, suffix, shape), size);
  }

  /** A vector that may be absent. */
  optionalVector(name: TensorName, size: number, suffix = "weight"): Weight | undefined {
    return this.has(name, suffix) ? this.vector(name, size, suffix) : undefined;
  }

  /** One vector from several, end to end. */
  concatVectors(
    parts: readonly (readonly [TensorName, size: number])[],
    suffix: string,
  ): Weight {
    const values = parts.flatMap(([name, size]) => {
      const weight = this.vector(name, size, suffix);
      return Array.from(this.backend.readWeight(weight, 0, 1));
    });
    return this.uploadVector(Float32Array.from(values));
  }

  /** The numbers of a vector of any size, or `undefined` when it is absent. */
  optionalNumbers(name: TensorName): Float32Array | undefined {
    const tensor = this.#find(name, "weight");
    if (tensor === undefined) return undefined;
    const size = tensor.shape.at(-1) ?? 0;
    return this.backend.readWeight(this.vector(name, size), 0, 1);
  }

  /** A vector that is computed rather than loaded. */
  uploadVector(values: Float32Array<ArrayBuffer>): Weight {
    return this.backend.uploadWeight("F32", 1, values.length, new Uint8Array(values.buffer));
  }

  /** A tensor that must be there, of this shape. */
  tensor(name: TensorName, suffix: string, shape: readonly number[]): TensorInfo {
    return this.#require(name, suffix, shape);
  }

  /** A tensor of bytes, whose meaning is its reader's. */
  bytes(name: TensorName, shape: readonly number[]): TensorInfo {
    const tensor = this.#require(name, "", shape);
    if (tensor.type === "U8") return tensor;
    throw new ForgeError(
      "bad_model",
      `${quote(tensor.file)}: tensor ${quote(tensor.name)} is stored as ${tensor.type}, not U8`,
    );
  }

  /** All of a tensor as rows of `cols`. */
  mapWhole(tensor: TensorInfo, cols: number): Weight {
    return this.#map([{ tensor }], cols);
  }

  /** One weight whose rows are those of the slices, in order. */
  mapSlices(slices: readonly WeightSlice[], cols: number): Weight {
    return this.#map(slices, cols);
  }

  /** A weight that is made of tensors; `data` is called where a device holds weights. */
  upload(
    type: TensorType,
    rows: number,
    cols: number,
    tensors: readonly TensorInfo[],
    data: () => Uint8Array<ArrayBuffer>,
  ): Weight {
    const weight = this.backend.uploadWeight(type, rows, cols, data);
    this.#shared.mapped.push({ weight, slices: tensors.map((tensor) => ({ tensor })) });
    return weight;
  }

  #map(parts: readonly WeightSlice[], cols: number, nExperts = 1): Weight {
    for (const { tensor } of parts) assertComputable(tensor);
    const { slices, columnOrder } = withColumnOrder(parts, cols, nExperts);
    const weight = this.backend.mapWeight(slices, cols, columnOrder);
    this.#shared.mapped.push({ weight, slices });
    return weight;
  }

  #tensorName([huggingFace, gguf]: TensorName, suffix: string): string | undefined {
    const name = this.isGguf ? gguf : huggingFace;
    if (name === undefined) return undefined;
    const prefix = name === "lm_head" ? "" : this.#prefix;
    return `${prefix}${name}${suffix === "" ? "" : "."}${suffix}`;
  }

  #find(name: TensorName, suffix: string): TensorInfo | undefined {
    const full = this.#tensorName(name, suffix);
    const tensor = full === undefined ? undefined : this.#checkpoint.tensors.get(full);
    if (full !== undefined && tensor !== undefined) this.#shared.used.add(full);
    return tensor;
  }

  /** A tensor that must be there, of the shape expected where there is one. */
  #require(name: TensorName, suffix: string, expected: readonly number[] | undefined): TensorInfo {
    const tensor = this.#find(name, suffix) ?? this.#supply(name, suffix, expected);
    if (tensor === undefined) {
      const full = this.#tensorName(name, suffix) ?? name.find((part) => part !== undefined);
      throw new ForgeError(
        "bad_model",
        `${quote(this.#checkpoint.path)} has no tensor ${quote(full ?? "?")}, which a ` +
          `${quote(this.#checkpoint.modelType)} model needs`,
      );
    }
    if (expected !== undefined) this.#expectShape(tensor, expected);
    return tensor;
  }

  #supply(name: TensorName, suffix: string, expected: readonly number[] | undefined) {
    const full = this.#tensorName(name, suffix);
    if (full === undefined || expected === undefined) return undefined;
    return this.#checkpoint.supply?.(full, expected);
  }

  #expectShape(tensor: TensorInfo, expected: readonly number[]): void {
    const { shape } = tensor;
    if (shape.length === expected.length && shape.every((size, i) => size === expected[i])) return;
    throw new ForgeError(
      "bad_model",
      `${quote(tensor.file)}: tensor ${quote(tensor.name)} has the shape [${shape}]; the ` +
        `configuration implies [${expected}]`,
    );
  }
}

/** Bytes that are compared at a time. */
const COMPARED_BYTES = 2 ** 20;

function holdSame(a: TensorInfo, b: TensorInfo): boolean {
  if (a.packed !== undefined || b.packed !== undefined) return false;
  if (a.type !== b.type || a.bytes !== b.bytes) return false;
  using fileA = InputFile.open(a.file);
  using fileB = InputFile.open(b.file);
  const [bytesA, bytesB] = [new Uint8Array(COMPARED_BYTES), new Uint8Array(COMPARED_BYTES)];
  for (let at = 0; at < a.bytes; at += COMPARED_BYTES) {
    const size = Math.min(COMPARED_BYTES, a.bytes - at);
    const [partA, partB] = [bytesA.subarray(0, size), bytesB.subarray(0, size)];
    fileA.readAt(a.offset + at, partA);
    fileB.readAt(b.offset + at, partB);
    if (partA.some((byte, i) => byte !== partB[i])) return false;
  }
  return true;
}
