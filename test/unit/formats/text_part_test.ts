import { assertEquals } from "@std/assert";
import type { TensorInfo } from "../../../src/formats/tensor_info.ts";
import { textPart } from "../../../src/formats/text_part.ts";

function tensors(names: readonly string[]): Map<string, TensorInfo> {
  const info = (name: string): TensorInfo => {
    return { name, type: "F32", shape: [2], file: "model.safetensors", offset: 0, bytes: 8 };
  };
  return new Map(names.map((name) => [name, info(name)]));
}

const DECODER = ["embed_tokens.weight", "layers.0.mlp.up_proj.weight", "norm.weight"];
const TEXT = { model_type: "gemma3_text", hidden_size: 8, num_attention_heads: 2 };

/** Names by which the text model's tensors are found, and what they are called in the file. */
function found(config: Parameters<typeof textPart>[1], names: readonly string[]) {
  const part = textPart("outer", config, tensors(names));
  return [...part.tensors].map(([name, tensor]) => [name, tensor.name]);
}

Deno.test("the text model's tensors are found behind every prefix, and no others", () => {
  const prefixes = [
    ["model.language_model.", "", "model.visual."],
    ["language_model.model.", "language_model.", "vision_tower."],
    ["model.text_model.", "", "model.vision_model."],
    ["model.", "", "visual."],
    ["model.", "", "model.vision_tower."],
  ] as const;
  for (const [decoder, head, other] of prefixes) {
    const stored = DECODER.map((name) => decoder + name);
    const output = `${head}lm_head.weight`;
    assertEquals(
      found({ text_config: TEXT }, [...stored, output, `${other}layers.0.mlp.up_proj.weight`]),
      [
        ...DECODER.map((name) => [`model.${name}`, decoder + name]),
        ["lm_head.weight", output],
      ],
    );
  }
});

Deno.test("a bare decoder is one of a model of text", () => {
  assertEquals(
    found({}, [...DECODER, "lm_head.weight"]),
    [...DECODER.map((name) => [`model.${name}`, name]), ["lm_head.weight", "lm_head.weight"]],
  );
});

Deno.test("a model of text alone is left as it is", () => {
  const config = { model_type: "llama", text_config: null };
  const files = tensors(["model.embed_tokens.weight", "model.visual_norm.weight"]);
  const part = textPart("llama", config, files);
  assertEquals(part, { modelType: "llama", config, tensors: files, multimodal: undefined });
});

Deno.test("settings come from the text model, then from its family, and few from the whole", () => {
  const whole = { eos_token_id: [1, 106], hidden_size: 99, quantization_config: { a: 1 } };
  const text = { ...TEXT, head_dim: null, rms_norm_eps: 1e-5 };
  const part = textPart("gemma3", { ...whole, text_config: text }, tensors([]));
  assertEquals([part.modelType, part.multimodal], ["gemma3_text", "gemma3"]);
  const { config } = part;
  assertEquals([config.hidden_size, config.rms_norm_eps, config.head_dim], [8, 1e-5, null]);
  assertEquals([config.num_key_value_heads, config.vocab_size], [4, 262_208]);
  assertEquals([config.eos_token_id, config.quantization_config], [[1, 106], { a: 1 }]);
});

Deno.test("settings beside those of what sees are a text model's, too", () => {
  const config = { model_type: "qwen2_vl", hidden_size: 8, vision_config: { depth: 1 } };
  const names = ["model.embed_tokens.weight", "visual.norm.weight"];
  const part = textPart("qwen2_vl", config, tensors(names));
  assertEquals([part.modelType, part.multimodal], ["qwen2_vl", "qwen2_vl"]);
  assertEquals([...part.tensors.keys()], ["model.embed_tokens.weight"]);
});

Deno.test("an output matrix that is there is used, whatever the settings say", () => {
  const isTied = (outer: boolean | undefined, inner: boolean | undefined, names: string[]) => {
    const own = inner === undefined ? {} : { tie_word_embeddings: inner };
    const all = outer === undefined ? {} : { tie_word_embeddings: outer };
    const config = { ...all, text_config: { ...TEXT, ...own } };
    return textPart("gemma3", config, tensors(names)).config.tie_word_embeddings;
  };
  const embedding = "language_model.model.embed_tokens.weight";
  const head = "language_model.lm_head.weight";
  assertEquals(isTied(true, undefined, [embedding, head]), false);
  assertEquals(isTied(undefined, true, [embedding, head]), false);
  assertEquals(isTied(undefined, undefined, [embedding]), true);
  assertEquals(isTied(false, undefined, [embedding]), false);
  assertEquals(isTied(true, false, [embedding]), false);
});
