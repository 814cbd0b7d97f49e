/** OLMoE: experts in every layer, q and k normalised over all heads. N. Muennighoff et al., arXiv:2409.02060. */
import type { Recorder, Value } from "../../backend.ts";
import { loadAttention, loadRmsNorm } from "../parts/blocks.ts";
import type { Family } from "../causal_lm.ts";
import { INPUT_NORM, loadDecoder, loadRope, MLP_NORM, preNormLayer } from "../parts/decoder.ts";
import type { Key } from "../config/config_reader.ts";
import { type DecoderConfig, decoderConfig } from "../config/decoder_config.ts";
import { loadMoe } from "../parts/moe.ts";
import type { WeightLoader } from "../weights/weight_loader.ts";

/** RMSNorm over all heads of q, and of k, then a limit on these and on values. */
function loadLimitedHeads(
  weights: WeightLoader,
  { nHeads, nKvHeads, headDim, normEps: eps }: DecoderConfig,
  limit: number,
) {
  const qSize = nHeads * headDim, kvSize = nKvHeads * headDim;
  const qNorm = weights.vector(["self_attn.q_norm", "attn_q_norm"], qSize);
  const kNorm = weights.vector(["self_attn.k_norm", "attn_k_norm"], kvSize);
  return (recorder: Recorder, qkv: Value): Value => {
    const q = recorder.gatherColumns([{ value: qkv, width: qSize }], 1);
    const k = recorder.gatherColumns([{ value: qkv, width: kvSize, first: qSize }], 1);
    const normed = recorder.gatherColumns([
      { value: recorder.rmsNorm(q, qNorm, { eps }), width: qSize },
      { value: recorder.rmsNorm(k, kNorm, { eps }), width: kvSize },
      { value: qkv, width: kvSize, first: qSize + kvSize },
    ], 1);
    return recorder.clamp(normed, limit);
  };
}

const EXPERT = "mlp.experts.{}";

export const olmoe: Family = {
  huggingFace: ["olmoe"],
  gguf: ["olmoe"],
  load(source) {
    const { config } = source;
    const clip: Key = ["clip_qkv", "attention.clamp_kqv"];
    const limit = (config.raw(clip) ?? 0) === 0 ? undefined : config.positive(clip);
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
          attention: loadAttention(
            weights,
            c,
            i,
            limit === undefined
              ? { rope, qkNorm: "all" }
              : { rope, changeHeads: loadLimitedHeads(weights, c, limit) },
          ),
          mlpNorm: loadRmsNorm(weights, c, MLP_NORM),
          mlp: loadMoe(weights, c, experts),
        }),
    });
  },
};
