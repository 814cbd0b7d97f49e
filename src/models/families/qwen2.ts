/**
 * Qwen2 and Qwen2.5, and what reads text in their multimodal kin: Llama with biases on q, k and v. A. Yang et
 * al., arXiv:2407.10671.
 */
import { loadAttention, loadGatedMlp, loadRmsNorm } from "../parts/blocks.ts";
import type { Family } from "../causal_lm.ts";
import type { ConfigReader } from "../config/config_reader.ts";
import { INPUT_NORM, loadDecoder, loadRope, MLP_NORM, preNormLayer } from "../parts/decoder.ts";
import { type DecoderConfig, decoderConfig, slidingWindows } from "../config/decoder_config.ts";

export const qwen2: Family = {
  huggingFace: ["qwen2", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"],
  gguf: ["qwen2", "qwen2vl"],
  load(source) {
    const c = decoderConfig(source.config);
    const rope = loadRope(source, c, { layout: "half" });
    const windows = qwenWindows(source.config, c);
    return loadDecoder(source, c, {
      layer: (weights, i) =>
        preNormLayer({
          attentionNorm: loadRmsNorm(weights, c, INPUT_NORM),
          attention: loadAttention(weights, c, i, { rope, bias: "required", window: windows[i] }),
          mlpNorm: loadRmsNorm(weights, c, MLP_NORM),
          mlp: loadGatedMlp(weights, c),
        }),
    });
  },
};

/**
 * The windows of Qwen2 and Qwen3 configs: `use_sliding_window` turns them on for the layers from
 * `max_window_layers` up, unless `layer_types` says which.
 */
export function qwenWindows(config: ConfigReader, c: DecoderConfig): (number | undefined)[] {
  if (!config.boolean(["use_sliding_window", undefined], false)) {
    return Array.from({ length: c.nLayers }, () => undefined);
  }
  const windows = slidingWindows(config, c.nLayers, undefined);
  if (config.raw(["layer_types", undefined]) !== undefined) return windows;
  const first = config.int(["max_window_layers", undefined], { min: 0, fallback: 28 });
  return windows.map((window, i) => i >= first ? window : undefined);
}
