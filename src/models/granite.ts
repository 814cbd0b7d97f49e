/**
 * IBM Granite 3: Llama with multipliers on embeddings, attention, residuals and logits, in some sizes with
 * experts.
 */
import { biasRule, loadAttention, loadGatedMlp, loadRmsNorm } from "./blocks.ts";
import type { Family } from "./causal_lm.ts";
import { INPUT_NORM, loadDecoder, loadRope, MLP_NORM, preNormLayer } from "./decoder.ts";
import type { ConfigReader } from "./config_reader.ts";
import { type DecoderConfig, decoderConfig } from "./decoder_config.ts";
import { loadMoe, type MoeParts } from "./moe.ts";

export const granite: Family = {
  huggingFace: ["granite", "granitemoe"],
  gguf: ["granite", "granitemoe"],
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    const rope = loadRope(source, c, { layout: config.isGguf ? "interleaved" : "half" });
    const outputScale = config.number(["residual_multiplier", "residual_scale"], 1);
    const bias = biasRule(config, "attention_bias", false);
    const attention = {
      rope,
      scale: config.positive(["attention_multiplier", "attention.scale"], c.headDim ** -0.5),
      bias,
      outputBias: bias,
      outputScale,
    };
    const experts = config.modelType === "granitemoe"
      ? expertParts(config, c, outputScale)
      : undefined;
    return loadDecoder(source, c, {
      embeddingScale: config.number(["embedding_multiplier", "embedding_scale"], 1),
      head: { scale: 1 / config.positive(["logits_scaling", "logit_scale"], 1) },
      layer: (weights, i) =>
        preNormLayer({
          attentionNorm: loadRmsNorm(weights, c, INPUT_NORM),
          attention: loadAttention(weights, c, i, attention),
          mlpNorm: loadRmsNorm(weights, c, MLP_NORM),
          mlp: experts === undefined
            ? loadGatedMlp(weights, c, { outputScale })
            : loadMoe(weights, c, experts),
        }),
    });
  },
};

function expertParts(config: ConfigReader, c: DecoderConfig, scale: number): MoeParts {
  const nExperts = config.int(["num_local_experts", "expert_count"]);
  return {
    nExperts,
    topK: config.int(["num_experts_per_tok", "expert_used_count"], { max: nExperts }),
    intermediateSize: c.intermediateSize,
    normalize: true,
    scale,
    names: {
      router: "block_sparse_moe.router.layer",
      gateUp: "block_sparse_moe.input_linear.weight",
      down: "block_sparse_moe.output_linear.weight",
    },
  };
}
