import { assert, assertEquals } from "@std/assert";
import { textModelNames, textPart } from "../../../src/formats/text_part.ts";

const DECODER = ["embed_tokens.weight", "layers.0.mlp.up_proj.weight", "norm.weight"];
const TEXT = { model_type: "gemma3_text", hidden_size: 8, num_attention_heads: 2 };

/** Names of the text model's tensors, and their names in the file. */
function found(config: Parameters<typeof textPart>[1], names: readonly string[]) {
  const { nameOf } = textPart("outer", config, names);
  return names.map((name) => [nameOf(name), name]).filter(([name]) => name !== undefined);
}

Deno.test("the text model's tensors are found under every prefix, and no others", () => {
  const prefixes = [
    ["model.language_model.", "", "model.visual."],
    ["language_model.model.", "language_model.", "vision_tower."],
    ["language_model.model.model.", "language_model.", "audio_tower."],
    ["model.language_model.model.", "model.language_model.", "model.visual."],
    ["language_model.", "", "vision_tower."],
    ["model.text_model.", "", "model.vision_model."],
    ["model.", "", "visual."],
    ["model.", "", "model.vision_tower."],
    ["model.", "", "model.visual."],
    ["model.", "", "model.audio_tower."],
    ["model.", "", "model.image_newline."],
    ["model.", "", "model.speech_encoder."],
    ["model.", "", "model.multi_modal_projector."],
    ["model.", "", "model.mm_projector."],
    ["model.", "", "model.embed_vision."],
    ["model.", "", "model.embed_audio."],
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

Deno.test("the parts of packed matrices keep their endings, those of the output matrix too", () => {
  const names = [
    "language_model.model.embed_tokens.weight",
    "language_model.model.layers.0.mlp.up_proj.qweight",
    "language_model.lm_head.qweight",
    "language_model.lm_head.scales",
  ];
  assertEquals(
    found({ text_config: TEXT }, names).map(([name]) => name),
    [
      "model.embed_tokens.weight",
      "model.layers.0.mlp.up_proj.qweight",
      "lm_head.qweight",
      "lm_head.scales",
    ],
  );
  const { config } = textPart("gemma3", { text_config: TEXT }, names);
  assertEquals(config.tie_word_embeddings, false);
});

Deno.test("layers for multi-token prediction keep their names outside of the text part", () => {
  const embedding = "model.language_model.embed_tokens.weight";
  const names = found({ text_config: TEXT }, [embedding, "mtp.fc.weight"]);
  assertEquals(names[1], ["mtp.fc.weight", "mtp.fc.weight"]);
});

Deno.test("a decoder whose layers have a mixer has the names of other decoders", () => {
  const names = {
    "backbone.embeddings.weight": "model.embed_tokens.weight",
    "backbone.layers.0.mixer.in_proj.weight": "model.layers.0.mamba.in_proj.weight",
    "backbone.layers.1.mixer.o_proj.weight": "model.layers.1.self_attn.o_proj.weight",
    "backbone.layers.2.mixer.up_proj.weight": "model.layers.2.mlp.up_proj.weight",
    "backbone.norm_f.weight": "model.norm.weight",
    "lm_head.weight": "lm_head.weight",
  };
  assertEquals(
    found({}, Object.keys(names)),
    Object.entries(names).map(([stored, name]) => [name, stored]),
  );
});

Deno.test("a head outside of an encoder keeps its name", () => {
  const names = [
    "bert.embeddings.word_embeddings.weight",
    "bert.encoder.layer.0.output.LayerNorm.gamma",
    "bert.encoder.layer.0.output.LayerNorm.beta",
    "classifier.output.dense.weight",
  ];
  assertEquals(found({}, names).map(([name]) => name), [
    "model.embeddings.word_embeddings.weight",
    "model.layers.0.post_mlp_layernorm.weight",
    "model.layers.0.post_mlp_layernorm.bias",
    "classifier.output.dense.weight",
  ]);
});

Deno.test("a bare decoder counts as a text model", () => {
  assertEquals(
    found({}, [...DECODER, "lm_head.weight"]),
    [...DECODER.map((name) => [`model.${name}`, name]), ["lm_head.weight", "lm_head.weight"]],
  );
});

Deno.test("a text-only model is unchanged", () => {
  const config = { model_type: "llama", text_config: null };
  const names = ["model.embed_tokens.weight", "model.visual_norm.weight"];
  const { nameOf, ...part } = textPart("llama", config, names);
  assertEquals(part, { modelType: "llama", config, multimodal: undefined });
  assertEquals(names.map(nameOf), names);
});

Deno.test("settings come from the text model, except a few from the whole model", () => {
  const whole = {
    ...{ eos_token_id: [1, 106], hidden_size: 99, quantization_config: { a: 1 } },
    ...{ bos_token_id: 2, pad_token_id: 3 },
  };
  const text = { ...TEXT, head_dim: null, rms_norm_eps: 1e-5 };
  const part = textPart("gemma3", { ...whole, text_config: text }, []);
  assertEquals([part.config.bos_token_id, part.config.pad_token_id], [2, 3]);
  const own = textPart("outer", { ...whole, llm_config: { ...text, eos_token_id: 7 } }, []).config;
  assertEquals([own.hidden_size, own.eos_token_id, own.bos_token_id], [8, 7, 2]);
  assertEquals([part.modelType, part.multimodal], ["gemma3_text", "gemma3"]);
  const { config } = part;
  assertEquals([config.hidden_size, config.rms_norm_eps, config.head_dim], [8, 1e-5, null]);
  // The defaults of its family are not part of the file.
  assertEquals(config.num_key_value_heads, undefined);
  assertEquals([config.eos_token_id, config.quantization_config], [[1, 106], { a: 1 }]);
});

Deno.test("settings at the top level belong to the text model", () => {
  const config = { model_type: "qwen2_vl", hidden_size: 8, vision_config: { depth: 1 } };
  const names = ["model.embed_tokens.weight", "visual.norm.weight"];
  const part = textPart("qwen2_vl", config, names);
  assertEquals([part.modelType, part.multimodal], ["qwen2_vl", "qwen2_vl"]);
  assertEquals(names.map(part.nameOf), ["model.embed_tokens.weight", undefined]);
});

Deno.test("an output matrix in the files is used; without one, either tie setting counts", () => {
  const isTied = (outer: boolean | undefined, inner: boolean | undefined, names: string[]) => {
    const own = inner === undefined ? {} : { tie_word_embeddings: inner };
    const all = outer === undefined ? {} : { tie_word_embeddings: outer };
    const config = { ...all, text_config: { ...TEXT, ...own } };
    return textPart("gemma3", config, names).config.tie_word_embeddings;
  };
  const backbone = "backbone.embeddings.weight";
  assertEquals(isTied(undefined, undefined, [backbone, "lm_head.weight"]), false);
  assertEquals(isTied(undefined, undefined, [backbone]), true);
  const embedding = "language_model.model.embed_tokens.weight";
  const head = "language_model.lm_head.weight";
  assertEquals(isTied(true, undefined, [embedding, head]), false);
  assertEquals(isTied(undefined, true, [embedding, head]), false);
  assertEquals(isTied(undefined, undefined, [embedding]), true);
  assertEquals(isTied(false, undefined, [embedding]), false);
  assertEquals(isTied(true, false, [embedding]), true);
  assertEquals(isTied(undefined, false, [embedding]), true);
  assertEquals(isTied(false, true, [embedding]), true);
  assertEquals(isTied(false, false, [embedding]), false);
});

Deno.test("a tensor alone has the names that it may have among others", () => {
  const cases: [stored: string, name: string][] = [
    ["layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.q_proj.weight"],
    ["model.language_model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.weight"],
    ["language_model.lm_head.weight", "lm_head.weight"],
    ["bert.encoder.layer.3.attention.self.query.weight", "model.layers.3.self_attn.q_proj.weight"],
    ["encoder.layer.3.output.dense.weight", "model.layers.3.mlp.down_proj.weight"],
    ["model.layers.0.attn.Wqkv.weight", "model.layers.0.self_attn.qkv_proj.weight"],
    ["backbone.embeddings.weight", "model.embed_tokens.weight"],
    ["backbone.embedding.weight", "model.embed_tokens.weight"],
    ["backbone.layers.0.mixer.in_proj.weight", "model.layers.0.mamba.in_proj.weight"],
    ["model.layers.1.mixer.q_proj.weight", "model.layers.1.self_attn.q_proj.weight"],
  ];
  for (const [stored, name] of cases) assert(textModelNames(stored).includes(name), stored);
});
