/**
 * Multi-head latent attention: keys and values are made of one short vector a token, queries of
 * another, and all heads share the part of a key that is rotated. DeepSeek-AI, arXiv:2405.04434.
 *
 * Keys and values are never made. What would make a head's keys of latent vectors is applied to its
 * query instead, and what would make its values to the mean of latent vectors that attention gives,
 * so that all heads share one key, `(latent | rotated)`, whose first part is their value too, and
 * nothing else is kept.
 */
import type { Recorder, Value, Weight } from "../../backend.ts";
import type { Block } from "./blocks.ts";
import type { TensorInfo, TensorType } from "../../formats/tensor_info.ts";
import type { LayerKvShape } from "../causal_lm.ts";
import type { ConfigReader, Key } from "../config/config_reader.ts";
import type { DecoderConfig } from "../config/decoder_config.ts";
import type { Rope } from "./rope.ts";
import type { TensorName, WeightLoader } from "../weights/weight_loader.ts";

/** Widths of what latent attention is made of. */
export interface LatentDims {
  /** Of the vector that queries are made of; `undefined` where they come from the hidden state. */
  readonly queryRank: number | undefined;
  /** Of the one that keys and values are made of. */
  readonly rank: number;
  /** Of a head's key: the part that is not rotated, and the one that is. */
  readonly plain: number;
  readonly rotated: number;
  readonly value: number;
}

export function latentDims(config: ConfigReader): LatentDims {
  const queryRank: Key = ["q_lora_rank", "attention.q_lora_rank"];
  const rotated = config.int(["qk_rope_head_dim", "rope.dimension_count"]);
  // Files in which keys are not meant to be expanded have the widths of heads under names of their
  // own.
  const length = (name: string) =>
    config.raw([undefined, `${name}_mla`]) === undefined ? name : `${name}_mla`;
  const plain = config.isGguf
    ? config.int([undefined, length("attention.key_length")]) - rotated
    : config.int(["qk_nope_head_dim", undefined]);
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
 * One key for all heads, the latent vector and the rotated part, of which the former is the value.
 */
export function latentKvShape({ rank, rotated }: LatentDims): LayerKvShape {
  return { nKvHeads: 1, kHeadDim: rank + rotated, vHeadDim: rank, valuesInKeys: true };
}

export interface LatentAttentionParts {
  readonly dims: LatentDims;
  readonly rope: Rope;
  /** Factor of the scores. */
  readonly scale: number;
}

/** Latent attention of layer `index` over the KV cache. */
export function loadLatentAttention(
  weights: WeightLoader,
  c: DecoderConfig,
  index: number,
  parts: LatentAttentionParts,
): Block {
  const { nHeads, hiddenSize } = c;
  const { dims, rope, scale } = parts;
  const { rank, plain, rotated, value } = dims;
  // transformers has the norms of latent vectors at this whatever the config says.
  const eps = weights.isGguf ? c.normEps : 1e-6;
  const queries = loadQueries(weights, c, dims, eps);
  const down = weights.matrix(
    ["self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"],
    rank + rotated,
    hiddenSize,
  );
  const norm = weights.vector(["self_attn.kv_a_layernorm", "attn_kv_a_norm"], rank);
  const { toLatent, toValues } = loadHeadMatrices(weights, nHeads, dims);
  const out = weights.matrix(["self_attn.o_proj", "attn_output"], hiddenSize, nHeads * value);

  return (pass, x, residual) => {
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
    const turned = recorder.ropeAppend(qk, kv[index]!, {
      nHeads,
      eps,
      rope: pass.ropeTable(rope),
      ropeLayout: rope.layout,
    });
    const mixed = recorder.attention(turned, kv[index]!, { nHeads, scale });
    return recorder.matmul(recorder.headMatmul(mixed, toValues, nHeads), out, { residual });
  };
}

/** All heads' queries, `(plain | rotated)` a head. */
function loadQueries(weights: WeightLoader, c: DecoderConfig, dims: LatentDims, eps: number) {
  const { queryRank, plain, rotated } = dims;
  const rows = c.nHeads * (plain + rotated);
  if (queryRank === undefined) {
    const q = weights.matrix(["self_attn.q_proj", "attn_q"], rows, c.hiddenSize);
    return (recorder: Recorder, x: Value) => recorder.matmul(x, q);
  }
  const down = weights.matrix(["self_attn.q_a_proj", "attn_q_a"], queryRank, c.hiddenSize);
  const norm = weights.vector(["self_attn.q_a_layernorm", "attn_q_a_norm"], queryRank);
  const up = weights.matrix(["self_attn.q_b_proj", "attn_q_b"], rows, queryRank);
  return (recorder: Recorder, x: Value) =>
    recorder.matmul(recorder.rmsNorm(recorder.matmul(x, down), norm, { eps }), up);
}

/** A head's matrices one behind another, for {@linkcode Recorder.headMatmul}. */
interface HeadMatrices {
  /**
   * From the plain part of a query to what it is multiplied with a latent vector as, `[rank,
   * plain]` a head.
   */
  readonly toLatent: Weight;
  /** From a latent vector to a value, `[value, rank]` a head. */
  readonly toValues: Weight;
}

/** Newer GGUF files have the matrices of keys and values apart, those of keys transposed. */
function loadHeadMatrices(weights: WeightLoader, nHeads: number, dims: LatentDims): HeadMatrices {
  const { rank, plain, value } = dims;
  const both: TensorName = ["self_attn.kv_b_proj", "attn_kv_b"];
  if (weights.isGguf && !weights.has(both)) {
    const keys = weights.tensor([undefined, "attn_k_b"], "weight", [nHeads, rank, plain]);
    const values = weights.tensor([undefined, "attn_v_b"], "weight", [nHeads, value, rank]);
    return { toLatent: weights.mapWhole(keys, plain), toValues: weights.mapWhole(values, rank) };
  }
  const step = plain + value;
  const tensor = weights.tensor(both, "weight", [nHeads * step, rank]);
  const values = Array.from({ length: nHeads }, (_, head) => {
    return { tensor, firstRow: head * step + plain, nRows: value };
  });
  return {
    toLatent: transposedKeys(weights, tensor, nHeads, dims),
    toValues: weights.mapSlices(values, rank),
  };
}

/** The matrices of keys, of a tensor with `(plain | value)` rows a head, transposed. */
function transposedKeys(
  weights: WeightLoader,
  tensor: TensorInfo,
  nHeads: number,
  { rank, plain, value }: LatentDims,
): Weight {
  const stored = weights.mapWhole(tensor, rank);
  const { type, encode } = FLOATS[tensor.type] ?? AS_F16;
  return weights.upload(type, nHeads * rank, plain, [], () => {
    const transposed = new Float32Array(nHeads * rank * plain);
    for (let head = 0; head < nHeads; head++) {
      const rows = weights.backend.readWeight(stored, head * (plain + value), plain);
      for (let i = 0; i < plain; i++) {
        for (let j = 0; j < rank; j++) {
          transposed[(head * rank + j) * plain + i] = rows[i * rank + j]!;
        }
      }
    }
    return encode(transposed);
  });
}

/** A type of floats, and its bytes of numbers that it can say. */
interface FloatEncoding {
  readonly type: TensorType;
  readonly encode: (values: Float32Array<ArrayBuffer>) => Uint8Array<ArrayBuffer>;
}

const AS_F16: FloatEncoding = {
  type: "F16",
  encode: (values) => new Uint8Array(new Float16Array(values).buffer),
};

/**
 * How weights of each type are stored anew; quantised ones, whose blocks lie along rows, in F16.
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
