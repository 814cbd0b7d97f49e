/** Qwen1.5-MoE and Qwen2-MoE: Qwen2 with experts beside a gated MLP. A. Yang et al., arXiv:2407.10671. */
import { loadAttention, loadGatedMlp, loadRmsNorm } from "./blocks.ts";
import type { Family } from "./causal_lm.ts";
import { INPUT_NORM, loadDecoder, loadRope, MLP_NORM, preNormLayer } from "./decoder.ts";
import { decoderConfig } from "./decoder_config.ts";
import { loadSharedMoe } from "./moe.ts";
import { qwenWindows } from "./qwen2.ts";
import { sharedExpertParts } from "./qwen3_5.ts";
import { isDenseLayer } from "./qwen3_moe.ts";

export const qwen2Moe: Family = {
  huggingFace: ["qwen2_moe"],
  gguf: ["qwen2moe"],
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    const rope = loadRope(source, c, { layout: "half" });
    const windows = qwenWindows(config, c);
    const isDense = isDenseLayer(config);
    const normalize = config.boolean(["norm_topk_prob", undefined], false);
    return loadDecoder(source, c, {
      layer: (weights, i) =>
        preNormLayer({
          attentionNorm: loadRmsNorm(weights, c, INPUT_NORM),
          attention: loadAttention(weights, c, i, { rope, bias: "required", window: windows[i] }),
          mlpNorm: loadRmsNorm(weights, c, MLP_NORM),
          mlp: isDense(i)
            ? loadGatedMlp(weights, c)
            : loadSharedMoe(weights, c, { ...sharedExpertParts(config), normalize }),
        }),
    });
  },
};
