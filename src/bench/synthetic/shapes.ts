/** Shapes of well-known models, and the types of their random weights. */
import { TENSOR_TYPES, type TensorType } from "../../formats/tensor_info.ts";
import type { JsonObject } from "../../formats/json.ts";

/** The sizes of a decoder-only transformer. */
export interface ModelShape {
  /** `general.architecture` of GGUF. */
  readonly architecture: "llama" | "qwen3";
  readonly nLayers: number;
  readonly hiddenSize: number;
  readonly intermediateSize: number;
  readonly nHeads: number;
  readonly nKvHeads: number;
  readonly headDim: number;
  readonly vocabSize: number;
  readonly contextLength: number;
  readonly ropeTheta: number;
  /** True if the embedding is also the output matrix. */
  readonly tied: boolean;
}

function llama(
  [nLayers, hiddenSize, intermediateSize]: readonly [number, number, number],
  [nHeads, nKvHeads, headDim]: readonly [number, number, number],
  rest: Pick<ModelShape, "vocabSize" | "contextLength" | "ropeTheta" | "tied">,
): ModelShape {
  const sizes = { nLayers, hiddenSize, intermediateSize, nHeads, nKvHeads, headDim };
  return { architecture: "llama", ...sizes, ...rest };
}

const SMOLLM2 = { vocabSize: 49152, contextLength: 8192, ropeTheta: 100000, tied: true };
const LLAMA3 = { vocabSize: 128256, contextLength: 131072, ropeTheta: 500000 };
const QWEN3 = { vocabSize: 151936, contextLength: 40960, ropeTheta: 1000000 };

function qwen3(
  sizes: readonly [number, number, number],
  heads: readonly [number, number, number],
  tied: boolean,
): ModelShape {
  return { ...llama(sizes, heads, { ...QWEN3, tied }), architecture: "qwen3" };
}

/** Shapes by name: `[layers, hidden, intermediate]`, `[heads, kv heads, head_dim]`. */
export const SHAPES: Readonly<Record<string, ModelShape>> = {
  "smollm2-135m": llama([30, 576, 1536], [9, 3, 64], SMOLLM2),
  "smollm2-360m": llama([32, 960, 2560], [15, 5, 64], SMOLLM2),
  "smollm2-1.7b": llama([24, 2048, 8192], [32, 32, 64], { ...SMOLLM2, ropeTheta: 130000 }),
  "tinyllama-1.1b": llama([22, 2048, 5632], [32, 4, 64], {
    vocabSize: 32000,
    contextLength: 2048,
    ropeTheta: 10000,
    tied: false,
  }),
  "llama-3.2-1b": llama([16, 2048, 8192], [32, 8, 64], { ...LLAMA3, tied: true }),
  "llama-3.2-3b": llama([28, 3072, 8192], [24, 8, 128], { ...LLAMA3, tied: true }),
  "llama-3.1-8b": llama([32, 4096, 14336], [32, 8, 128], { ...LLAMA3, tied: false }),
  "mistral-7b": llama([32, 4096, 14336], [32, 8, 128], {
    vocabSize: 32768,
    contextLength: 32768,
    ropeTheta: 1000000,
    tied: false,
  }),
  "qwen3-0.6b": qwen3([28, 1024, 3072], [16, 8, 128], true),
  "qwen3-1.7b": qwen3([28, 2048, 6144], [16, 8, 128], true),
  "qwen3-4b": qwen3([36, 2560, 9728], [32, 8, 128], true),
  "qwen3-8b": qwen3([36, 4096, 12288], [32, 8, 128], false),
};

/** Weight types of synthetic models: those that a device can quantize to. */
export const SYNTHETIC_TYPES = [
  "F32",
  "F16",
  "BF16",
  "Q8_0",
  "Q6_K",
  "Q5_1",
  "Q5_0",
  "Q4_K",
  "Q4_1",
  "Q4_0",
] as const satisfies readonly TensorType[];

/** One of {@linkcode SYNTHETIC_TYPES}. */
export type SyntheticType = (typeof SYNTHETIC_TYPES)[number];

/** Type of a name without a type. */
export const DEFAULT_TYPE: SyntheticType = "Q4_0";

/** A synthetic model with a named shape, and the type of its matrices. */
export interface ShapeSpec {
  /** As a user writes it, such as `llama-3.2-1b:Q4_0`. */
  readonly name: string;
  readonly shape: ModelShape;
  readonly type: SyntheticType;
  /** True to add a layer for multi-token prediction. @default false */
  readonly hasPredictor?: boolean | undefined;
}

/**
 * Returns the type of an output matrix: Q6_K in most files of 4 and 5 bits, or Q8_0 if it does not
 * fit.
 */
export function outputType(type: SyntheticType, cols: number): SyntheticType {
  if (!/^Q[45]/.test(type)) return type;
  return cols % TENSOR_TYPES.Q6_K.blockElements === 0 ? "Q6_K" : "Q8_0";
}

/** True if the rows of every matrix are whole numbers of blocks. */
export function fitsShape(type: TensorType, shape: ModelShape): boolean {
  const { blockElements } = TENSOR_TYPES[type];
  const rows = [shape.hiddenSize, shape.intermediateSize, shape.nHeads * shape.headDim];
  return rows.every((cols) => cols % blockElements === 0);
}

/** By names of `--synthetic`, as in config.json on the hub. */
export const CONFIGS: Readonly<Record<string, JsonObject>> = {
  "gemma-3-1b": {
    model_type: "gemma3_text",
    num_hidden_layers: 26,
    hidden_size: 1152,
    intermediate_size: 6912,
    num_attention_heads: 4,
    num_key_value_heads: 1,
    head_dim: 256,
    vocab_size: 262144,
    max_position_embeddings: 32768,
    rms_norm_eps: 1e-6,
    hidden_activation: "gelu_pytorch_tanh",
    query_pre_attn_scalar: 256,
    sliding_window: 512,
    sliding_window_pattern: 6,
    rope_theta: 1000000,
    rope_local_base_freq: 10000,
    tie_word_embeddings: true,
  },
  "qwen3-30b-a3b": {
    model_type: "qwen3_moe",
    num_hidden_layers: 48,
    hidden_size: 2048,
    intermediate_size: 6144,
    moe_intermediate_size: 768,
    num_experts: 128,
    num_experts_per_tok: 8,
    norm_topk_prob: true,
    num_attention_heads: 32,
    num_key_value_heads: 4,
    head_dim: 128,
    vocab_size: 151936,
    max_position_embeddings: 40960,
    rms_norm_eps: 1e-6,
    rope_theta: 1000000,
    tie_word_embeddings: false,
  },
  "mixtral-8x7b": {
    model_type: "mixtral",
    num_hidden_layers: 32,
    hidden_size: 4096,
    intermediate_size: 14336,
    num_local_experts: 8,
    num_experts_per_tok: 2,
    num_attention_heads: 32,
    num_key_value_heads: 8,
    vocab_size: 32000,
    max_position_embeddings: 32768,
    rms_norm_eps: 1e-5,
    rope_theta: 1000000,
    tie_word_embeddings: false,
  },
};

/** All names of `--synthetic`. */
export const SYNTHETIC_NAMES: readonly string[] = [...Object.keys(SHAPES), ...Object.keys(CONFIGS)];
