/** OLMoE: experts in every layer, q and k normalised over all heads. N. Muennighoff et al., arXiv:2409.02060. */
import { loadAttention, loadRmsNorm } from "./blocks.ts";
import type { Family } from "./causal_lm.ts";
import { INPUT_NORM, loadDecoder, loadRope, MLP_NORM, preNormLayer } from "./decoder.ts";
import { decoderConfig } from "./decoder_config.ts";
import { loadMoe } from "./moe.ts";

const EXPERT = "mlp.experts.{}";

export const olmoe: Family = {
  huggingFace: ["olmoe"],
  gguf: ["olmoe"],
  load(source) {
    const { config } = source;
    const clip = ["clip_qkv", "attention.clamp_kqv"] as const;
    const limit = config.raw(clip) ?? 0;
    if (limit !== 0) throw config.unsupported(clip, limit, "no limit in this architecture");
    const c = decoderConfig(config);
    const rope = loadRope(source, c, { layout: "half" });
    const nExperts = config.int(["num_experts", "expert_count"]);
    const experts = {
      nExperts,
      topK: config.int(["num_experts_per_tok", "expert_used_count"], { max: nExperts }),
      intermediateSize: c.intermediateSize,
      normalize: config.boolean(["norm_topk_prob", undefined], false),
      names: {
        router: "mlp.gate",
        gate: `${EXPERT}.gate_proj`,
        up: `${EXPERT}.up_proj`,
        down: `${EXPERT}.down_proj`,
      },
    };
    return loadDecoder(source, c, {
      layer: (weights, i) =>
        preNormLayer({
          attentionNorm: loadRmsNorm(weights, c, INPUT_NORM),
          attention: loadAttention(weights, c, i, { rope, qkNorm: "all" }),
          mlpNorm: loadRmsNorm(weights, c, MLP_NORM),
          mlp: loadMoe(weights, c, experts),
        }),
    });
  },
};
