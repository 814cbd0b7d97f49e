/** Encoders: embeddings of tokens, types and positions, and layers that normalise their results. */
import type { Value, Weight } from "../../backend.ts";
import { type CausalLm, type Classifier, ForwardPass, type ModelSource } from "../causal_lm.ts";
import type { DecoderConfig } from "../config/decoder_config.ts";
import type { TensorName, WeightLoader } from "../weights/weight_loader.ts";
import { type BiasRule, type Block, kvShape, loadLayerNorm } from "./blocks.ts";
import type { Layer, LoadBlock } from "./decoder.ts";

const WORDS: TensorName = ["embeddings.word_embeddings", "token_embd"];
const TYPES: TensorName = ["embeddings.token_type_embeddings", "token_types"];
const POSITIONS: TensorName = ["embeddings.position_embeddings", "position_embd"];
const EMBEDDING_NORM: TensorName = ["embeddings.LayerNorm", "token_embd_norm"];
const POST_ATTENTION_NORM: TensorName = ["post_attention_layernorm", "attn_output_norm"];
const POST_MLP_NORM: TensorName = ["post_mlp_layernorm", "layer_output_norm"];

/** Parts of an encoder. */
interface EncoderParts {
  /**
   * Rows of the table of positions before that of a text's first token, or "none" without a table.
   */
  readonly firstPosition: number | "none";
  readonly layer: (weights: WeightLoader, index: number) => Layer;
  /** Biases of LayerNorms. @default "required" */
  readonly normBias?: BiasRule | undefined;
  /** The norm after the last layer. @default none */
  readonly finalNorm?: TensorName | undefined;
  readonly classifier: Classifier | undefined;
}

/** Loads an encoder. Its tokens see the whole text. */
export function loadEncoder(source: ModelSource, c: DecoderConfig, parts: EncoderParts): CausalLm {
  const { weights, config } = source;
  const vocabSize = config.int(["vocab_size", undefined], {
    ...(config.isGguf ? { fallback: weights.shape(WORDS)[0] ?? 0 } : {}),
  });
  const words = weights.embedding(WORDS, vocabSize, c.hiddenSize);
  const nTypes = weights.has(TYPES) ? weights.shape(TYPES)[0] ?? 0 : 0;
  const types = nTypes > 0 ? weights.matrix(TYPES, nTypes, c.hiddenSize) : undefined;
  const { firstPosition } = parts;
  const positions = firstPosition === "none" ? undefined : loadPositions(weights, c, firstPosition);
  const norm = { bias: parts.normBias };
  const embeddingNorm = loadLayerNorm(weights, c, EMBEDDING_NORM, norm);
  const layers = Array.from(
    { length: c.nLayers },
    (_, index) => parts.layer(weights.layer(index), index),
  );
  const finalNorm: Block = parts.finalNorm === undefined
    ? (_pass, h) => h
    : loadLayerNorm(weights, c, parts.finalNorm, norm);
  return {
    vocabSize,
    hiddenSize: c.hiddenSize,
    hasHead: false,
    isBidirectional: true,
    hasTokenTypes: nTypes > 1,
    classifier: parts.classifier,
    contextLength: Math.min(c.contextLength, positions?.rows ?? Infinity),
    kvLayers: layers.map(() => kvShape(c)),
    stateLayers: [],
    hidden(recorder, kv, states): Value {
      const pass = new ForwardPass(recorder, kv, states, weights);
      let h = recorder.embed(words);
      if (types !== undefined) h = recorder.addEmbedding(h, types, vocabSize);
      if (positions !== undefined) h = recorder.addEmbedding(h, positions);
      h = embeddingNorm(pass, h);
      for (const layer of layers) h = layer(pass, h);
      return finalNorm(pass, recorder.gatherOutputs(h));
    },
  };
}

/** Loads the embeddings of the positions of a text. llama.cpp's converter drops the rows before. */
function loadPositions(weights: WeightLoader, c: DecoderConfig, first: number): Weight {
  const [rows = 0] = weights.shape(POSITIONS);
  const tensor = weights.tensor(POSITIONS, "weight", [rows, c.hiddenSize]);
  return weights.mapSlices(
    [{ tensor, firstRow: first, nRows: Math.min(c.contextLength, rows - first) }],
    c.hiddenSize,
  );
}

/** Loads a layer that normalises the stream after each block is added to it (BERT). */
export function loadPostNormLayer(
  weights: WeightLoader,
  c: DecoderConfig,
  index: number,
  parts: { readonly attention: LoadBlock; readonly mlp: LoadBlock },
): Layer {
  const attention = parts.attention(weights, index);
  const normAfterAttention = loadLayerNorm(weights, c, POST_ATTENTION_NORM);
  const mlp = parts.mlp(weights, index);
  const normAfterMlp = loadLayerNorm(weights, c, POST_MLP_NORM);
  return (pass, h) => {
    h = normAfterAttention(pass, attention(pass, h, h));
    return normAfterMlp(pass, mlp(pass, h, h));
  };
}
