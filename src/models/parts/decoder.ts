/** How a decoder's layers are arranged around the residual stream, and the whole they form. */
import type { RopeLayout, Value } from "../../backend.ts";
import { type Block, kvShape, loadRmsNorm, type NormOptions } from "./blocks.ts";
import {
  type CausalLm,
  ForwardPass,
  type LayerKvShape,
  type ModelSource,
  type StateMatrix,
} from "../causal_lm.ts";
import type { DecoderConfig } from "../config/decoder_config.ts";
import { type HeadParts, loadEmbedding, loadHead } from "./embedding.ts";
import { readRope, type Rope } from "./rope.ts";
import type { RopeLayers } from "../config/rope_parameters.ts";
import type { TensorName, WeightLoader } from "../weights/weight_loader.ts";

/** Records one layer: hidden states in, hidden states out. */
export type Layer = (pass: ForwardPass, h: Value) => Value;

/** The norm before attention and the one before the MLP, under their usual names. */
export const INPUT_NORM: TensorName = ["input_layernorm", "attn_norm"];
export const MLP_NORM: TensorName = ["post_attention_layernorm", "ffn_norm"];
export const FINAL_NORM: TensorName = ["norm", "output_norm"];

/** Each part reads the normalised stream and adds to it (GPT-2, Llama and most since). */
export function preNormLayer(parts: {
  attentionNorm: Block;
  attention: Block;
  mlpNorm: Block;
  mlp: Block;
}): Layer {
  return (pass, h) => {
    h = parts.attention(pass, parts.attentionNorm(pass, h), h);
    return parts.mlp(pass, parts.mlpNorm(pass, h), h);
  };
}

/** Each part reads the stream as it is; what it adds is normalised (OLMo 2). */
export function postNormLayer(parts: {
  attention: Block;
  postAttentionNorm: Block;
  mlp: Block;
  postMlpNorm: Block;
}): Layer {
  return (pass, h) => {
    h = parts.postAttentionNorm(pass, parts.attention(pass, h), h);
    return parts.postMlpNorm(pass, parts.mlp(pass, h), h);
  };
}

/** Each part is normalised on both sides (Gemma 2 and 3, GLM-4). */
export function sandwichNormLayer(parts: {
  attentionNorm: Block;
  attention: Block;
  postAttentionNorm: Block;
  mlpNorm: Block;
  mlp: Block;
  postMlpNorm: Block;
}): Layer {
  return (pass, h) => {
    const mixed = parts.attention(pass, parts.attentionNorm(pass, h));
    h = parts.postAttentionNorm(pass, mixed, h);
    const fed = parts.mlp(pass, parts.mlpNorm(pass, h));
    return parts.postMlpNorm(pass, fed, h);
  };
}

/** Attention and MLP read the same normalised stream, and both add to it (GPT-J, Command R). */
export function parallelLayer(parts: { norm: Block; attention: Block; mlp: Block }): Layer {
  return (pass, h) => {
    const normed = parts.norm(pass, h);
    return parts.mlp(pass, normed, parts.attention(pass, normed, h));
  };
}

/** What a decoder is made of. */
export interface DecoderParts {
  /** Loads layer `index`. */
  readonly layer: (weights: WeightLoader, index: number) => Layer;
  /** Multiplies the embeddings. @default 1 */
  readonly embeddingScale?: number | undefined;
  /** Records what layers need beside the hidden states, given the first of these. */
  readonly begin?: ((pass: ForwardPass, h: Value) => void) | undefined;
  /** The norm before the output matrix. @default RMSNorm under its usual name */
  readonly finalNorm?: Block | undefined;
  readonly norm?: NormOptions | undefined;
  readonly head?: HeadParts | undefined;
  /** @default one for each layer */
  readonly kvLayers?: readonly LayerKvShape[] | undefined;
  /** @default none */
  readonly stateLayers?: readonly StateMatrix[] | undefined;
}

/** Loads embedding, layers and head, and joins them. */
export function loadDecoder(source: ModelSource, c: DecoderConfig, parts: DecoderParts): CausalLm {
  const { weights } = source;
  const embedding = loadEmbedding(source, c);
  const layers = Array.from(
    { length: c.nLayers },
    (_, index) => parts.layer(weights.layer(index), index),
  );
  const finalNorm = parts.finalNorm ?? loadRmsNorm(weights, c, FINAL_NORM, parts.norm);
  const head = loadHead(source, c, embedding, parts.head);
  const hidden = (pass: ForwardPass): Value => {
    const { recorder } = pass;
    let h = recorder.embed(embedding.weight, parts.embeddingScale);
    parts.begin?.(pass, h);
    for (const layer of layers) h = layer(pass, h);
    return finalNorm(pass, recorder.gatherOutputs(h));
  };

  return {
    vocabSize: embedding.vocabSize,
    hiddenSize: c.hiddenSize,
    hasHead: head.isThere,
    contextLength: c.contextLength,
    kvLayers: parts.kvLayers ?? layers.map(() => kvShape(c)),
    stateLayers: parts.stateLayers ?? [],
    forward(recorder, kv, states) {
      const pass = new ForwardPass(recorder, kv, states, weights);
      return head.logits(pass, hidden(pass));
    },
    hidden: (recorder, kv, states) => hidden(new ForwardPass(recorder, kv, states, weights)),
  };
}

/** The rotation of a model's layers. */
export function loadRope(
  source: ModelSource,
  c: DecoderConfig,
  request: RopeLayers & { readonly layout: RopeLayout; readonly hasDivisors?: boolean },
): Rope {
  const { config, weights, sessionLength } = source;
  return readRope(config, {
    ...request,
    headDim: c.headDim,
    contextLength: c.contextLength,
    sessionLength: Math.min(sessionLength ?? c.contextLength, c.contextLength),
    divisors: request.hasDivisors === false ? {} : {
      always: weights.optionalNumbers([undefined, "rope_freqs"]),
      short: weights.optionalNumbers([undefined, "rope_factors_short"]),
      long: weights.optionalNumbers([undefined, "rope_factors_long"]),
    },
  });
}
