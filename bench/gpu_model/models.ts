/** Models and workloads whose speed the model predicts. */
import type { ConfigSpec } from "../../src/bench/synthetic/checkpoint.ts";
import {
  CONFIGS,
  type ModelShape,
  SHAPES,
  type SyntheticType,
} from "../../src/bench/synthetic/shapes.ts";
import type { SyntheticSpec } from "../../src/bench/synthetic/spec.ts";
import type { JsonObject } from "../../src/formats/json.ts";

/** Types of weights, in the order of the report. */
export const TYPES: readonly SyntheticType[] = ["BF16", "Q8_0", "Q4_0", "Q4_K"];

/** A model of the report. */
export interface ModelledModel {
  /** As in the report: 1B, 8B or 30B-A3B. */
  readonly name: string;
  /** Settings as in config.json. */
  readonly config: JsonObject;
  readonly nLayers: number;
}

function llamaConfig(shape: ModelShape): JsonObject {
  return {
    model_type: "llama",
    hidden_size: shape.hiddenSize,
    intermediate_size: shape.intermediateSize,
    num_hidden_layers: shape.nLayers,
    num_attention_heads: shape.nHeads,
    num_key_value_heads: shape.nKvHeads,
    head_dim: shape.headDim,
    vocab_size: shape.vocabSize,
    max_position_embeddings: shape.contextLength,
    rms_norm_eps: 1e-5,
    rope_theta: shape.ropeTheta,
    tie_word_embeddings: shape.tied,
  };
}

function modelled(name: string, config: JsonObject): ModelledModel {
  return { name, config, nLayers: Number(config.num_hidden_layers) };
}

/** Returns a llama of any shape. */
export function modelledLlama(name: string, shape: ModelShape): ModelledModel {
  return modelled(name, llamaConfig(shape));
}

export const MODELS: readonly ModelledModel[] = [
  modelledLlama("1B", SHAPES["llama-3.2-1b"]!),
  modelledLlama("8B", SHAPES["llama-3.1-8b"]!),
  modelled("30B-A3B", CONFIGS["qwen3-30b-a3b"]!),
];

/** Returns the model of a synthetic one. */
export function modelOf(spec: SyntheticSpec): ModelledModel {
  return modelled(spec.name, "shape" in spec ? llamaConfig(spec.shape) : spec.config);
}

/** Positions of any modelled step. */
const CONTEXT = 1 << 18;

/** Returns a model's configuration with another number of layers. */
export function withLayers(
  { name, config }: ModelledModel,
  type: SyntheticType,
  nLayers: number,
): ConfigSpec {
  const changed = { num_hidden_layers: nLayers, max_position_embeddings: CONTEXT };
  return { name: `${name}:${type}`, type, config: { ...config, ...changed } };
}

/** A step of a model. */
export interface Step {
  /** Sequences computed together. */
  readonly batch: number;
  /** Tokens per sequence in this step: 1 to decode. */
  readonly tokens: number;
  /** Positions of each sequence before the step. */
  readonly depth: number;
}

/** Positions in the cache while decoding, as in the check on a GPU (bench/gpu/decode.ts). */
const DEPTH = 512;

/** Steps that decode, and a prompt. */
export const STEPS: readonly Step[] = [
  ...[1, 8, 16, 32, 128].map((batch) => ({ batch, tokens: 1, depth: DEPTH })),
  ...[8192, 32768, 131072].map((depth) => ({ batch: 1, tokens: 1, depth: depth - 1 })),
  { batch: 1, tokens: 4096, depth: 0 },
];
