/**
 * Compares every supported family with transformers in float32, from a Hugging Face folder and from
 * the GGUF file that llama.cpp's converter wrote.
 */
import type { LoadOptions } from "../../../src/mod.ts";
import { sharedAvailable, sharedPath } from "../../support/shared.ts";
import { assertMatchesReference, readJson, type Reference } from "../reference_check.ts";

const FAMILIES = [
  "cohere2",
  "deepseek_v2",
  "exaone4",
  "gemma",
  "gemma2",
  "gemma2_std",
  "gemma3_std",
  "gemma3_text",
  "gemma4_text",
  "glm4",
  "gpt_oss",
  "granite",
  "llama",
  "mistral",
  "mistral_std",
  "mixtral",
  "olmo2",
  "olmo3",
  "phi3",
  "qwen2",
  "qwen3",
  "qwen3_5_text",
  "qwen3_moe",
  "seed_oss",
  "smollm3",
  "starcoder2",
];

/** Families whose features GGUF or llama.cpp's converter cannot express. */
const WITHOUT_GGUF = [
  "cohere2",
  "deepseek_v2",
  "exaone4",
  "gemma2",
  "gemma3_text",
  "gemma4_text",
  "gpt_oss",
  "mistral",
  "phi3",
  "qwen3_5_text",
];

const DEVICES: readonly { options: LoadOptions; folder: number; gguf: number }[] = [
  { options: { device: "reference" }, folder: 1e-4, gguf: 5e-3 },
  { options: { device: "cpu", kvType: "F32" }, folder: 1e-3, gguf: 5e-3 },
  { options: { device: "cpu" }, folder: 5e-3, gguf: 5e-3 },
];

const ignore = !sharedAvailable("models", "tiny");

function testFile(family: string, file: string, options: LoadOptions, tolerance: number): void {
  const cache = options.kvType === undefined ? "" : ` with an ${options.kvType} cache`;
  Deno.test({
    name: `tiny ${family}${file === "" ? "" : " (GGUF)"} agrees on ${options.device}${cache}`,
    ignore,
    fn: async () => {
      const folder = sharedPath("models", "tiny", family);
      const reference = readJson<Reference>(sharedPath("models", "tiny", family, "reference.json"));
      await assertMatchesReference(`${folder}/${file}`, options, reference, {
        logits: tolerance,
        logLikelihood: 2 * tolerance,
      });
    },
  });
}

for (const { options, folder, gguf } of DEVICES) {
  for (const family of FAMILIES) {
    testFile(family, "", options, folder);
    if (!WITHOUT_GGUF.includes(family)) testFile(family, `${family}-f32.gguf`, options, gguf);
  }
}
