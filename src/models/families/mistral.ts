/**
 * Mistral 7B and its successors: Llama with an optional sliding window. In GGUF they are stored as `llama`,
 * but for Ministral 3. A. Q. Jiang et al., "Mistral 7B", arXiv:2310.06825.
 */
import { loadAttention, loadGatedMlp, loadRmsNorm } from "../parts/blocks.ts";
import type { Family } from "../causal_lm.ts";
import type { ConfigReader, Key } from "../config/config_reader.ts";
import { INPUT_NORM, loadDecoder, loadRope, MLP_NORM, preNormLayer } from "../parts/decoder.ts";
import { decoderConfig, slidingWindows } from "../config/decoder_config.ts";
import { RopeParameters } from "../config/rope_parameters.ts";

export const mistral: Family = {
  huggingFace: ["mistral", "ministral", "ministral3"],
  gguf: ["mistral3"],
  load(source) {
    const { config } = source;
    const whole = decoderConfig(config);
    const c = { ...whole, contextLength: untemperedLength(config, whole.contextLength) };
    const rope = loadRope(source, whole, { layout: config.isGguf ? "interleaved" : "half" });
    const windows = slidingWindows(config, c.nLayers, undefined);
    return loadDecoder(source, c, {
      layer: (weights, i) =>
        preNormLayer({
          attentionNorm: loadRmsNorm(weights, c, INPUT_NORM),
          attention: loadAttention(weights, c, i, { rope, window: windows[i] }),
          mlpNorm: loadRmsNorm(weights, c, MLP_NORM),
          mlp: loadGatedMlp(weights, c),
        }),
    });
  },
};

/**
 * Ministral 3 sharpens attention behind the length that YaRN starts from, more with each multiple of it.
 * Rotations here are alike for queries and keys, so that a context ends where that would begin.
 */
function untemperedLength(config: ConfigReader, contextLength: number): number {
  if (config.isGguf) {
    const key: Key = [undefined, "rope.scaling.original_context_length"];
    const beta = config.raw([undefined, "attention.temperature_scale"]) ?? 0;
    return beta === 0 ? contextLength : Math.min(contextLength, config.int(key));
  }
  if (config.modelType !== "ministral3") return contextLength;
  const p = RopeParameters.read(config, {});
  const original = p.positive("original_max_position_embeddings");
  return p.number("llama_4_scaling_beta") === 0
    ? contextLength
    : Math.max(Math.min(contextLength, Math.floor(original)), 1);
}
