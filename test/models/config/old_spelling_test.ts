/**
 * Older spellings of config.json, as in most files on the hub, must give the same model as the
 * spelling of `tiny`.
 */
import { assert, assertEquals } from "@std/assert";
import { load } from "../../../src/mod.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { writeRandomLlama } from "../../support/tiny_llama.ts";
import { sharedAvailable, sharedPath } from "../../support/shared.ts";
import { readJson, type Reference, relativeError } from "../reference_check.ts";
import { type Config, rewritten, TinyVariant } from "../tiny_variant.ts";

const ignore = !sharedAvailable("models", "tiny");

/** Returns the logits of a tiny model with a changed config.json. */
async function logitsWith(
  family: string,
  change: (config: Config) => Config = (config) => config,
): Promise<Float32Array> {
  using variant = new TinyVariant(family, change);
  await using model = await load(variant.folder, { device: "reference" });
  const { prompt_ids } = readJson<Reference>(
    sharedPath("models", "tiny", family, "reference.json"),
  );
  return await model.logits(Int32Array.from(prompt_ids));
}

interface Spelling {
  readonly family: string;
  readonly without: readonly string[];
  readonly added: Config;
  /** A change that must affect the logits, to prove that the added settings are read. */
  readonly different: Config;
}

const SPELLINGS: readonly Spelling[] = [
  {
    family: "llama",
    without: ["rope_parameters", "head_dim"],
    added: {
      rope_theta: 500000,
      rope_scaling: {
        rope_type: "llama3",
        factor: 8,
        low_freq_factor: 1,
        high_freq_factor: 4,
        original_max_position_embeddings: 32,
      },
    },
    different: { rope_scaling: null },
  },
  {
    family: "gemma3_text",
    without: ["rope_parameters", "layer_types", "_sliding_window_pattern"],
    added: {
      rope_theta: 1000000,
      rope_local_base_freq: 10000,
      rope_scaling: { rope_type: "linear", factor: 8 },
      sliding_window_pattern: 6,
    },
    different: { rope_local_base_freq: 20000 },
  },
  {
    family: "gemma3_text",
    without: ["rope_parameters", "layer_types", "_sliding_window_pattern", "hidden_activation"],
    added: { rope_scaling: { rope_type: "linear", factor: 8 } },
    different: { sliding_window_pattern: 2 },
  },
  {
    family: "gemma2",
    without: ["rope_parameters", "layer_types"],
    added: { rope_theta: 10000 },
    different: { sliding_window: 4 },
  },
  {
    family: "phi3",
    without: ["rope_parameters"],
    added: { rope_theta: 10000, rope_scaling: null, partial_rotary_factor: 0.5 },
    different: { partial_rotary_factor: 0.25 },
  },
  {
    family: "glm4",
    without: ["rope_parameters"],
    added: { rope_theta: 10000 },
    different: { rope_theta: 20000 },
  },
  {
    family: "olmo3",
    without: ["rope_parameters", "layer_types"],
    added: { rope_theta: 500000 },
    different: { rope_theta: 10000 },
  },
  {
    family: "smollm3",
    without: ["rope_parameters", "no_rope_layers", "layer_types"],
    added: { rope_theta: 5000000, no_rope_layer_interval: 4 },
    different: { no_rope_layer_interval: 2 },
  },
  {
    family: "qwen3_moe",
    without: ["rope_parameters", "num_local_experts"],
    added: { rope_theta: 1000000, num_experts: 8 },
    different: { norm_topk_prob: false },
  },
];

SPELLINGS.forEach(({ family, without, added, different }, index) => {
  Deno.test({
    name: `tiny ${family} is the same in an older spelling (${index + 1})`,
    ignore,
    fn: async () => {
      const newer = await logitsWith(family);
      const older = await logitsWith(family, (config) => rewritten(config, without, added));
      assertEquals(older, newer);
      const other = await logitsWith(
        family,
        (config) => rewritten(config, without, { ...added, ...different }),
      );
      const error = relativeError(other, newer);
      assert(error > 1e-3, `${JSON.stringify(different)} changed the logits by ${error}`);
    },
  });
});

Deno.test("a tied folder may hold either the output matrix or the embedding", async () => {
  using folder = new TempFolder();
  const logitsOf = async (name: string, kept: string) => {
    const { folder: path } = writeRandomLlama(folder.at(name), {
      config: { tie_word_embeddings: true },
      change: (tensors) =>
        tensors.filter(({ name }) => name !== "lm_head.weight").map((tensor) => ({
          ...tensor,
          name: tensor.name === "model.embed_tokens.weight" ? kept : tensor.name,
        })),
    });
    await using model = await load(path, { device: "reference" });
    return await model.logits(Int32Array.of(3, 1, 4));
  };
  const expected = await logitsOf("embedding", "model.embed_tokens.weight");
  assertEquals(await logitsOf("output", "lm_head.weight"), expected);
});
