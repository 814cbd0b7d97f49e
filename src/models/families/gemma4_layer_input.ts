/**
 * Gemma 4's embeddings for each layer: what a token is, and what its first hidden state says, as a few numbers
 * for every layer, which each lets in by a gate.
 */
import { type Block, loadRmsNorm } from "../parts/blocks.ts";
import type { ForwardPass, ModelSource } from "../causal_lm.ts";
import type { ConfigReader } from "../config/config_reader.ts";
import type { DecoderConfig } from "../config/decoder_config.ts";
import type { Value } from "../../backend.ts";
import type { TensorName, WeightLoader } from "../weights/weight_loader.ts";

const EMBEDDING: TensorName = ["embed_tokens_per_layer", "per_layer_token_embd"];
const PROJECTION: TensorName = ["per_layer_model_projection", "per_layer_model_proj"];
const PROJECTION_NORM: TensorName = ["per_layer_projection_norm", "per_layer_proj_norm"];
const GATE: TensorName = ["per_layer_input_gate", "inp_gate"];
const LAYER_PROJECTION: TensorName = ["per_layer_projection", "proj"];
const POST_NORM: TensorName = ["post_per_layer_input_norm", "post_norm"];

/** The name under which a pass keeps the numbers of all layers. */
const KEPT = "layer inputs";

/** Numbers a layer; 0 where a model has none. */
function inputSize(config: ConfigReader): number {
  return config.int(["hidden_size_per_layer_input", "embedding_length_per_layer_input"], {
    min: 0,
    fallback: config.isGguf ? 0 : 256,
  });
}

/** Records the numbers of all layers, given the first hidden states; `undefined` where there are none. */
export function loadLayerInputs(source: ModelSource, c: DecoderConfig) {
  const { config, weights } = source;
  const size = inputSize(config);
  if (size === 0) return undefined;
  const all = c.nLayers * size;
  const vocabulary = weights.isGguf
    ? weights.shape(EMBEDDING)[0] ?? 0
    : config.int(["vocab_size_per_layer_input", undefined]);
  const embedding = weights.matrix(EMBEDDING, vocabulary, all);
  const projection = weights.matrix(PROJECTION, all, c.hiddenSize);
  const norm = weights.vector(PROJECTION_NORM, size);
  return ({ recorder, kept }: ForwardPass, h: Value) => {
    const projected = recorder.matmul(h, projection, { alpha: 1 / Math.sqrt(c.hiddenSize) });
    const residual = recorder.embed(embedding, Math.sqrt(size));
    kept.set(KEPT, recorder.rmsNorm(projected, norm, { eps: c.normEps, residual }));
  };
}

/** Lets layer `index`'s numbers into its hidden states. */
export function loadLayerInput(
  config: ConfigReader,
  weights: WeightLoader,
  c: DecoderConfig,
  index: number,
): Block | undefined {
  const size = inputSize(config);
  if (size === 0) return undefined;
  const gate = weights.matrix(GATE, size, c.hiddenSize);
  const projection = weights.matrix(LAYER_PROJECTION, c.hiddenSize, size);
  const postNorm = loadRmsNorm(weights, c, POST_NORM);
  return (pass, h) => {
    const { recorder, kept } = pass;
    const gated = recorder.gatherColumns([
      { value: recorder.matmul(h, gate), width: size },
      // Two terms of equal size were added.
      { value: kept.get(KEPT)!, first: index * size, width: size, scale: Math.SQRT1_2 },
    ], 1);
    const added = recorder.matmul(recorder.glu(gated, size, c.activation), projection);
    return postNorm(pass, added, h);
  };
}
