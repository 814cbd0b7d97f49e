import type { AdapterWeights, Backend, Weight, WeightSlice } from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import { InputFile } from "../../formats/file.ts";
import type { Checkpoint } from "../../formats/checkpoint.ts";
import { quote } from "../../formats/quote.ts";
import {
  assertComputable,
  tensorBytes,
  type TensorInfo,
  type TensorType,
} from "../../formats/tensor_info.ts";
import type { GgufSink, TensorRows } from "../gguf_rules.ts";
import type { ExpertRows, FullNames, HeadAdapters, HeadRows, ModelAdapters } from "./adapters.ts";
import { withColumnOrder } from "./column_order.ts";
import {
  checkColumns,
  columnBlock,
  divideColumns,
  divideLayers,
  gather,
  joined,
  type ModelPart,
  type Rank,
  type Span,
  WHOLE,
} from "./division.ts";

/**
 * Name of one tensor in both formats, without the prefix of its layer and without `.weight`.
 * `undefined` if a format lacks the tensor.
 */
export type TensorName = readonly [huggingFace: string | undefined, gguf: string | undefined];

/** Suffix of a tensor name: `weight`, `bias` or nothing; a pair if the formats differ. */
type Suffix = string | readonly [huggingFace: string, gguf: string];

/** A tensor, its rows or numbers, and those of them that are loaded, in order. @default all */
type Part = readonly [name: TensorName, size: number, spans?: readonly Span[] | undefined];

/** Rows of each expert that adapters change as one matrix, under the name of a tensor. */
export interface ExpertPart extends Omit<ExpertRows, "names"> {
  readonly name: TensorName;
}

/** State that the loaders of one checkpoint share. */
interface Shared {
  /** Names of the requested tensors. */
  readonly used: Set<string>;
  /** Prefixes of the requested layers. */
  readonly layers: Set<string>;
  /** Receives the tensors of a folder, under their names in GGUF files. */
  readonly sink: GgufSink | undefined;
  readonly mapped: { readonly weight: Weight; readonly slices: readonly WeightSlice[] }[];
  readonly adapters?: ModelAdapters | undefined;
  readonly part: ModelPart;
  /** Indices of the caches that the loaded layers use. */
  readonly caches: CacheIndices;
}

/** Indices of KV and state caches of a model. */
interface CacheIndices {
  readonly kv: Set<number>;
  readonly states: Set<number>;
}

/** Prefixes of tensors in both formats. */
type Prefixes = Readonly<Record<Checkpoint["kind"], string>>;

/** Prefix of all tensors except those of heads. */
const DECODER_PREFIX = "model.";

/** Modules outside of the decoder or encoder: the output matrix and classification heads. */
const HEADS = /^(?:lm_head|classifier|score|head)\b/;

/** Tensors of a layer that forge computes: rotary frequencies, which old checkpoints store. */
const SURPLUS = /\.rotary_emb\.inv_freq$/;

/**
 * Finds a checkpoint's tensors by name, checks their shapes against the config, and loads them onto
 * a device.
 *
 * Its methods throw `ForgeError("bad_model")` for a tensor that is missing or has another shape,
 * and `unsupported` for a type that forge cannot compute with. Both name the tensor.
 */
export class WeightLoader {
  readonly backend: Backend;
  readonly isGguf: boolean;
  readonly #checkpoint: Checkpoint;
  readonly #prefixes: Prefixes;
  readonly #shared: Shared;

  private constructor(
    backend: Backend,
    checkpoint: Checkpoint,
    prefixes: Prefixes,
    shared: Shared,
  ) {
    this.backend = backend;
    this.isGguf = checkpoint.kind === "gguf";
    this.#checkpoint = checkpoint;
    this.#prefixes = prefixes;
    this.#shared = shared;
  }

  /** Returns a loader for the tensors outside the layers. */
  static for(
    backend: Backend,
    checkpoint: Checkpoint,
    sink?: GgufSink,
    adapters?: ModelAdapters,
    part = WHOLE,
  ): WeightLoader {
    const prefixes = { safetensors: DECODER_PREFIX, gguf: "" };
    const shared = {
      used: new Set<string>(),
      layers: new Set<string>(),
      mapped: [],
      sink,
      adapters,
      part,
      caches: { kv: new Set<number>(), states: new Set<number>() },
    };
    return new WeightLoader(backend, checkpoint, prefixes, shared);
  }

  /** Returns a loader for the tensors of one layer. */
  layer(index: number): WeightLoader {
    const prefixes = layerPrefixes(index);
    this.#shared.layers.add(prefixes[this.#checkpoint.kind]);
    return new WeightLoader(this.backend, this.#checkpoint, prefixes, this.#shared);
  }

  /** Returns a loader for the tensors under another prefix, of folders and of GGUF files. */
  under([safetensors, gguf]: readonly [huggingFace: string, gguf: string]): WeightLoader {
    const prefixes = { safetensors, gguf };
    return new WeightLoader(this.backend, this.#checkpoint, prefixes, this.#shared);
  }

  /** Returns a loader for other files, whose weights count as those of this one. */
  of(checkpoint: Checkpoint): WeightLoader {
    const { mapped, part, caches } = this.#shared;
    const names = { used: new Set<string>(), layers: new Set<string>() };
    const shared = { ...names, mapped, sink: undefined, part, caches };
    return new WeightLoader(this.backend, checkpoint, { safetensors: "", gguf: "" }, shared);
  }

  /** The rank of the device among those of its stage. */
  get rank(): Rank {
    return this.#shared.part.rank;
  }

  /** True if the device's stage begins the model. */
  get isFirstStage(): boolean {
    return this.#shared.part.stage.index === 0;
  }

  /** True if the device's stage ends the model. */
  get isLastStage(): boolean {
    const { index, memory } = this.#shared.part.stage;
    return index === memory.length - 1;
  }

  /**
   * Returns the layers of the device's stage, divided by the bytes of their tensors.
   *
   * @param ends bytes of the tensors before the first and after the last layer
   */
  ownLayers(nLayers: number, ends: readonly [number, number]): Span {
    const { index, memory } = this.#shared.part.stage;
    if (memory.length === 1) return [0, nLayers];
    const { kind, tensors } = this.#checkpoint;
    const sizes = new Array<number>(nLayers).fill(0);
    const indices = new Map(sizes.map((_, layer) => [layerPrefixes(layer)[kind], layer]));
    for (const [name, { bytes }] of tensors) {
      const layer = indices.get(layerOf(name));
      if (layer !== undefined) sizes[layer]! += bytes;
    }
    sizes[0]! += ends[0];
    sizes[nLayers - 1]! += ends[1];
    return divideLayers(sizes, memory)[index]!;
  }

  /** Notes that a layer uses a KV cache of the model, which the device's stage then holds. */
  useKv(index: number): void {
    this.#shared.caches.kv.add(index);
  }

  /** The same for state caches. */
  useStates(...indices: readonly number[]): void {
    for (const index of indices) this.#shared.caches.states.add(index);
  }

  /** Indices of the caches that the loaded layers use. */
  get caches(): Readonly<Record<keyof CacheIndices, ReadonlySet<number>>> {
    return this.#shared.caches;
  }

  /**
   * Rejects tensor parallelism for a part that every rank would compute whole, or wrong.
   *
   * @throws {ForgeError} `unsupported`, naming the part
   */
  assertWhole(part: string): void {
    if (this.rank.count > 1) {
      this.#refuse(`${part} forge does not divide among devices`, "data or pipeline");
    }
  }

  /**
   * Rejects pipeline parallelism for a part that several stages would need.
   *
   * @throws {ForgeError} as {@linkcode assertWhole}
   */
  assertOneStage(part: string): void {
    if (this.#shared.part.stage.memory.length > 1) {
      this.#refuse(`${part} forge does not divide among stages`, "data or tensor");
    }
  }

  /** Rejects all division of a model for a part. @throws {ForgeError} as {@linkcode assertWhole} */
  assertUndivided(part: string): void {
    const { rank, stage } = this.#shared.part;
    if (rank.count * stage.memory.length > 1) {
      this.#refuse(`${part} forge does not divide among devices`, "data");
    }
  }

  #refuse(problem: string, parallelism: string): never {
    throw new ForgeError(
      "unsupported",
      `${quote(this.#checkpoint.path)} is a ${quote(this.#checkpoint.modelType)} model, whose ` +
        `${problem}; it runs on one device, or on several with ${parallelism} parallelism`,
    );
  }

  /** Names of the tensors that no loader of the model, one for each device, requested. */
  unusedTensors(loaders: readonly WeightLoader[] = [this]): string[] {
    return [...this.#checkpoint.tensors.keys()]
      .filter((name) => !loaders.some((loader) => loader.#shared.used.has(name)));
  }

  /**
   * Rejects a model if one of its layers holds a tensor that no loader requested. Ignoring the
   * tensor would give wrong results without any sign of it.
   *
   * @throws {ForgeError} `unsupported`, naming the tensor
   */
  assertLayersUsed(loaders: readonly WeightLoader[] = [this]): void {
    const { path, modelType } = this.#checkpoint;
    const surplus = this.unusedTensors(loaders).find((name) =>
      loaders.some((loader) => loader.#shared.layers.has(layerOf(name))) && !SURPLUS.test(name)
    );
    if (surplus === undefined) return;
    throw new ForgeError(
      "unsupported",
      `${quote(path)} has the tensor ${quote(surplus)}, which forge does not use in a ` +
        `${quote(modelType)} model`,
    );
  }

  /** True if a tensor belongs to a layer that was not loaded, such as one that drafts tokens. */
  isOfOtherLayer(name: string): boolean {
    const layer = layerOf(name);
    return layer !== "" && this.#checkpoint.tensors.has(name) && !this.#shared.layers.has(layer);
  }

  /** Tensors on the device. */
  get mappedTensors(): TensorInfo[] {
    const tensors = this.#shared.mapped.flatMap(({ slices }) => slices.map(({ tensor }) => tensor));
    return [...new Set(tensors)];
  }

  /** Bytes of the tensors on the device. */
  get mappedBytes(): number {
    const bytes = new Map<string, number>();
    for (const { weight, slices } of this.#shared.mapped) {
      for (const slice of slices) {
        const { tensor, firstRow, nRows, columns } = slice;
        const key = [tensor.file, tensor.name, firstRow, nRows, columns].join("\n");
        bytes.set(key, sliceBytes(slice, weight.cols));
      }
    }
    return bytes.values().reduce((total, bytes) => total + bytes, 0);
  }

  /** Reads all tensors and describes the first one that holds NaN or infinity. */
  findNonFinite(): string | undefined {
    for (const { weight, slices } of this.#shared.mapped) {
      for (let row = 0; row < weight.rows; row++) {
        const values = this.backend.readWeight(weight, row, 1);
        const at = values.findIndex((value) => !Number.isFinite(value));
        if (at < 0) continue;
        const names = [...new Set(slices.map(({ tensor }) => quote(tensor.name)))];
        const { path, files } = this.#checkpoint;
        // The tensors of adapters and draft heads are in files of their own.
        const other = slices.find(({ tensor }) => !files.includes(tensor.file))?.tensor.file;
        return `${quote(other ?? path)}: tensor ${names.join(" or ")} holds ${values[at]}`;
      }
    }
    return undefined;
  }

  has(name: TensorName, suffix: Suffix = "weight"): boolean {
    return this.#find(name, suffix) !== undefined;
  }

  /** True if the tensor exists and has this shape. */
  hasShape(name: TensorName, suffix: Suffix, expected: readonly number[]): boolean {
    const shape = this.#find(name, suffix)?.shape;
    return shape?.length === expected.length && shape.every((size, i) => size === expected[i]);
  }

  /** True if two tensors have the same type, shape and bytes. False for packed tensors. */
  holdSame(one: TensorName, other: TensorName): boolean {
    const [a, b] = [this.#find(one, "weight"), this.#find(other, "weight")];
    return a !== undefined && b !== undefined && holdSame(a, b);
  }

  /** Returns the bytes of a tensor, if it exists. */
  bytesOf(name: TensorName): number | undefined {
    return this.#find(name, "weight")?.bytes;
  }

  /** Returns the shape of a tensor. */
  shape(name: TensorName): readonly number[] {
    return this.#require(name, "weight", undefined).shape;
  }

  /** Loads a weight `[rows, cols]`, or some of its rows. */
  matrix(name: TensorName, rows: number, cols: number, spans?: readonly Span[]): Weight {
    return this.concat([[name, rows, spans]], cols);
  }

  /** Loads columns of a weight `[rows, cols]`. */
  columns(name: TensorName, rows: number, cols: number, columns: Span): Weight {
    if (columns[1] === cols) return this.matrix(name, rows, cols);
    const tensor = this.#require(name, "weight", [rows, cols]);
    const slices = slicesOf(tensor, { spans: [[0, rows]], firstRow: 0, columns }, cols);
    return this.#map(slices, columns[1]);
  }

  /**
   * Loads this rank's columns of an embedding `[rows, cols]`, or all of them if they have fewer
   * blocks than there are ranks.
   */
  embeddingPart(name: TensorName, rows: number, cols: number): [weight: Weight, columns: Span] {
    const tensor = this.#require(name, "weight", [rows, cols]);
    const isWhole = this.rank.count === 1 || cols / columnBlock(tensor, cols) < this.rank.count;
    if (isWhole) return [this.embedding(name, rows, cols), [0, cols]];
    const own = divideColumns(tensor, cols, this.rank);
    const slices = slicesOf(tensor, { spans: [[0, rows]], firstRow: 0, columns: own }, cols);
    const adapters = this.#shared.adapters?.ofEmbedding(tensor, own, this);
    return [withAdapters(this.#mapPlain(slices, own[1]), adapters), own];
  }

  /** Returns the columns of a weight of this shape that belong to this rank. */
  ownColumns(name: TensorName, shape: readonly number[], suffix: Suffix = "weight"): Span {
    const cols = shape.at(-1)!;
    if (this.rank.count === 1) return [0, cols];
    return divideColumns(this.#require(name, suffix, shape), cols, this.rank);
  }

  /** Loads an embedding `[rows, cols]`, whose adapters change rows instead of products. */
  embedding(name: TensorName, rows: number, cols: number): Weight {
    const tensor = this.#require(name, "weight", [rows, cols]);
    const weight = this.#mapPlain([{ tensor }], cols);
    this.#noteWhole(name, "weight", weight, [rows, cols]);
    return withAdapters(weight, this.#shared.adapters?.ofEmbedding(tensor, [0, cols], this));
  }

  /**
   * Returns an embedding as the output matrix that shares its tensor, with that matrix's adapters.
   */
  tied(embedding: Weight, stored: TensorName, name: TensorName): Weight {
    // A tensor of its own, since its adapters differ from those of the embedding.
    const tensor = { ...this.#require(stored, "weight", [embedding.rows, embedding.cols]) };
    this.#meet(tensor, name);
    return withAdapters(
      embedding,
      this.#shared.adapters?.of([{ tensor }], embedding.cols, this),
    );
  }

  /** Loads some rows of an embedding as those of the output matrix that shares its tensor. */
  tiedRows(stored: TensorName, name: TensorName, shape: readonly number[], rows: Span): Weight {
    const tensor = { ...this.#require(stored, "weight", shape) };
    this.#meet(tensor, name);
    const cols = shape[1]!;
    const slices = slicesOf(tensor, { spans: [rows], firstRow: 0, columns: [0, cols] }, cols);
    return this.#map(slices, cols);
  }

  /** Loads one weight that holds the rows of several tensors. */
  concat(parts: readonly Part[], cols: number): Weight {
    const slices = parts.flatMap(([name, rows, spans]): WeightSlice[] => {
      const tensor = this.#require(name, "weight", [rows, cols]);
      return slicesOf(
        tensor,
        { spans: spans ?? [[0, rows]], firstRow: 0, columns: [0, cols] },
        cols,
      );
    });
    const weight = this.#map(slices, cols);
    let first = 0;
    for (const [name, rows] of parts) {
      this.#note(name, "weight", { weight, ranges: [[first, rows]], shape: [rows, cols] });
      first += rows;
    }
    return weight;
  }

  /**
   * Loads the weights of all experts. Each expert holds the rows of the given tensors in order.
   * Folders have a tensor for each expert (`{}` in the name stands for its number); GGUF files
   * stack them.
   *
   * @param columns the columns that are loaded. @default all
   */
  experts(
    names: readonly Part[],
    nExperts: number,
    cols: number,
    columns: Span = [0, cols],
  ): Weight {
    const slices: WeightSlice[] = [];
    for (let expert = 0; expert < nExperts; expert++) {
      for (const [[huggingFace, gguf], rows, spans = [[0, rows] as const]] of names) {
        const [tensor, firstRow] = this.isGguf
          ? [this.#require([undefined, gguf], "weight", [nExperts, rows, cols]), expert * rows]
          : [
            this.#require([huggingFace?.replace("{}", String(expert)), undefined], "weight", [
              rows,
              cols,
            ]),
            0,
          ];
        slices.push(...slicesOf(tensor, { spans, firstRow, columns }, cols));
      }
    }
    const weight = this.#mapPlain(slices, columns[1], nExperts);
    this.noteExperts(weight, names.map(([[, gguf], rows]) => [gguf, rows]), nExperts);
    return weight;
  }

  /** Loads parts of the weights of experts that one tensor `[nExperts, rows, cols]` stacks. */
  stackedParts(
    tensor: TensorInfo,
    spans: readonly Span[],
    columns: Span,
  ): Weight {
    const [nExperts = 0, rows = 0, cols = 0] = tensor.shape;
    const slices = Array.from(
      { length: nExperts },
      (_, expert) => slicesOf(tensor, { spans, firstRow: expert * rows, columns }, cols),
    );
    return this.#mapPlain(slices.flat(), columns[1]);
  }

  /** Adds the adapters of experts to a weight of these rows of each. */
  adaptExperts(weight: Weight, nExperts: number, parts: readonly ExpertPart[]): Weight {
    const named = parts.map(({ name, ...rows }) => {
      // Folders stack experts in tensors without a suffix.
      const suffix = name[0]?.includes("{}") === true ? "weight" : ["", "weight"] as const;
      return { ...rows, names: this.#namesOf(name, suffix) };
    });
    const { adapters } = this.#shared;
    return withAdapters(weight, adapters?.ofExperts(named, nExperts, weight.cols, this));
  }

  /** Returns the adapters of the matrices of heads that one tensor holds. */
  adaptersOfHeads(name: TensorName, rows: HeadRows): HeadAdapters | undefined {
    return this.#shared.adapters?.ofHeads(this.#namesOf(name, "weight"), rows, this);
  }

  /** Tells the sink which rows of each expert form the tensors of a GGUF file. */
  noteExperts(
    weight: Weight,
    names: readonly (readonly [gguf: string | undefined, rows: number])[],
    nExperts: number,
  ): void {
    const step = names.reduce((sum, [, rows]) => sum + rows, 0);
    let first = 0;
    for (const [gguf, rows] of names) {
      const begin = first;
      const ranges = Array.from(
        { length: nExperts },
        (_, expert) => [expert * step + begin, rows] as const,
      );
      const shape = [nExperts, rows, weight.cols];
      this.#note([undefined, gguf], "weight", { weight, ranges, shape });
      first += rows;
    }
  }

  /** The same for their biases, a row for each expert. */
  noteExpertBiases(
    weight: Weight,
    names: readonly (readonly [gguf: string, size: number])[],
  ): void {
    let first = 0;
    for (const [gguf, size] of names) {
      this.#note([undefined, gguf], "bias", {
        weight,
        ranges: [[0, weight.rows]],
        columns: [first, size],
        shape: [weight.rows, size],
      });
      first += size;
    }
  }

  /**
   * Loads the biases of stacked experts, `[nExperts, rows]`. Each row holds the biases of the given
   * tensors in order.
   */
  expertBiases(names: readonly Part[], nExperts: number): Weight {
    const parts = names.map(([name, rows, spans = [[0, rows] as const]]) => {
      const stacked = this.#map([{ tensor: this.#require(name, "bias", [nExperts, rows]) }], rows);
      return { stacked, spans, size: spans.reduce((sum, [, count]) => sum + count, 0) };
    });
    const total = parts.reduce((sum, { size }) => sum + size, 0);
    const values = new Float32Array(nExperts * total);
    let at = 0;
    for (const { stacked, spans, size } of parts) {
      for (let expert = 0; expert < nExperts; expert++) {
        const own = gather(this.backend.readWeight(stacked, expert, 1), spans);
        values.set(own, expert * total + at);
      }
      at += size;
    }
    return this.backend.uploadWeight("F32", nExperts, total, new Uint8Array(values.buffer));
  }

  /** Loads a vector, or some of its numbers, as a weight of one row. */
  vector(
    name: TensorName,
    size: number,
    suffix: Suffix = "weight",
    spans: readonly Span[] = [[0, size]],
  ): Weight {
    const weight = this.#map([{ tensor: this.#require(name, suffix, [size]) }], size);
    this.#noteWhole(name, suffix, weight, [size]);
    if (joined(spans)[0]![1] === size) return weight;
    return this.uploadVector(gather(this.backend.readWeight(weight, 0, 1), spans));
  }

  /**
   * Loads a weight of one row that files hold as a vector or as a matrix of one row. Errors name
   * the shape `usual`.
   */
  row(
    name: TensorName,
    size: number,
    usual: readonly number[],
    suffix: Suffix = "weight",
  ): Weight {
    const shape = [[size], [1, size]].find((shape) => this.hasShape(name, suffix, shape)) ?? usual;
    const weight = this.mapWhole(this.#require(name, suffix, shape), size);
    this.#noteWhole(name, suffix, weight, [size]);
    return weight;
  }

  /** Loads a vector if it exists. */
  optionalVector(name: TensorName, size: number, suffix: Suffix = "weight"): Weight | undefined {
    return this.has(name, suffix) ? this.vector(name, size, suffix) : undefined;
  }

  /** Loads several vectors as one, end to end. */
  concatVectors(parts: readonly Part[], suffix: string): Weight {
    const values = parts.flatMap(([name, size, spans]) => {
      const weight = this.vector(name, size, suffix, spans);
      return Array.from(this.backend.readWeight(weight, 0, 1));
    });
    return this.uploadVector(Float32Array.from(values));
  }

  /** Reads a vector of any size, or returns `undefined` if it is absent. */
  optionalNumbers(name: TensorName): Float32Array | undefined {
    const tensor = this.#find(name, "weight");
    if (tensor === undefined) return undefined;
    const size = tensor.shape.at(-1) ?? 0;
    return this.backend.readWeight(this.vector(name, size), 0, 1);
  }

  /** Reads a tensor of one number, named without a suffix. */
  number(name: TensorName, fallback?: number): number {
    if (fallback !== undefined && !this.has(name, "")) return fallback;
    const shape = this.hasShape(name, "", []) ? [] : [1];
    const weight = this.mapWhole(this.#require(name, "", shape), 1);
    return this.backend.readWeight(weight, 0, 1)[0]!;
  }

  /** Uploads a computed vector. */
  uploadVector(values: Float32Array<ArrayBuffer>): Weight {
    return this.backend.uploadWeight("F32", 1, values.length, new Uint8Array(values.buffer));
  }

  /** Returns a required tensor of this shape. */
  tensor(name: TensorName, suffix: Suffix, shape: readonly number[]): TensorInfo {
    const tensor = this.#require(name, suffix, shape);
    if (this.#shared.sink !== undefined && name[1] !== undefined) {
      const weight = this.#map([{ tensor }], shape.at(-1) ?? 1);
      // GGUF has no dimensions of 1 between others.
      const inner = shape.filter((size, i) => size > 1 || i === 0 || i === shape.length - 1);
      this.#noteWhole(name, suffix, weight, inner);
    }
    return tensor;
  }

  /** Returns a required tensor of bytes. */
  bytes(name: TensorName, shape: readonly number[]): TensorInfo {
    const tensor = this.#require(name, "", shape);
    if (tensor.type === "U8") return tensor;
    throw new ForgeError(
      "bad_model",
      `${quote(tensor.file)}: tensor ${quote(tensor.name)} is stored as ${tensor.type}, not U8`,
    );
  }

  /** Loads a whole tensor as rows of `cols`. */
  mapWhole(tensor: TensorInfo, cols: number): Weight {
    return this.#map([{ tensor }], cols);
  }

  /** Loads one weight from slices, in order. */
  mapSlices(slices: readonly WeightSlice[], cols: number): Weight {
    return this.#map(slices, cols);
  }

  /** Uploads a weight computed from tensors. Calls `data` only on devices that hold weights. */
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

  #map(parts: readonly WeightSlice[], cols: number): Weight {
    const weight = this.#mapPlain(parts, cols);
    return withAdapters(weight, this.#shared.adapters?.of(parts, cols, this));
  }

  /** Loads a weight without adapters. */
  #mapPlain(parts: readonly WeightSlice[], cols: number, nExperts = 1): Weight {
    for (const { tensor } of parts) assertComputable(tensor);
    const { slices, columnOrder } = withColumnOrder(parts, cols, nExperts);
    const weight = this.backend.mapWeight(slices, cols, columnOrder);
    this.#shared.mapped.push({ weight, slices });
    return weight;
  }

  #note([, gguf]: TensorName, suffix: Suffix, rows: TensorRows): void {
    if (gguf === undefined) return;
    const own = typeof suffix === "string" ? suffix : suffix[1];
    this.#shared.sink?.tensor(`${this.#prefixes.gguf}${gguf}${own === "" ? "" : "."}${own}`, rows);
  }

  #noteWhole(name: TensorName, suffix: Suffix, weight: Weight, shape: readonly number[]): void {
    this.#note(name, suffix, { weight, ranges: [[0, weight.rows]], shape });
  }

  #tensorName(
    [huggingFace, gguf]: TensorName,
    suffixes: Suffix,
    kind: Checkpoint["kind"] = this.#checkpoint.kind,
  ): string | undefined {
    const name = kind === "gguf" ? gguf : huggingFace;
    if (name === undefined) return undefined;
    const prefix = HEADS.test(name) ? "" : this.#prefixes[kind];
    const suffix = typeof suffixes === "string" ? suffixes : suffixes[kind === "gguf" ? 1 : 0];
    return `${prefix}${name}${suffix === "" ? "" : "."}${suffix}`;
  }

  #find(name: TensorName, suffix: Suffix): TensorInfo | undefined {
    const full = this.#tensorName(name, suffix);
    const tensor = full === undefined ? undefined : this.#checkpoint.tensors.get(full);
    if (full === undefined || tensor === undefined) return undefined;
    this.#shared.used.add(full);
    if (suffix === "weight") this.#meet(tensor, name);
    return tensor;
  }

  #meet(tensor: TensorInfo, name: TensorName): void {
    this.#shared.adapters?.meet(tensor, this.#namesOf(name, "weight"));
  }

  #namesOf(name: TensorName, suffix: Suffix): FullNames {
    return {
      safetensors: this.#tensorName(name, suffix, "safetensors"),
      gguf: this.#tensorName(name, suffix, "gguf"),
    };
  }

  /** Returns a required tensor and checks its shape if one is given. */
  #require(name: TensorName, suffix: Suffix, expected: readonly number[] | undefined): TensorInfo {
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

  #supply(name: TensorName, suffix: Suffix, expected: readonly number[] | undefined) {
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

/** Returns the prefixes of the tensors of a layer. */
function layerPrefixes(index: number): Prefixes {
  return { safetensors: `${DECODER_PREFIX}layers.${index}.`, gguf: `blk.${index}.` };
}

/** Returns the prefix of a tensor's layer, empty for tensors outside the layers. */
function layerOf(name: string): string {
  return /^.*?\d+\./.exec(name)?.[0] ?? "";
}

function withAdapters(weight: Weight, adapters: AdapterWeights | undefined): Weight {
  return weight.adapters === adapters ? weight : { ...weight, adapters };
}

/** Returns slices of spans of rows, counted from `firstRow`, of a matrix with `cols` columns. */
function slicesOf(
  tensor: TensorInfo,
  { spans, firstRow, columns }: {
    readonly spans: readonly Span[];
    readonly firstRow: number;
    readonly columns: Span;
  },
  cols: number,
): WeightSlice[] {
  const isWhole = columns[1] === cols;
  if (!isWhole) checkColumns(tensor, columns);
  const [[, nRows] = [0, 0]] = joined(spans);
  if (isWhole && nRows * cols === tensor.shape.reduce((product, size) => product * size, 1)) {
    return [{ tensor }];
  }
  return joined(spans).map(([first, nRows]) => ({
    tensor,
    firstRow: firstRow + first,
    nRows,
    ...(isWhole ? {} : { columns }),
  }));
}

/** Returns the bytes of a slice of a weight with `cols` columns. */
function sliceBytes({ tensor, nRows }: WeightSlice, cols: number): number {
  if (nRows === undefined) return tensor.bytes;
  const bytes = tensorBytes(tensor.type, [nRows, cols]);
  if (typeof bytes === "string") throw new RangeError(`${tensor.name}: ${bytes}`);
  return bytes;
}

/** Bytes compared at a time. */
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
