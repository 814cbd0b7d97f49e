/** Qwen3: Llama with RMSNorm on each head of q and k. A. Yang et al., arXiv:2505.09388. */
import { biasRule, loadAttention, loadGatedMlp, loadRmsNorm } from "../parts/blocks.ts";
import type { Family } from "../causal_lm.ts";
import { INPUT_NORM, loadDecoder, loadRope, MLP_NORM, preNormLayer } from "../parts/decoder.ts";
import { decoderConfig } from "../config/decoder_config.ts";
import { qwenWindows } from "./qwen2.ts";

export const qwen3: Family = {
  huggingFace: ["qwen3", "qwen3_vl_text"],
  gguf: ["qwen3", "qwen3vl"],
  load(source) {
    const c = decoderConfig(source.config);
    const rope = loadRope(source, c, { layout: "half" });
    const windows = qwenWindows(source.config, c);
    const bias = biasRule(source.config, "attention_bias", false);
    return loadDecoder(source, c, {
      layer: (weights, i) =>
        preNormLayer({
          attentionNorm: loadRmsNorm(weights, c, INPUT_NORM),
          attention: loadAttention(weights, c, i, {
            rope,
            qkNorm: "head",
            window: windows[i],
            bias,
            outputBias: bias,
          }),
          mlpNorm: loadRmsNorm(weights, c, MLP_NORM),
          mlp: loadGatedMlp(weights, c),
        }),
    });
  },
};
