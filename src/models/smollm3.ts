/** SmolLM3: Llama in which every fourth layer has no positions (NoPE, arXiv:2501.18795). */
import { loadAttention, loadGatedMlp, loadRmsNorm } from "./blocks.ts";
import type { Family } from "./causal_lm.ts";
import type { ConfigReader, Key } from "./config_reader.ts";
import { INPUT_NORM, loadDecoder, loadRope, MLP_NORM, preNormLayer } from "./decoder.ts";
import { decoderConfig, slidingWindows } from "./decoder_config.ts";

export const smollm3: Family = {
  huggingFace: ["smollm3"],
  gguf: ["smollm3"],
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    const rope = loadRope(source, c, {
      layout: config.isGguf ? "interleaved" : "half",
      defaultTheta: 2_000_000,
    });
    const rotates = rotatedLayers(config, c.nLayers);
    const windows = smolWindows(config, rotates);
    return loadDecoder(source, c, {
      head: { tiedByDefault: true },
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

/** Which layers rotate queries and keys: those of a list, or all but every so many. */
export function rotatedLayers(config: ConfigReader, nLayers: number): boolean[] {
  const key: Key = ["no_rope_layers", undefined];
  // Despite its name, 1 in this list means that the layer rotates.
  const listed = config.perLayer(key, nLayers);
  const interval = config.int(["no_rope_layer_interval", undefined], { fallback: 4 });
  return Array.from(
    { length: nLayers },
    (_, i) => listed === undefined ? (i + 1) % interval !== 0 : Boolean(listed[i]),
  );
}

/** `use_sliding_window` gives the layers without positions a window, unless `layer_types` says which. */
function smolWindows(
  config: ConfigReader,
  rotates: readonly boolean[],
): readonly (number | undefined)[] {
  if (!config.boolean(["use_sliding_window", undefined], false)) return [];
  const windows = slidingWindows(config, rotates.length, undefined);
  if (config.raw(["layer_types", undefined]) !== undefined) return windows;
  return windows.map((window, i) => rotates[i] ? undefined : window);
}
