import type { AdapterWeights, Weight, WeightSlice } from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import type { Adapter, LoraPair } from "../../formats/adapter.ts";
import type { Checkpoint } from "../../formats/checkpoint.ts";
import { quote } from "../../formats/quote.ts";
import type { TensorInfo } from "../../formats/tensor_info.ts";
import { textModelNames } from "../../formats/text_part.ts";
import type { Span } from "./division.ts";
import { storedRow } from "./stacked_experts.ts";
import type { WeightLoader } from "./weight_loader.ts";

/** Pair of an adapter for one tensor of the model. */
interface AttachedPair {
  readonly pair: LoraPair;
  /** Index of its adapter. */
  readonly adapter: number;
  /** Row of B for each row of the tensor, if their orders differ. */
  readonly rowOrder?: Uint32Array | undefined;
}

/** Rows of each expert that adapters change as one matrix. */
export interface ExpertRows {
  /**
   * Name of the matrix in both formats; `{}` stands for the number of an expert, if each has a
   * tensor of its own.
   */
  readonly names: FullNames;
  /** First of the rows among those of an expert, and their number. */
  readonly span: Span;
  /** True if rows of the two halves alternate in adapters. @default false */
  readonly isInterleaved?: boolean | undefined;
}

/** Rows of experts that one adapter changes, and its pairs. */
interface ExpertSegment extends ExpertRows {
  readonly adapter: number;
  /** The largest rank of the pairs. */
  readonly rank: number;
  readonly pairs: readonly ExpertPair[];
}

/** Pair of one expert, or of neighbouring ones. */
interface ExpertPair {
  readonly pair: LoraPair;
  readonly firstExpert: number;
  readonly nExperts: number;
}

/** Sizes of the matrices of latent attention's heads. */
export interface HeadRows {
  readonly nHeads: number;
  /** Rows of a head's keys, then rows of its values. */
  readonly plain: number;
  readonly value: number;
  /** Columns of all. */
  readonly rank: number;
}

/** Adapters of the two matrices that stand in for the one of keys and values. */
export type HeadAdapters = Readonly<Record<"keys" | "values", AdapterWeights>>;

/** Neighbouring columns of a product that one pair changes. */
interface Segment {
  readonly of: AttachedPair;
  readonly first: number;
  /** Row of the tensor of each column. */
  readonly rows: number[];
}

/** Full names of a tensor in both formats. */
export type FullNames = Readonly<Record<Checkpoint["kind"], string | undefined>>;

/** Names of transformers 5 for tensors, and the names under which folders store them. */
const RENAMED: readonly (readonly [pattern: RegExp, stored: string])[] = [
  [/\.mlp\.(?=experts\.|gate\.)/, ".block_sparse_moe."],
  [/\.block_sparse_moe\.router\.weight$/, ".block_sparse_moe.router.layer.weight"],
];

/**
 * GGUF architectures of which llama.cpp's converters reorder the rows of q and k, in models and in
 * adapters, so that the two elements of a rotated pair are neighbours.
 */
const REORDERED = /^(?:llama|arcee|mistral3|granite|granitemoe|granitehybrid|smollm3)$/;

/** Matrices of heads whose rows are reordered. */
const Q_OR_K = /\.(?:self_attn\.[qk]_proj|attn_[qk])\.weight$/;

/** Tensors of all heads of latent attention, which it asks for by itself. */
const OF_HEADS = /\.(?:kv_b_proj|attn_kv_b)\.weight$/;

/** Heads that the host computes. */
const NOT_ADAPTED = /^(?:classifier|score|head)\b/;
/**
 * Matrices and models that llama.cpp's converter rearranges or scales, for which adapters of the
 * other format are not converted.
 */
const REARRANGED = /\.linear_attn\./;
const SCALED = /^falcon[-_]h1$/;

/** Loader through which adapters are read and uploaded. */
type UploadTarget = Pick<WeightLoader, "backend" | "upload" | "rank">;

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
  /**
   * True for adapters whose pairs of stacked experts are of the transposed matrices: A of their
   * rows, B of their columns. Older versions of peft write them for tensors `[experts, rows,
   * cols]`, the present one for those of Llama 4. The shape shows it unless the matrix is square.
   */
  readonly #reversed = new Map<number, boolean>();

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
        for (const name of kind === "gguf" ? [pair.target] : storedNames(pair.target)) {
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
    // Tensors that stack experts or heads have adapters of another kind.
    const isStacked = tensor.shape.length !== 2 || OF_HEADS.test(tensor.name);
    if (this.#attached.has(tensor) || isStacked) return;
    const found = this.#find(names);
    if (found.length === 0) return;
    this.#attached.set(
      tensor,
      found.map(({ adapter, pair }) => {
        const [rows = 0, cols = 0] = tensor.shape;
        const { a, b, rank, isOfEmbedding, nExperts } = pair;
        const fits = nExperts === undefined &&
          (isOfEmbedding
            ? b.shape[0] === cols && a.shape.includes(rank) && a.shape.includes(rows)
            : b.shape[0] === rows && a.shape[1] === cols);
        if (!fits) throw this.#misfit(adapter, pair, quote(tensor.name), tensor.shape);
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

  /**
   * Makes the adapters of a weight of slices, which have the same columns; `undefined` without any.
   * Of the rows and columns that a rank lacks, it has no part of B and A.
   */
  of(
    slices: readonly WeightSlice[],
    cols: number,
    weights: UploadTarget,
  ): AdapterWeights | undefined {
    const segments = this.#segments(slices, cols);
    if (segments.length === 0) return undefined;
    for (const { of: { pair, adapter } } of segments) {
      if (pair.isOfEmbedding) throw this.#notAdapted(adapter, pair);
      this.#missing.delete(pair);
    }
    const pairs = segments.map(({ of: { pair } }) => pair);
    const nRanks = pairs.reduce((sum, { rank }) => sum + rank, 0);
    const width = Math.max(...segments.map(({ rows }) => rows.length));
    const firstColumn = slices[0]?.columns?.[0] ?? 0;
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
          const stored = read(a), step = a.shape[1]!;
          for (let r = 0; r < rank; r++, at += cols) {
            const from = r * step + firstColumn;
            values.set(stored.subarray(from, from + cols), at);
          }
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
      ranks: uploadRanks(
        weights,
        segments.map(({ of: { pair, adapter }, first, rows }) => [
          pair.rank,
          [adapter, first, rows.length],
        ]),
      ),
    };
  }

  /**
   * Makes the adapters of a weight of experts, `[nExperts * rows, cols]`; `undefined` without any.
   */
  ofExperts(
    parts: readonly ExpertRows[],
    nExperts: number,
    cols: number,
    weights: UploadTarget,
  ): AdapterWeights | undefined {
    const segments = parts.flatMap((part) => this.#expertSegments(part, nExperts, cols, weights));
    if (segments.length === 0) return undefined;
    const nRanks = segments.reduce((sum, { rank }) => sum + rank, 0);
    const pairs = segments.flatMap(({ pairs }) => pairs.map(({ pair }) => pair));
    const upload = (side: "a" | "b", width: number) =>
      uploadFloats(
        weights,
        [nExperts * nRanks, width],
        pairs.map((pair) => pair[side]),
        (values) => {
          let begin = 0;
          for (const segment of segments) {
            for (const { pair, firstExpert, nExperts } of segment.pairs) {
              const to = values.subarray((firstExpert * nRanks + begin) * width);
              const steps = { expert: nRanks * width, rank: width };
              const from = this.#elements(side, segment, pair, cols, weights);
              copyExperts(to, steps, from, nExperts, side === "a" ? 1 : pair.factor);
            }
            begin += segment.rank;
          }
        },
      );
    return {
      nAdapters: this.#adapters.length,
      nBlocks: nExperts,
      targets: [...new Set(pairs.map(({ target }) => target))],
      a: upload("a", cols),
      b: upload("b", Math.max(...segments.map(({ span }) => span[1]))),
      ranks: uploadRanks(
        weights,
        segments.map(({ adapter, rank, span }) => [rank, [adapter, ...span]]),
      ),
    };
  }

  /**
   * Makes the adapters of the matrices of heads that latent attention uses in place of one tensor:
   * the transposed one of keys, `[rank, plain]` for each head, and the one of values. A correction
   * `B A` of keys is `A^T B^T` there.
   */
  ofHeads(
    names: FullNames,
    { nHeads, plain, value, rank: cols }: HeadRows,
    weights: UploadTarget,
  ): HeadAdapters | undefined {
    const found = this.#find(names);
    if (found.length === 0) return undefined;
    const rows = plain + value;
    for (const { pair, adapter } of found) {
      this.#assertWhole(adapter, pair, weights);
      const { a, b, isOfEmbedding, nExperts } = pair;
      const fits = !isOfEmbedding && nExperts === undefined && b.shape[0] === nHeads * rows &&
        a.shape[1] === cols;
      if (!fits) throw this.#misfit(adapter, pair, "of the model", [nHeads * rows, cols]);
      this.#missing.delete(pair);
    }
    const nRanks = found.reduce((sum, { pair }) => sum + pair.rank, 0);
    const tensors = (side: "a" | "b") => found.map(({ pair }) => pair[side]);
    const a = uploadFloats(weights, [nRanks, cols], tensors("a"), (values) => {
      let at = 0;
      for (const { pair } of found) {
        values.set(readTensor(pair.a, weights), at);
        at += pair.rank * cols;
      }
    });
    /** Uploads rows of B for each head, transposed and scaled. */
    const transposed = (first: number, count: number) =>
      uploadFloats(weights, [nHeads * nRanks, count], tensors("b"), (values) => {
        let begin = 0;
        for (const { pair: { b, rank, factor } } of found) {
          const stored = readTensor(b, weights);
          for (let head = 0; head < nHeads; head++) {
            for (let i = 0; i < count; i++) {
              const from = (head * rows + first + i) * rank;
              for (let r = 0; r < rank; r++) {
                const to = (head * nRanks + begin + r) * count + i;
                values[to] = factor * stored[from + r]!;
              }
            }
          }
          begin += rank;
        }
      });
    const ranks = (width: number) =>
      uploadRanks(weights, found.map(({ adapter, pair }) => [pair.rank, [adapter, 0, width]]));
    const common = {
      nAdapters: this.#adapters.length,
      nBlocks: nHeads,
      targets: found.map(({ pair }) => pair.target),
    };
    return {
      keys: { ...common, a: transposed(0, plain), b: a, ranks: ranks(cols) },
      values: { ...common, a, b: transposed(plain, value), ranks: ranks(value) },
    };
  }

  /** Makes the adapters of some columns of an embedding; `undefined` without any. */
  ofEmbedding(
    tensor: TensorInfo,
    [firstColumn, cols]: Span,
    weights: UploadTarget,
  ): AdapterWeights | undefined {
    const attached = this.#attached.get(tensor) ?? [];
    if (attached.length === 0) return undefined;
    for (const { pair, adapter } of attached) {
      if (!pair.isOfEmbedding) throw this.#notAdapted(adapter, pair);
      this.#missing.delete(pair);
    }
    const [nTokens = 0] = tensor.shape;
    const pairs = attached.map(({ pair }) => pair);
    const nRanks = pairs.reduce((sum, { rank }) => sum + rank, 0);
    // Row `rank` of B of each pair, transposed, and factor * A of each token.
    const b = uploadFloats(weights, [nRanks, cols], pairs.map(({ b }) => b), (values) => {
      let first = 0;
      for (const { b, rank } of pairs) {
        const stored = readTensor(b, weights);
        for (let r = 0; r < rank; r++) {
          for (let c = 0; c < cols; c++) {
            values[(first + r) * cols + c] = stored[(firstColumn + c) * rank + r]!;
          }
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
    const ranks = uploadRanks(
      weights,
      attached.map(({ adapter, pair }) => [pair.rank, [adapter, 0, cols]]),
    );
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
      loaders.some((weights) => !storedNames(target).some((name) => weights.isOfOtherLayer(name)));
    const pair = [...this.#missing].find((pair) =>
      all.every((adapters) => adapters.#missing.has(pair)) && isLoadedLayer(pair)
    );
    if (pair === undefined) return;
    const adapter = this.#adapters.findIndex(({ pairs }) => pairs.includes(pair));
    const isStored = storedNames(pair.target).some((name) => this.#checkpoint.tensors.has(name));
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

  /** Returns the pairs for a tensor by its names. */
  #find(names: FullNames): readonly { readonly adapter: number; readonly pair: LoraPair }[] {
    return (["safetensors", "gguf"] as const).flatMap((kind) => {
      const name = names[kind];
      return name === undefined ? [] : this.#wanted.get(keyOf(kind, name)) ?? [];
    });
  }

  /** Finds the pairs for rows of experts: one of all experts, or one of each. */
  #expertSegments(
    part: ExpertRows,
    nExperts: number,
    cols: number,
    weights: UploadTarget,
  ): ExpertSegment[] {
    const { names: { safetensors, gguf }, span: [, rows] } = part;
    const found = Array.from(
      { length: nExperts },
      (_, expert) => this.#find({ safetensors: safetensors?.replace("{}", String(expert)), gguf }),
    );
    const adapters = new Set(found.flat().map(({ adapter }) => adapter));
    return Array.from(adapters, (adapter) => {
      const pairs = found.map((own) => own.find((known) => known.adapter === adapter)?.pair)
        .flatMap((pair, firstExpert): ExpertPair[] => {
          if (pair === undefined) return [];
          if (pair.nExperts === undefined) return [{ pair, firstExpert, nExperts: 1 }];
          return firstExpert === 0 ? [{ pair, firstExpert, nExperts }] : [];
        });
      for (const { pair } of pairs) {
        this.#assertWhole(adapter, pair, weights);
        this.#assertFits(adapter, pair, part.names, [nExperts, rows, cols]);
        this.#missing.delete(pair);
      }
      return { ...part, adapter, rank: Math.max(...pairs.map(({ pair }) => pair.rank)), pairs };
    });
  }

  /** Checks that ranks do not divide experts, or heads of latent attention, with adapters. */
  #assertWhole(adapter: number, { target }: LoraPair, { rank }: UploadTarget): void {
    if (rank.count === 1) return;
    throw new ForgeError(
      "unsupported",
      `${this.#nameOf(adapter)} changes ${quote(target)}; tensor parallelism divides no experts ` +
        "and no latent attention with adapters, pipeline parallelism does",
    );
  }

  #assertFits(
    adapter: number,
    pair: LoraPair,
    names: FullNames,
    shape: readonly [nExperts: number, rows: number, cols: number],
  ): void {
    const [nExperts, rows, cols] = shape, { a, b, isOfEmbedding } = pair;
    const name = names[this.#adapters[adapter]!.kind]!;
    const isOfOne = name.includes("{}");
    const isOfRows = a.shape.at(-1) === cols && b.shape.at(-2) === rows;
    const isReversed = a.shape.length === 2 && a.shape[1] === rows && b.shape[0] === cols;
    const fits = !isOfEmbedding &&
      (isOfOne
        ? isOfRows && pair.nExperts === undefined
        : (isOfRows || isReversed) && (pair.nExperts ?? 1) === nExperts);
    if (!fits) throw this.#misfit(adapter, pair, quote(name), isOfOne ? [rows, cols] : shape);
    if (!isOfOne && rows !== cols) this.#reversed.set(adapter, isReversed);
  }

  /** Reads A or B of a pair. */
  #elements(
    side: "a" | "b",
    { adapter, span: [, rows], isInterleaved = false }: ExpertSegment,
    { a, b, rank, nExperts }: LoraPair,
    cols: number,
    weights: UploadTarget,
  ): Elements {
    const isStackedByRank = nExperts !== undefined && a.shape.length === 2;
    const isReversed = isStackedByRank &&
      (rows === cols ? this.#reversed.get(adapter) === true : a.shape[1] === rows);
    const isA = (side === "a") !== isReversed;
    const values = readTensor(isA ? a : b, weights);
    const count = side === "a" ? cols : rows;
    const order = side === "b" && isInterleaved
      ? Uint32Array.from({ length: rows }, (_, row) => storedRow(row, rows, true))
      : undefined;
    // peft stacks the ranks of all experts in A expert by expert, and in B rank by rank.
    const steps = isA
      ? { expert: rank * count, rank: count, element: 1 }
      : isStackedByRank
      ? { expert: 1, rank: nExperts, element: rank * nExperts }
      : { expert: count * rank, rank: 1, element: rank };
    return { values, rank, count, order, steps };
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

  #misfit(adapter: number, { a, b }: LoraPair, name: string, shape: readonly number[]): ForgeError {
    return new ForgeError(
      "bad_model",
      `${this.#nameOf(adapter)} is for another model: ${
        quote(a.name)
      } has the shape [${a.shape}] ` +
        `and ${quote(b.name)} [${b.shape}]; the matrix ${name} has [${shape}]`,
    );
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
  const cols = tensor.shape.at(-1) ?? 1;
  return backend.readWeight(backend.mapWeight([{ tensor }], cols), 0, rowsOf(tensor, cols));
}

/** Returns the names under which folders may store a tensor that an adapter names. */
function storedNames(target: string): string[] {
  const renamed = RENAMED.map(([pattern, stored]) => target.replace(pattern, stored));
  return [...new Set([target, ...renamed])].flatMap(textModelNames);
}

/** Columns of A, or rows of B, for each rank of some experts. */
interface Elements {
  readonly values: Float32Array;
  readonly rank: number;
  /** Number of elements of a rank. */
  readonly count: number;
  /** Order of the elements, if it is another one. */
  readonly order: Uint32Array | undefined;
  /** Distance of neighbouring experts, ranks and elements. */
  readonly steps: Readonly<Record<"expert" | "rank" | "element", number>>;
}

/** Copies scaled elements to rows of a rank each, at `steps` from expert to expert. */
function copyExperts(
  to: Float32Array,
  steps: Readonly<Record<"expert" | "rank", number>>,
  { values, rank, count, order, steps: from }: Elements,
  nExperts: number,
  factor: number,
): void {
  if (from.element === 1 && order === undefined && factor === 1) {
    for (let expert = 0; expert < nExperts; expert++) {
      for (let r = 0; r < rank; r++) {
        const at = expert * from.expert + r * from.rank;
        to.set(values.subarray(at, at + count), expert * steps.expert + r * steps.rank);
      }
    }
    return;
  }
  // In B of peft, the experts of a rank are neighbours.
  for (let i = 0; i < count; i++) {
    for (let r = 0; r < rank; r++) {
      const first = (order?.[i] ?? i) * from.element + r * from.rank, into = r * steps.rank + i;
      for (let expert = 0; expert < nExperts; expert++) {
        to[into + expert * steps.expert] = factor * values[first + expert * from.expert]!;
      }
    }
  }
}

/** Uploads the adapter, first column and number of columns of each rank. */
function uploadRanks(
  weights: UploadTarget,
  runs: readonly (readonly [count: number, rank: readonly [number, number, number]])[],
): Weight {
  const ranks = runs.flatMap(([count, rank]) => new Array(count).fill(rank)).flat();
  return uploadFloats(weights, [ranks.length / 3, 3], [], (values) => values.set(ranks));
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
