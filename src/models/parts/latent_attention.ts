/**
 * Multi-head latent attention: keys and values are projections of one short latent vector for each
 * token, queries of another, and all heads share the rotated part of the key. DeepSeek-AI,
 * arXiv:2405.04434.
 *
 * Keys and values are never computed. The matrix from latent vectors to a head's keys is applied to
 * its query instead, and the matrix to its values to the head's result. So all heads share one key,
 * `(latent | rotated)`, whose first part is also the value, and the cache holds nothing else.
 */
import type { Recorder, Value, Weight } from "../../backend.ts";
import { type Block, sumOfRanks } from "./blocks.ts";
import type { TensorInfo, TensorType } from "../../formats/tensor_info.ts";
import type { ForwardPass, LayerKvShape } from "../causal_lm.ts";
import type { ConfigReader, Key } from "../config/config_reader.ts";
import type { DecoderConfig } from "../config/decoder_config.ts";
import { divideHeads, rowsOf, type Span } from "../weights/division.ts";
import type { Rope } from "./rope.ts";
import type { TensorName, WeightLoader } from "../weights/weight_loader.ts";

/** Sizes of latent attention. */
interface LatentDims {
  /**
   * Size of the queries' latent vector; `undefined` if queries are projected from the hidden state.
   */
  readonly queryRank: number | undefined;
  /** Size of the latent vector of keys and values. */
  readonly rank: number;
  /** Elements of a head's key that are not rotated, and those that are. */
  readonly plain: number;
  readonly rotated: number;
  readonly value: number;
}

export function latentDims(config: ConfigReader): LatentDims {
  const queryRank: Key = ["q_lora_rank", "attention.q_lora_rank"];
  const rotated = config.int(["qk_rope_head_dim", "rope.dimension_count"]);
  // GGUF files for attention over latent vectors have the sizes of heads under their own names.
  const length = (name: string) =>
    config.raw([undefined, `${name}_mla`]) === undefined ? name : `${name}_mla`;
  const plain = config.isGguf
    ? config.int([undefined, length("attention.key_length")]) - rotated
    : config.int(["qk_nope_head_dim", undefined]);
  config.sink?.setting("attention.key_length", ["u32", plain + rotated]);
  if (plain < 1) throw config.invalid(["", "attention.key_length"], plain + rotated, "more");
  return {
    queryRank: config.raw(queryRank) === undefined ? undefined : config.int(queryRank),
    rank: config.int(["kv_lora_rank", "attention.kv_lora_rank"]),
    plain,
    rotated,
    value: config.int(["v_head_dim", length("attention.value_length")]),
  };
}

/**
 * Returns the shape of the one key of all heads, the latent vector and the rotated part; the former
 * is the value.
 */
export function latentKvShape({ rank, rotated }: LatentDims): LayerKvShape {
  return { nKvHeads: 1, kHeadDim: rank + rotated, vHeadDim: rank, valuesInKeys: true };
}

interface LatentAttentionParts {
  readonly dims: LatentDims;
  readonly rope: Rope;
  /** Factor of the scores. */
  readonly scale: number;
}

/** Loads latent attention of layer `index` over the KV cache. */
export function loadLatentAttention(
  weights: WeightLoader,
  c: DecoderConfig,
  index: number,
  parts: LatentAttentionParts,
): Block {
  weights.useKv(index);
  const { hiddenSize } = c;
  const { dims, rope, scale } = parts;
  const { rank, plain, rotated, value } = dims;
  // Latent vectors and their cache are on every device that divides the heads.
  const heads = divideHeads(c.nHeads, 1, weights.rank).q;
  const [, nHeads] = heads;
  // transformers uses this epsilon for the norms of latent vectors, whatever the config says.
  const eps = weights.isGguf ? c.normEps : 1e-6;
  const queries = loadQueries(weights, c, heads, dims, eps);
  const down = weights.matrix(
    ["self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"],
    rank + rotated,
    hiddenSize,
  );
  const norm = weights.vector(["self_attn.kv_a_layernorm", "attn_kv_a_norm"], rank);
  const { toLatent, toValues } = loadHeadMatrices(weights, c.nHeads, heads, dims);
  const out = weights.columns(
    ["self_attn.o_proj", "attn_output"],
    hiddenSize,
    c.nHeads * value,
    rowsOf(heads, value),
  );

  const append = (pass: ForwardPass, x: Value): Value => {
    const { recorder, kv } = pass;
    const q = queries(recorder, x);
    const step = plain + rotated;
    const plainQueries = recorder.gatherColumns([{ value: q, width: plain, step }], nHeads);
    const qHeads = recorder.gatherColumns([
      { value: recorder.headMatmul(plainQueries, toLatent, nHeads), width: rank, step: rank },
      { value: q, width: rotated, first: plain, step },
    ], nHeads);
    const shared = recorder.matmul(x, down);
    const latent = recorder.gatherColumns([{ value: shared, width: rank }], 1);
    const qk = recorder.gatherColumns([
      { value: qHeads, width: nHeads * (rank + rotated) },
      { value: recorder.rmsNorm(latent, norm, { eps }), width: rank },
      { value: shared, width: rotated, first: rank },
    ], 1);
    return recorder.ropeAppend(qk, kv[index]!, {
      nHeads,
      eps,
      rope: pass.ropeTable(rope),
      ropeLayout: rope.layout,
    });
  };
  const attend: Block = (pass, x, residual) => {
    const { recorder, kv } = pass;
    const mixed = recorder.attention(append(pass, x), kv[index]!, { nHeads, scale });
    const values = recorder.headMatmul(mixed, toValues, nHeads);
    return sumOfRanks(recorder, weights.rank, values, out, { residual });
  };
  return Object.assign(attend, { append });
}

/** Loads the queries of the device's heads, `(plain | rotated)` for each head. */
function loadQueries(
  weights: WeightLoader,
  c: DecoderConfig,
  heads: Span,
  dims: LatentDims,
  eps: number,
) {
  const { queryRank, plain, rotated } = dims;
  const rows = c.nHeads * (plain + rotated);
  const own = [rowsOf(heads, plain + rotated)];
  if (queryRank === undefined) {
    const q = weights.matrix(["self_attn.q_proj", "attn_q"], rows, c.hiddenSize, own);
    return (recorder: Recorder, x: Value) => recorder.matmul(x, q);
  }
  const down = weights.matrix(["self_attn.q_a_proj", "attn_q_a"], queryRank, c.hiddenSize);
  const norm = weights.vector(["self_attn.q_a_layernorm", "attn_q_a_norm"], queryRank);
  const up = weights.matrix(["self_attn.q_b_proj", "attn_q_b"], rows, queryRank, own);
  return (recorder: Recorder, x: Value) =>
    recorder.matmul(recorder.rmsNorm(recorder.matmul(x, down), norm, { eps }), up);
}

/** Matrices of the device's heads, one after the other, for {@linkcode Recorder.headMatmul}. */
interface HeadMatrices {
  /**
   * Maps the plain part of a query to a vector that is multiplied with latent vectors, `[rank,
   * plain]` for each head.
   */
  readonly toLatent: Weight;
  /** Maps a latent vector to a value, `[value, rank]` for each head. */
  readonly toValues: Weight;
}

/**
 * Loads the matrices of some of the heads, with their adapters. Newer GGUF files hold those of
 * keys, transposed, and those of values in separate tensors.
 */
function loadHeadMatrices(
  weights: WeightLoader,
  nHeads: number,
  heads: Span,
  dims: LatentDims,
): HeadMatrices {
  const { toLatent, toValues } = loadStoredMatrices(weights, nHeads, heads, dims);
  const adapters = weights.adaptersOfHeads(KEYS_AND_VALUES, { nHeads, ...dims });
  if (adapters === undefined) return { toLatent, toValues };
  return {
    toLatent: { ...toLatent, adapters: adapters.keys },
    toValues: { ...toValues, adapters: adapters.values },
  };
}

const KEYS_AND_VALUES: TensorName = ["self_attn.kv_b_proj", "attn_kv_b"];

function loadStoredMatrices(
  weights: WeightLoader,
  nHeads: number,
  heads: Span,
  dims: LatentDims,
): HeadMatrices {
  const { rank, plain, value } = dims;
  const [firstHead, count] = heads;
  if (weights.isGguf && !weights.has(KEYS_AND_VALUES)) {
    const keys = weights.tensor([undefined, "attn_k_b"], "weight", [nHeads, rank, plain]);
    const values = weights.tensor([undefined, "attn_v_b"], "weight", [nHeads, value, rank]);
    const rowsOfHeads = (tensor: TensorInfo, size: number, cols: number) =>
      weights.mapSlices([{ tensor, firstRow: firstHead * size, nRows: count * size }], cols);
    return { toLatent: rowsOfHeads(keys, rank, plain), toValues: rowsOfHeads(values, value, rank) };
  }
  const step = plain + value;
  const tensor = weights.tensor(KEYS_AND_VALUES, "weight", [nHeads * step, rank]);
  const values = Array.from({ length: count }, (_, head) => {
    return { tensor, firstRow: (firstHead + head) * step + plain, nRows: value };
  });
  return {
    toLatent: transposedKeys(weights, tensor, heads, dims),
    toValues: weights.mapSlices(values, rank),
  };
}

/** Transposes the matrices of keys in a tensor with `(plain | value)` rows for each head. */
function transposedKeys(
  weights: WeightLoader,
  tensor: TensorInfo,
  [firstHead, nHeads]: Span,
  { rank, plain, value }: LatentDims,
): Weight {
  const slices = Array.from({ length: nHeads }, (_, head) => {
    return { tensor, firstRow: (firstHead + head) * (plain + value), nRows: plain };
  });
  const stored = weights.mapSlices(slices, rank);
  const { type, encode } = FLOATS[tensor.type] ?? AS_F16;
  return weights.upload(type, nHeads * rank, plain, [], () => {
    const transposed = new Float32Array(nHeads * rank * plain);
    for (let head = 0; head < nHeads; head++) {
      const rows = weights.backend.readWeight(stored, head * plain, plain);
      for (let i = 0; i < plain; i++) {
        for (let j = 0; j < rank; j++) {
          transposed[(head * rank + j) * plain + i] = rows[i * rank + j]!;
        }
      }
    }
    return encode(transposed);
  });
}

/** A type of floats, and an encoder of numbers that the type can represent. */
interface FloatEncoding {
  readonly type: TensorType;
  readonly encode: (values: Float32Array<ArrayBuffer>) => Uint8Array<ArrayBuffer>;
}

const AS_F16: FloatEncoding = {
  type: "F16",
  encode: (values) => new Uint8Array(new Float16Array(values).buffer),
};

/**
 * Types of the transposed weights by their stored type. Quantised weights, whose blocks run along
 * rows, become F16.
 */
const FLOATS: Partial<Record<TensorType, FloatEncoding>> = {
  F32: { type: "F32", encode: (values) => new Uint8Array(values.buffer) },
  BF16: {
    type: "BF16",
    encode: (values) => {
      const upper = Uint16Array.from(new Uint32Array(values.buffer), (bits) => bits >>> 16);
      return new Uint8Array(upper.buffer);
    },
  },
};
