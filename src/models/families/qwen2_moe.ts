/** Qwen1.5-MoE and Qwen2-MoE: Qwen2 with experts beside a gated MLP. A. Yang et al., arXiv:2407.10671. */
import { biasRule, loadAttention, loadGatedMlp, loadRmsNorm } from "../parts/blocks.ts";
import type { Family } from "../causal_lm.ts";
import type { ConfigReader } from "../config/config_reader.ts";
import { INPUT_NORM, loadDecoder, loadRope, MLP_NORM, preNormLayer } from "../parts/decoder.ts";
import { decoderConfig, slidingWindows } from "../config/decoder_config.ts";
import { loadSharedMoe } from "../parts/moe.ts";
import { sharedExpertParts } from "./qwen3_5.ts";
import { isDenseLayer } from "./qwen3_moe.ts";

export const qwen2Moe: Family = {
  huggingFace: ["qwen2_moe"],
  gguf: ["qwen2moe"],
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    const rope = loadRope(source, c, { layout: "half" });
    const windows = alternateWindows(config, c.nLayers);
    const bias = biasRule(config, "qkv_bias", true);
    const isDense = isDenseLayer(config);
    const normalize = config.boolean(["norm_topk_prob", undefined], false);
    return loadDecoder(source, c, {
      layer: (weights, i) =>
        preNormLayer({
          attentionNorm: loadRmsNorm(weights, c, INPUT_NORM),
          attention: loadAttention(weights, c, i, { rope, bias, window: windows[i] }),
          mlpNorm: loadRmsNorm(weights, c, MLP_NORM),
          mlp: isDense(i)
            ? loadGatedMlp(weights, c)
            : loadSharedMoe(weights, c, { ...sharedExpertParts(config), normalize }),
        }),
    });
  },
};

/** `use_sliding_window` gives every other layer below `max_window_layers` a window, unless `layer_types` says which. */
function alternateWindows(config: ConfigReader, nLayers: number): (number | undefined)[] {
  const none = Array.from({ length: nLayers }, () => undefined);
  if (!config.boolean(["use_sliding_window", undefined], false)) return none;
  const windows = slidingWindows(config, nLayers, 2);
  if (config.raw(["layer_types", undefined]) !== undefined) return windows;
  const end = config.int(["max_window_layers", undefined], { min: 0 });
  return windows.map((window, i) => i < end ? window : undefined);
}
