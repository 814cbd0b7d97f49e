/**
 * The text part of a multimodal model gives the logits of the text model: tiny models, wrapped as
 * transformers and the hub store them.
 */
import { assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { modelFacts } from "../../../src/cli/model/model_facts.ts";
import { ForgeError, load, openCheckpoint } from "../../../src/mod.ts";
import { sharedAvailable, sharedPath } from "../../support/shared.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { assertMatchesReference, readJson, type Reference } from "../reference_check.ts";
import { type Config, rewritten } from "../tiny_variant.ts";

interface Wrapper {
  readonly family: string;
  /** `model_type` and other settings of the whole model. */
  readonly whole: Config;
  /** Replacement of `model.`, and prefix of `lm_head`. */
  readonly prefixes: readonly [decoder: string, head: string];
  /** Settings that the text part omits because they have their defaults. */
  readonly without?: readonly string[];
  /** Settings of the text part that `family` lacks. */
  readonly with?: Config;
  /** `model_type` of the text part. @default `family` */
  readonly modelType?: string;
}

const WRAPPERS: readonly Wrapper[] = [
  {
    family: "gemma3_text",
    whole: { model_type: "gemma3", eos_token_id: [1, 106] },
    prefixes: ["language_model.model.", "language_model."],
    without: ["eos_token_id", "tie_word_embeddings", "rms_norm_eps"],
  },
  {
    family: "mistral",
    whole: { model_type: "mistral3", tie_word_embeddings: true },
    prefixes: ["model.language_model.", ""],
    without: ["tie_word_embeddings"],
  },
  {
    family: "mistral",
    modelType: "ministral3",
    with: {
      rope_parameters: {
        rope_type: "default",
        rope_theta: 10000,
        llama_4_scaling_beta: 0,
        original_max_position_embeddings: 256,
      },
    },
    whole: { model_type: "mistral3" },
    prefixes: ["language_model.model.", "language_model."],
  },
  {
    family: "qwen3",
    modelType: "qwen3_vl_text",
    whole: { model_type: "qwen3_vl" },
    prefixes: ["model.language_model.", ""],
  },
];

const ignore = !sharedAvailable("models", "tiny");

/** Writes a folder with the tiny model as the text part of another model. */
function wrap(wrapper: Wrapper): TempFolder {
  const { family, whole, prefixes, without = [], with: added, modelType } = wrapper;
  const from = (name: string) => sharedPath("models", "tiny", family, name);
  const folder = new TempFolder();
  const renamed = { ...added, ...(modelType === undefined ? {} : { model_type: modelType }) };
  const text = rewritten(readJson<Config>(from("config.json")), without, renamed);
  folder.write("config.json", { ...whole, vision_config: { depth: 1 }, text_config: text });
  for (const name of ["tokenizer.json", "tokenizer_config.json"]) {
    Deno.symlinkSync(from(name), folder.at(name));
  }
  folder.write(
    "model.safetensors",
    withPrefixes(Deno.readFileSync(from("model.safetensors")), prefixes),
  );
  return folder;
}

/** Renames the tensors and adds one of a vision part. */
function withPrefixes(file: Uint8Array<ArrayBuffer>, [decoder, head]: Wrapper["prefixes"]) {
  const size = Number(new DataView(file.buffer).getBigUint64(0, true));
  const header: Record<string, { data_offsets: number[]; dtype: string; shape: number[] }> = JSON
    .parse(new TextDecoder().decode(file.subarray(8, 8 + size)));
  const entries = Object.entries(header).filter(([name]) => name !== "__metadata__")
    .map(([name, tensor]) => {
      const other = name.startsWith("model.") ? decoder + name.slice(6) : head + name;
      return [other, tensor] as const;
    });
  const end = file.length - 8 - size;
  const seen = { dtype: "F32", shape: [1], data_offsets: [end, end + 4] };
  const renamed = JSON.stringify({
    ...Object.fromEntries(entries),
    "vision_tower.layers.0.norm.weight": seen,
  });
  const text = new TextEncoder().encode(renamed.padEnd(Math.ceil(renamed.length / 8) * 8));
  const bytes = new Uint8Array(8 + text.length + end + 4);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(text.length), true);
  bytes.set(text, 8);
  bytes.set(file.subarray(8 + size), 8 + text.length);
  return bytes;
}

for (const wrapper of WRAPPERS) {
  const { family, whole, modelType = family } = wrapper;
  Deno.test({
    name: `tiny ${family} as the ${modelType} part of a ${whole.model_type} computes the same`,
    ignore,
    fn: async () => {
      using folder = wrap(wrapper);
      const reference = readJson<Reference>(
        sharedPath("models", "tiny", family, "reference.json"),
      );
      await assertMatchesReference(folder.path, { device: "reference" }, reference, {
        logits: 1e-4,
        logLikelihood: 2e-4,
      });
      const facts = modelFacts(openCheckpoint(folder.path));
      assertEquals(facts.multimodal, whole.model_type);
      assertEquals([facts.problem, facts.unused_tensors], [null, []]);
    },
  });
}

Deno.test({
  name: "a multimodal model with an unknown text part is rejected by that part's name",
  ignore,
  fn: async () => {
    using folder = wrap({ ...WRAPPERS[0]!, modelType: "t5" });
    const error = await assertRejects(() => load(folder.path), ForgeError);
    assertStringIncludes(error.message, `has the architecture "t5", which forge does not support`);
  },
});
