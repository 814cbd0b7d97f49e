/** SmolLM3: Llama in which every fourth layer has no positions (NoPE, arXiv:2501.18795). */
import { loadAttention, loadGatedMlp, loadRmsNorm } from "../parts/blocks.ts";
import type { Family } from "../causal_lm.ts";
import type { ConfigReader, Key } from "../config/config_reader.ts";
import { INPUT_NORM, loadDecoder, loadRope, MLP_NORM, preNormLayer } from "../parts/decoder.ts";
import { decoderConfig, slidingWindows } from "../config/decoder_config.ts";

export const smollm3: Family = {
  huggingFace: ["smollm3"],
  gguf: ["smollm3"],
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    const rope = loadRope(source, c, {
      layout: config.isGguf ? "interleaved" : "half",
    });
    const rotates = rotatedLayers(config, c.nLayers);
    const windows = smolWindows(config, rotates);
    return loadDecoder(source, c, {
      layer: (weights, i) =>
        preNormLayer({
          attentionNorm: loadRmsNorm(weights, c, INPUT_NORM),
          attention: loadAttention(weights, c, i, {
            rope: rotates[i] ? rope : undefined,
            window: windows[i],
          }),
          mlpNorm: loadRmsNorm(weights, c, MLP_NORM),
          mlp: loadGatedMlp(weights, c),
        }),
    });
  },
};

/** The layers that rotate queries and keys: those of a list, or all but every so many. */
export function rotatedLayers(config: ConfigReader, nLayers: number): boolean[] {
  const key: Key = ["no_rope_layers", undefined];
  const named = config.raw(key);
  const isEmpty = Array.isArray(named) && named.length === 0;
  // Despite its name, 1 in this list means that the layer rotates.
  const listed = isEmpty ? undefined : config.perLayer(key, nLayers);
  const interval = config.int(["no_rope_layer_interval", undefined], { fallback: 4 });
  return Array.from(
    { length: nLayers },
    (_, i) => listed === undefined ? (i + 1) % interval !== 0 : Boolean(listed[i]),
  );
}

/** Windows of the layers that `layer_types` names, else with `use_sliding_window` of those without positions. */
function smolWindows(
  config: ConfigReader,
  rotates: readonly boolean[],
): readonly (number | undefined)[] {
  const hasTypes = config.raw(["layer_types", undefined]) !== undefined;
  if (!hasTypes && !config.boolean(["use_sliding_window", undefined], false)) return [];
  const windows = slidingWindows(config, rotates.length, undefined);
  return windows.map((window, i) => rotates[i] && !hasTypes ? undefined : window);
}
