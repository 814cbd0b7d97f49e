/**
 * Command R and its successors: LayerNorm without a bias, attention and MLP in parallel, scaled
 * logits. Cohere 2 (Command R7B, Command A) has a sliding window in three of four layers; the
 * fourth has full attention without positions. Cohere, arXiv:2504.00698.
 */
import type { Recorder, Value } from "../../backend.ts";
import type { Family } from "../causal_lm.ts";
import type { Key } from "../config/config_reader.ts";
import { type DecoderConfig, decoderConfig, slidingWindows } from "../config/decoder_config.ts";
import { biasRule, type Block, loadAttention, loadGatedMlp } from "../parts/blocks.ts";
import { loadRope, parallelDecoder } from "../parts/decoder.ts";
import type { TensorName, WeightLoader } from "../weights/weight_loader.ts";

const LOGIT_SCALE: Key = ["logit_scale", "logit_scale"];

export const cohere: Family = {
  huggingFace: ["cohere", "cohere2"],
  gguf: ["command-r", "cohere2"],
  writes: { cohere: { architecture: "command-r" }, cohere2: { architecture: "cohere2" } },
  load(source) {
    const { config } = source;
    const c = decoderConfig(config, {
      normEps: ["layer_norm_eps", "attention.layer_norm_epsilon"],
    });
    const rope = loadRope(source, c, { layout: "interleaved" });
    const isHybrid = config.modelType === "cohere2";
    const windows = isHybrid ? slidingWindows(config, c.nLayers, 4) : [];
    const bias = biasRule(config, "attention_bias");
    const hasNorms = config.isGguf
      ? source.weights.layer(0).has(Q_NORM)
      : config.boolean(["use_qk_norm", undefined], false);
    const normHeads = hasNorms ? headLayerNorms(source.weights, c) : undefined;
    return parallelDecoder(source, c, {
      loadNorm: loadLayerNorm,
      head: { scale: config.positive(LOGIT_SCALE, 0.0625) },
      attention: (weights, i) => {
        const window = windows[i];
        return loadAttention(weights, c, i, {
          rope: isHybrid && window === undefined ? undefined : rope,
          window,
          changeHeads: normHeads?.(weights),
          bias,
          outputBias: bias,
        });
      },
      mlp: (weights) => loadGatedMlp(weights, c),
    });
  },
};

const Q_NORM: TensorName = ["self_attn.q_norm", "attn_q_norm"];
const K_NORM: TensorName = ["self_attn.k_norm", "attn_k_norm"];

/**
 * LayerNorm of each head of q and k, each with its own weights (Command R+): a product that
 * subtracts the mean, RMSNorm without weights, and a product with the weights on a diagonal.
 */
function headLayerNorms(all: WeightLoader, { nHeads, nKvHeads, headDim, normEps }: DecoderConfig) {
  const nNormed = nHeads + nKvHeads, width = nNormed * headDim;
  const blocks = (value: (row: number, col: number) => number) => {
    const data = Float32Array.from({ length: width * headDim }, (_, i) => {
      return value(Math.floor(i / headDim), i % headDim);
    });
    return all.backend.uploadWeight("F32", width, headDim, new Uint8Array(data.buffer));
  };
  const centering = blocks((row, col) => Number(row % headDim === col) - 1 / headDim);
  const ones = all.uploadVector(new Float32Array(headDim).fill(1));

  return (weights: WeightLoader) => {
    const numbers = (name: TensorName, heads: number) => {
      const stored = weights.mapWhole(weights.tensor(name, "weight", [heads, headDim]), headDim);
      return weights.backend.readWeight(stored, 0, heads);
    };
    const own = [...numbers(Q_NORM, nHeads), ...numbers(K_NORM, nKvHeads)];
    const scaling = blocks((row, col) => row % headDim === col ? own[row]! : 0);
    return (recorder: Recorder, qkv: Value): Value => {
      const qk = recorder.gatherColumns([{ value: qkv, width }], 1);
      const centered = recorder.headMatmul(qk, centering, nNormed);
      const normed = recorder.rmsNorm(centered, ones, { eps: normEps });
      return recorder.gatherColumns([
        { value: recorder.headMatmul(normed, scaling, nNormed), width },
        { value: qkv, width: nKvHeads * headDim, first: width },
      ], 1);
    };
  };
}

function loadLayerNorm(weights: WeightLoader, c: DecoderConfig, name: TensorName): Block {
  const weight = weights.vector(name, c.hiddenSize);
  return ({ recorder }, x) => recorder.layerNorm(x, weight, undefined, c.normEps);
}
