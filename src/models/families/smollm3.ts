/** SmolLM3: Llama in which every fourth layer has no positions (NoPE, arXiv:2501.18795). */
import type { Family } from "../causal_lm.ts";
import type { ConfigReader } from "../config/config_reader.ts";
import { decoderConfig, rotatedLayers, slidingWindows } from "../config/decoder_config.ts";
import { loadAttention, loadGatedMlp } from "../parts/blocks.ts";
import { llamaRopeLayout, loadRope, preNormDecoder } from "../parts/decoder.ts";

export const smollm3: Family = {
  huggingFace: ["smollm3"],
  gguf: ["smollm3"],
  writes: { smollm3: { architecture: "smollm3", reordersHeads: true } },
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    const rope = loadRope(source, c, { layout: llamaRopeLayout(config) });
    const rotates = rotatedLayers(config, c.nLayers);
    const windows = optionalWindows(config, rotates);
    return preNormDecoder(source, c, {
      attention: (weights, i) =>
        loadAttention(weights, c, i, {
          rope: rotates[i] ? rope : undefined,
          window: windows[i],
        }),
      mlp: (weights) => loadGatedMlp(weights, c),
    });
  },
};

/**
 * Returns the window of each layer. `layer_types` names the layers that have one; without such a
 * list `use_sliding_window` gives one to the layers without positions.
 */
function optionalWindows(
  config: ConfigReader,
  rotates: readonly boolean[],
): readonly (number | undefined)[] {
  const hasTypes = config.raw(["layer_types", undefined]) !== undefined;
  if (!hasTypes && !config.boolean(["use_sliding_window", undefined], false)) return [];
  const windows = slidingWindows(config, rotates.length, undefined);
  return windows.map((window, i) => rotates[i] && !hasTypes ? undefined : window);
}
