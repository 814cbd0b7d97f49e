/** ERNIE 4.5 (dense): Llama that rotates neighbouring pairs. Baidu, ERNIE 4.5 Technical Report, 2025. */
import { loadAttention, loadGatedMlp, loadRmsNorm } from "./blocks.ts";
import type { Family } from "./causal_lm.ts";
import { INPUT_NORM, loadDecoder, loadRope, MLP_NORM, preNormLayer } from "./decoder.ts";
import { decoderConfig } from "./decoder_config.ts";

export const ernie4_5: Family = {
  huggingFace: ["ernie4_5"],
  gguf: ["ernie4_5"],
  load(source) {
    const { config } = source;
    const bias = ["use_bias", undefined] as const;
    if (config.boolean(bias, false)) {
      throw config.unsupported(bias, true, "false in this architecture");
    }
    const c = decoderConfig(config);
    const rope = loadRope(source, c, { layout: "interleaved", defaultTheta: 500_000 });
    return loadDecoder(source, c, {
      head: { tiedByDefault: true },
      layer: (weights, i) =>
        preNormLayer({
          attentionNorm: loadRmsNorm(weights, c, INPUT_NORM),
          attention: loadAttention(weights, c, i, { rope }),
          mlpNorm: loadRmsNorm(weights, c, MLP_NORM),
          mlp: loadGatedMlp(weights, c),
        }),
    });
  },
};
