/** OLMo 2 and 3, and OLMoE: q and k are normalised over all heads at once. */
import type { Recorder, Value } from "../../backend.ts";
import type { Family } from "../causal_lm.ts";
import type { Key } from "../config/config_reader.ts";
import {
  type DecoderConfig,
  decoderConfig,
  noteWindows,
  slidingWindows,
} from "../config/decoder_config.ts";
import { loadAttention, loadGatedMlp } from "../parts/blocks.ts";
import { loadRope, postNormDecoder, preNormDecoder } from "../parts/decoder.ts";
import { loadMoe, MLP_EXPERTS, readExpertCounts } from "../parts/moe.ts";
import type { WeightLoader } from "../weights/weight_loader.ts";

/**
 * OLMo 2 and OLMo 3: norms after each block. OLMo 3 adds a sliding window, without RoPE scaling, to
 * three of four layers; GGUF stores it as `olmo2`. Team OLMo, arXiv:2501.00656.
 */
export const olmo2: Family = {
  huggingFace: ["olmo2", "olmo3"],
  gguf: ["olmo2"],
  writes: { olmo2: { architecture: "olmo2" }, olmo3: { architecture: "olmo2" } },
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    const mayHaveWindows = config.modelType === "olmo3" || config.isGguf;
    const windows = mayHaveWindows ? slidingWindows(config, c.nLayers, 4) : [];
    noteWindows(config, windows);
    const ropeOf = (layerType: "full_attention" | "sliding_attention") =>
      loadRope(source, c, { layout: "half", layerType: mayHaveWindows ? layerType : undefined });
    const global = ropeOf("full_attention");
    const local = ropeOf("sliding_attention");
    return postNormDecoder(source, c, {
      attention: (weights, i) => {
        const window = windows[i];
        const rope = window === undefined ? global : local;
        return loadAttention(weights, c, i, { rope, window, qkNorm: "all" });
      },
      mlp: (weights) => loadGatedMlp(weights, c),
    });
  },
};

/**
 * OLMoE: experts in every layer, and in some models a limit on q, k and v. N. Muennighoff et al.,
 * arXiv:2409.02060.
 */
export const olmoe: Family = {
  huggingFace: ["olmoe"],
  gguf: ["olmoe"],
  writes: { olmoe: { architecture: "olmoe" } },
  load(source) {
    const { config } = source;
    const clip: Key = ["clip_qkv", "attention.clamp_kqv"];
    const limit = (config.raw(clip) ?? 0) === 0 ? undefined : config.positive(clip);
    const c = decoderConfig(config);
    const rope = loadRope(source, c, { layout: "half" });
    const experts = {
      ...readExpertCounts(config, ["num_experts", "expert_count"]),
      intermediateSize: c.intermediateSize,
      normalize: config.boolean(["norm_topk_prob", undefined], false),
      names: MLP_EXPERTS,
    };
    return preNormDecoder(source, c, {
      attention: (weights, i) =>
        loadAttention(
          weights,
          c,
          i,
          limit === undefined
            ? { rope, qkNorm: "all" }
            : { rope, changeHeads: loadClippedHeads(weights, c, limit) },
        ),
      mlp: (weights) => loadMoe(weights, c, experts),
    });
  },
};

/** Records RMSNorm over all heads of q and of k, then clamps q, k and v to `-limit` to `limit`. */
function loadClippedHeads(
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
