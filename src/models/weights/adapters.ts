import type { AdapterWeights, Weight, WeightSlice } from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import type { Adapter, LoraPair } from "../../formats/adapter.ts";
import type { Checkpoint } from "../../formats/checkpoint.ts";
import { quote } from "../../formats/quote.ts";
import type { TensorInfo } from "../../formats/tensor_info.ts";
import { textModelNames } from "../../formats/text_part.ts";
import type { WeightLoader } from "./weight_loader.ts";

/** Pair of an adapter for one tensor of the model. */
interface AttachedPair {
  readonly pair: LoraPair;
  /** Index of its adapter. */
  readonly adapter: number;
  /** Row of B for each row of the tensor, if their orders differ. */
  readonly rowOrder?: Uint32Array | undefined;
}

/** Neighbouring columns of a product that one pair changes. */
interface Segment {
  readonly of: AttachedPair;
  readonly first: number;
  /** Row of the tensor of each column. */
  readonly rows: number[];
}

/** Full names of a tensor in both formats. */
type FullNames = Readonly<Record<Checkpoint["kind"], string | undefined>>;

/**
 * GGUF architectures of which llama.cpp's converters reorder the rows of q and k, in models and in
 * adapters, so that the two elements of a rotated pair are neighbours.
 */
const REORDERED = /^(?:llama|arcee|mistral3|granite|granitemoe|granitehybrid|smollm3)$/;

/** Matrices of heads whose rows are reordered. */
const Q_OR_K = /\.(?:self_attn\.[qk]_proj|attn_[qk])\.weight$/;

/**
 * Matrices that are not used in products as they are stored: heads that the host computes and the
 * factors of latent attention.
 */
const NOT_ADAPTED = /^(?:classifier|score|head)\b|\.kv_b_proj\.|\.attn_(?:kv|k|v)_b\./;
/**
 * Matrices and models that llama.cpp's converter rearranges or scales, for which adapters of the
 * other format are not converted.
 */
const REARRANGED = /\.linear_attn\./;
const SCALED = /^falcon[-_]h1$/;

/** Loader through which adapters are read and uploaded. */
type UploadTarget = Pick<WeightLoader, "backend" | "upload">;

/**
 * Low-rank adapters for the matrices of one checkpoint, found by name as the matrices are loaded.
 */
export class ModelAdapters {
  readonly #adapters: readonly Adapter[];
  readonly #checkpoint: Checkpoint;
  /** Pairs by the names of their matrices, in the formats of their adapters. */
  readonly #wanted = new Map<string, { readonly adapter: number; readonly pair: LoraPair }[]>();
  readonly #attached = new Map<TensorInfo, AttachedPair[]>();
  /** Pairs whose matrices have not been loaded. */
  readonly #missing = new Set<LoraPair>();

  /** @throws {ForgeError} `bad_model` for an adapter of another architecture */
  constructor(adapters: readonly Adapter[], checkpoint: Checkpoint) {
    this.#adapters = adapters;
    this.#checkpoint = checkpoint;
    for (const [adapter, { kind, path, architecture, pairs }] of adapters.entries()) {
      if (kind === "gguf" && checkpoint.kind === "gguf" && architecture !== checkpoint.modelType) {
        throw new ForgeError(
          "bad_model",
          `the adapter ${quote(path)} is for the architecture ${quote(architecture ?? "?")}; ` +
            `${quote(checkpoint.path)} is ${quote(checkpoint.modelType)}`,
        );
      }
      for (const pair of pairs) {
        this.#missing.add(pair);
        const names = kind === "gguf" ? [pair.target] : textModelNames(pair.target);
        for (const name of names) {
          const key = keyOf(kind, name);
          this.#wanted.set(key, [...this.#wanted.get(key) ?? [], { adapter, pair }]);
        }
      }
    }
  }

  /**
   * Notes the names of a matrix that a model asks for.
   *
   * @throws {ForgeError} `bad_model` for a pair of another shape; `unsupported` for a matrix that
   * forge cannot adapt
   */
  meet(tensor: TensorInfo, names: FullNames): void {
    if (this.#attached.has(tensor)) return;
    const found = (["safetensors", "gguf"] as const).flatMap((kind) => {
      const name = names[kind];
      return name === undefined ? [] : this.#wanted.get(keyOf(kind, name)) ?? [];
    });
    if (found.length === 0) return;
    this.#attached.set(
      tensor,
      found.map(({ adapter, pair }) => {
        const [rows = 0, cols = 0] = tensor.shape;
        const { a, b, rank, isOfEmbedding } = pair;
        const fits = tensor.shape.length === 2 &&
          (isOfEmbedding
            ? b.shape[0] === cols && a.shape.includes(rank) && a.shape.includes(rows)
            : b.shape[0] === rows && a.shape[1] === cols);
        if (!fits) {
          throw new ForgeError(
            "bad_model",
            `${this.#nameOf(adapter)} is for another model: ${quote(pair.a.name)} has the shape ` +
              `[${pair.a.shape}] and ${quote(pair.b.name)} [${pair.b.shape}]; the matrix ${
                quote(tensor.name)
              } has [${tensor.shape}]`,
          );
        }
        const { kind } = this.#adapters[adapter]!;
        const isForeign = kind !== this.#checkpoint.kind;
        const isPlain = !NOT_ADAPTED.test(pair.target) &&
          !(isForeign &&
            (REARRANGED.test(names.safetensors ?? "") || SCALED.test(this.#checkpoint.modelType)));
        if (!isPlain) throw this.#notAdapted(adapter, pair);
        return { pair, adapter, rowOrder: isForeign ? this.#rowOrder(adapter, pair) : undefined };
      }),
    );
  }

  /** Makes the adapters of a weight of slices; `undefined` without any. */
  of(
    slices: readonly WeightSlice[],
    cols: number,
    weights: UploadTarget,
    isOfExperts: boolean,
  ): AdapterWeights | undefined {
    const segments = this.#segments(slices, cols);
    if (segments.length === 0) return undefined;
    for (const { of: { pair, adapter } } of segments) {
      if (isOfExperts || pair.isOfEmbedding) throw this.#notAdapted(adapter, pair);
      this.#missing.delete(pair);
    }
    const pairs = segments.map(({ of: { pair } }) => pair);
    const nRanks = pairs.reduce((sum, { rank }) => sum + rank, 0);
    const width = Math.max(...segments.map(({ rows }) => rows.length));
    const read = (tensor: TensorInfo) => readTensor(tensor, weights);
    const floats = (
      cols: number,
      tensors: readonly TensorInfo[],
      fill: (values: Float32Array<ArrayBuffer>) => void,
    ): Weight => uploadFloats(weights, [nRanks, cols], tensors, fill);
    return {
      nAdapters: this.#adapters.length,
      targets: pairs.map(({ target }) => target),
      a: floats(cols, pairs.map(({ a }) => a), (values) => {
        let at = 0;
        for (const { a, rank } of pairs) {
          values.set(read(a), at);
          at += rank * cols;
        }
      }),
      b: floats(width, pairs.map(({ b }) => b), (values) => {
        let begin = 0;
        for (const { of: { pair, rowOrder }, rows } of segments) {
          const { rank, factor } = pair;
          const stored = read(pair.b);
          for (const [column, row] of rows.entries()) {
            const from = (rowOrder?.[row] ?? row) * rank;
            for (let r = 0; r < rank; r++) {
              values[(begin + r) * width + column] = factor * stored[from + r]!;
            }
          }
          begin += rank;
        }
      }),
      ranks: floats(3, [], (values) => {
        let at = 0;
        for (const { of: { pair, adapter }, first, rows } of segments) {
          for (let r = 0; r < pair.rank; r++, at += 3) {
            values.set([adapter, first, rows.length], at);
          }
        }
      }),
    };
  }

  /** Makes the adapters of an embedding; `undefined` without any. */
  ofEmbedding(tensor: TensorInfo, weights: UploadTarget): AdapterWeights | undefined {
    const attached = this.#attached.get(tensor) ?? [];
    if (attached.length === 0) return undefined;
    for (const { pair, adapter } of attached) {
      if (!pair.isOfEmbedding) throw this.#notAdapted(adapter, pair);
      this.#missing.delete(pair);
    }
    const [nTokens = 0, cols = 0] = tensor.shape;
    const pairs = attached.map(({ pair }) => pair);
    const nRanks = pairs.reduce((sum, { rank }) => sum + rank, 0);
    // Row `rank` of B of each pair, transposed, and factor * A of each token.
    const b = uploadFloats(weights, [nRanks, cols], pairs.map(({ b }) => b), (values) => {
      let first = 0;
      for (const { b, rank } of pairs) {
        const stored = readTensor(b, weights);
        for (let r = 0; r < rank; r++) {
          for (let c = 0; c < cols; c++) values[(first + r) * cols + c] = stored[c * rank + r]!;
        }
        first += rank;
      }
    });
    const rows = uploadFloats(weights, [nTokens, nRanks], pairs.map(({ a }) => a), (values) => {
      let first = 0;
      for (const { a, rank, factor } of pairs) {
        const stored = readTensor(a, weights), isByToken = a.shape[0] === nTokens;
        for (let token = 0; token < nTokens; token++) {
          for (let r = 0; r < rank; r++) {
            const at = isByToken ? token * rank + r : r * nTokens + token;
            values[token * nRanks + first + r] = factor * stored[at]!;
          }
        }
        first += rank;
      }
    });
    const identity = uploadFloats(weights, [nRanks, nRanks], [], (values) => {
      for (let r = 0; r < nRanks; r++) values[r * (nRanks + 1)] = 1;
    });
    const ranks = uploadFloats(weights, [nRanks, 3], [], (values) => {
      const of = attached.flatMap(({ adapter, pair }) =>
        new Array<number>(pair.rank).fill(adapter)
      );
      for (const [r, adapter] of of.entries()) values.set([adapter, 0, cols], 3 * r);
    });
    const targets = pairs.map(({ target }) => target);
    return { nAdapters: this.#adapters.length, targets, rows, a: identity, b, ranks };
  }

  /**
   * Rejects adapters of which a part was not used, except for layers that were not loaded.
   *
   * @param all the same adapters on each device of the model
   * @param loaders loaders of these devices
   * @throws {ForgeError} `bad_model` for a matrix that the model does not have; `unsupported` for
   * one that forge cannot adapt
   */
  assertUsed(
    all: readonly ModelAdapters[],
    loaders: readonly Pick<WeightLoader, "isOfOtherLayer">[],
  ): void {
    const isLoadedLayer = ({ target }: LoraPair) =>
      loaders.some((weights) =>
        !textModelNames(target).some((name) => weights.isOfOtherLayer(name))
      );
    const pair = [...this.#missing].find((pair) =>
      all.every((adapters) => adapters.#missing.has(pair)) && isLoadedLayer(pair)
    );
    if (pair === undefined) return;
    const adapter = this.#adapters.findIndex(({ pairs }) => pairs.includes(pair));
    const isStored = textModelNames(pair.target).some((name) => this.#checkpoint.tensors.has(name));
    const isLoaded = [...this.#attached.values()].flat().some((known) => known.pair === pair);
    if (isStored || isLoaded) throw this.#notAdapted(adapter, pair);
    throw new ForgeError(
      "bad_model",
      `${this.#nameOf(adapter)} changes the matrix ${quote(pair.target)}, which ${
        quote(this.#checkpoint.path)
      } does not have`,
    );
  }

  #segments(slices: readonly WeightSlice[], cols: number): Segment[] {
    const segments: Segment[] = [];
    let first = 0;
    let open: Segment[] = [];
    for (const { tensor, firstRow = 0, nRows = rowsOf(tensor, cols) - firstRow } of slices) {
      const pairs = this.#attached.get(tensor) ?? [];
      // Neighbouring slices of a tensor share the ranks of its pairs.
      const continues = open.length === pairs.length &&
        open.every((segment, i) => segment.of === pairs[i]);
      if (!continues) {
        open = pairs.map((pair) => ({ of: pair, first, rows: [] }));
        segments.push(...open);
      }
      for (const { rows } of open) for (let r = 0; r < nRows; r++) rows.push(firstRow + r);
      first += nRows;
    }
    return segments;
  }

  /** Returns the order of B's rows for a model in the other format, if it differs. */
  #rowOrder(adapter: number, { target, b }: LoraPair): Uint32Array | undefined {
    const { kind, architecture } = this.#adapters[adapter]!;
    const { modelType, metadata, config } = this.#checkpoint;
    const ofGguf = kind === "gguf" ? architecture : modelType;
    if (!Q_OR_K.test(target) || !REORDERED.test(ofGguf ?? "")) return undefined;
    const size = (name: string, ggufName: string) => {
      const value = metadata?.get(`${modelType}.${ggufName}`) ?? config?.[name];
      return typeof value === "number" ? value : undefined;
    };
    const headDim = size("head_dim", "attention.key_length") ??
      size("hidden_size", "embedding_length")! /
        size("num_attention_heads", "attention.head_count")!;
    return Uint32Array.from({ length: b.shape[0]! }, (_, row) => {
      const inHead = row % headDim, half = headDim / 2;
      // GGUF has the elements i and i + half of a head side by side.
      const from = kind === "gguf"
        ? inHead % half * 2 + Math.floor(inHead / half)
        : inHead % 2 * half + Math.floor(inHead / 2);
      return row - inHead + from;
    });
  }

  #nameOf(adapter: number): string {
    return `the adapter ${quote(this.#adapters[adapter]!.path)}`;
  }

  #notAdapted(adapter: number, { target }: LoraPair): ForgeError {
    return new ForgeError(
      "unsupported",
      `${this.#nameOf(adapter)} changes the matrix ${quote(target)}, which forge cannot adapt`,
    );
  }
}

function keyOf(kind: Checkpoint["kind"], name: string): string {
  return `${kind} ${name}`;
}

function rowsOf({ shape }: TensorInfo, cols: number): number {
  return shape.reduce((product, size) => product * size, 1) / cols;
}

function readTensor(tensor: TensorInfo, { backend }: UploadTarget): Float32Array {
  const [rows = 0, cols = 0] = tensor.shape;
  return backend.readWeight(backend.mapWeight([{ tensor }], cols), 0, rows);
}

/** Uploads computed floats. Calls `fill` only on devices that hold weights. */
function uploadFloats(
  weights: UploadTarget,
  [rows, cols]: readonly [number, number],
  tensors: readonly TensorInfo[],
  fill: (values: Float32Array<ArrayBuffer>) => void,
): Weight {
  return weights.upload("F32", rows, cols, tensors, () => {
    const values = new Float32Array(rows * cols);
    fill(values);
    return new Uint8Array(values.buffer);
  });
}
