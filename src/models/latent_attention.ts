/**
 * Multi-head latent attention: keys and values are made of one short vector a token, queries of another, and
 * all heads share the part of a key that is rotated. Here they are made before they are kept, head by head: a
 * cache as large as that of plain attention. DeepSeek-AI, arXiv:2405.04434.
 */
import type { ColumnPiece, Recorder, Value, Weight } from "../backend.ts";
import type { Block } from "./blocks.ts";
import type { LayerKvShape } from "./causal_lm.ts";
import type { ConfigReader, Key } from "./config_reader.ts";
import type { DecoderConfig } from "./decoder_config.ts";
import type { Rope } from "./rope.ts";
import type { TensorName, WeightLoader } from "./weight_loader.ts";

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
  // Files in which keys are not meant to be expanded have the widths of heads under names of their own.
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

export function latentKvShape(c: DecoderConfig, dims: LatentDims): LayerKvShape {
  return { nKvHeads: c.nHeads, kHeadDim: dims.rotated + dims.plain, vHeadDim: dims.value };
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
  const latent = weights.matrix(
    ["self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"],
    rank + rotated,
    hiddenSize,
  );
  const latentNorm = weights.vector(["self_attn.kv_a_layernorm", "attn_kv_a_norm"], rank);
  const expand = loadExpansion(weights, c, dims);
  const out = weights.matrix(["self_attn.o_proj", "attn_output"], hiddenSize, nHeads * value);

  return (pass, x, residual) => {
    const { recorder, kv } = pass;
    const q = queries(recorder, x);
    const shared = recorder.matmul(x, latent);
    const narrow = recorder.gatherColumns([{ value: shared, width: rank }], 1);
    const { keys, values } = expand(recorder, recorder.rmsNorm(narrow, latentNorm, { eps }));
    // The rotated part of a head comes first, as rope_append wants it.
    const step = plain + rotated;
    const qHeads = recorder.gatherColumns([
      { value: q, width: rotated, first: plain, step },
      { value: q, width: plain, step },
    ], nHeads);
    const kHeads = recorder.gatherColumns(
      [{ value: shared, width: rotated, first: rank }, keys],
      nHeads,
    );
    const qkv = recorder.gatherColumns([
      { value: qHeads, width: nHeads * step },
      { value: kHeads, width: nHeads * step },
      { value: values, width: nHeads * value },
    ], 1);
    const turned = recorder.ropeAppend(qkv, kv[index]!, {
      nHeads,
      eps,
      rope: pass.ropeTable(rope),
      ropeLayout: rope.layout,
    });
    const mixed = recorder.attention(turned, kv[index]!, { nHeads, scale });
    return recorder.matmul(mixed, out, { residual });
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

/** The plain part of each head's key, and all heads' values, of a latent vector. */
type Expansion = (recorder: Recorder, latent: Value) => {
  readonly keys: ColumnPiece;
  readonly values: Value;
};

const BOTH: TensorName = ["self_attn.kv_b_proj", "attn_kv_b"];

function loadExpansion(weights: WeightLoader, c: DecoderConfig, dims: LatentDims): Expansion {
  const { nHeads } = c;
  const { rank, plain, value } = dims;
  if (weights.isGguf && !weights.has(BOTH)) return loadSplitExpansion(weights, nHeads, dims);
  const step = plain + value;
  const both = weights.matrix(BOTH, nHeads * step, rank);
  return (recorder, latent) => {
    const expanded = recorder.matmul(latent, both);
    return {
      keys: { value: expanded, width: plain, step },
      values: recorder.gatherColumns(
        [{ value: expanded, width: value, first: plain, step }],
        nHeads,
      ),
    };
  };
}

/** Newer GGUF files have keys and values apart, and the matrices of keys transposed. */
function loadSplitExpansion(weights: WeightLoader, nHeads: number, dims: LatentDims): Expansion {
  const { rank, plain, value } = dims;
  const forKeys = transposedHeads(weights, nHeads, rank, plain);
  const forValues = weights.mapWhole(
    weights.tensor([undefined, "attn_v_b"], "weight", [nHeads, value, rank]),
    rank,
  );
  return (recorder, latent) => ({
    keys: { value: recorder.matmul(latent, forKeys), width: plain, step: plain },
    values: recorder.matmul(latent, forValues),
  });
}

/** `[nHeads x plain, rank]` of a tensor `[nHeads, rank, plain]`. */
function transposedHeads(
  weights: WeightLoader,
  nHeads: number,
  rank: number,
  plain: number,
): Weight {
  const tensor = weights.tensor([undefined, "attn_k_b"], "weight", [nHeads, rank, plain]);
  const stored = weights.mapWhole(tensor, plain);
  return weights.upload("F32", nHeads * plain, rank, [], () => {
    const values = new Float32Array(nHeads * plain * rank);
    for (let head = 0; head < nHeads; head++) {
      const rows = weights.backend.readWeight(stored, head * rank, rank);
      for (let i = 0; i < rows.length; i++) {
        values[(head * plain + i % plain) * rank + Math.floor(i / plain)] = rows[i]!;
      }
    }
    return new Uint8Array(values.buffer);
  });
}
