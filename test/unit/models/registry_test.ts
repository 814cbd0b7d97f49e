import { assert, assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import { openCheckpoint } from "../../../src/formats/checkpoint.ts";
import { float32Tensor } from "../../../src/formats/tensor_data.ts";
import { configDefaults } from "../../../src/models/config/config_defaults.ts";
import { folderAsGguf } from "../../../src/models/folder_as_gguf.ts";
import { findFamily, knownArchitectures, loadModel } from "../../../src/models/registry.ts";
import { writeModelFolder } from "../../support/safetensors_writer.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { FakeBackend, fakeCheckpoint, type FakeTensor } from "./fakes.ts";

Deno.test("an architecture is found by its name in either format", () => {
  for (const model_type of knownArchitectures("safetensors")) {
    const family = findFamily(fakeCheckpoint({ config: { model_type } }));
    assertEquals(family.huggingFace.includes(model_type), true);
  }
  for (const architecture of knownArchitectures("gguf")) {
    const metadata = { "general.architecture": architecture };
    assertEquals(findFamily(fakeCheckpoint({ metadata })).gguf.includes(architecture), true);
  }
});

Deno.test("every architecture of config.json has a table of defaults", () => {
  const without = knownArchitectures("safetensors")
    .filter((modelType) => Object.keys(configDefaults(modelType)).length === 0);
  assertEquals(without, []);
});

Deno.test("no two families claim one name", () => {
  for (const kind of ["safetensors", "gguf"] as const) {
    const names = knownArchitectures(kind);
    assertEquals(new Set(names).size, names.length);
  }
});

Deno.test("GGUF's llama with experts is Mixtral", () => {
  const metadata = { "general.architecture": "llama", "llama.expert_count": 8 };
  assertEquals(findFamily(fakeCheckpoint({ metadata })).huggingFace, ["mixtral"]);
  const dense = { ...metadata, "llama.expert_count": 0 };
  assertEquals(findFamily(fakeCheckpoint({ metadata: dense })).huggingFace, ["llama"]);
});

Deno.test("an unknown architecture is rejected with the names supported in its format", () => {
  const checkpoint = fakeCheckpoint({ config: { model_type: "mamba\n" } });
  const error = assertThrows(() => findFamily(checkpoint), ForgeError);
  assertEquals(error.code, "unsupported");
  assertEquals(
    error.message,
    `"model" has the architecture "mamba\\n", which forge does not support; it supports ` +
      knownArchitectures("safetensors").join(", "),
  );
  const metadata = { "general.architecture": "gemma3_text" };
  assertThrows(
    () => findFamily(fakeCheckpoint({ metadata })),
    ForgeError,
    "it supports apertus, arcee, bert, command-r, cohere2, deepseek2, ernie4_5, ernie4_5-moe, exaone4",
  );
});

Deno.test("no family imports another", () => {
  const folder = new URL("../../../src/models/families/", import.meta.url);
  const files = [...Deno.readDirSync(folder)].map(({ name }) => name);
  assert(files.length > 15);
  for (const name of files) {
    const text = Deno.readTextFileSync(new URL(name, folder));
    assertEquals(text.match(/from "(\.\/|.*families\/).*"/), null, name);
  }
});

const CONFIG = {
  model_type: "llama",
  hidden_size: 8,
  num_attention_heads: 2,
  num_hidden_layers: 1,
  intermediate_size: 12,
  rms_norm_eps: 1e-5,
  max_position_embeddings: 64,
  vocab_size: 10,
};

function llamaTensors(): Record<string, FakeTensor> {
  const layer = "model.layers.0";
  return {
    "model.embed_tokens.weight": [10, 8],
    [`${layer}.input_layernorm.weight`]: [8],
    [`${layer}.self_attn.q_proj.weight`]: [8, 8],
    [`${layer}.self_attn.k_proj.weight`]: [8, 8],
    [`${layer}.self_attn.v_proj.weight`]: [8, 8],
    [`${layer}.self_attn.o_proj.weight`]: [8, 8],
    [`${layer}.post_attention_layernorm.weight`]: [8],
    [`${layer}.mlp.gate_proj.weight`]: [12, 8],
    [`${layer}.mlp.up_proj.weight`]: [12, 8],
    [`${layer}.mlp.down_proj.weight`]: [8, 12],
    "model.norm.weight": [8],
    "lm_head.weight": [10, 8],
  };
}

function load(config: object, tensors: Record<string, FakeTensor>) {
  const checkpoint = fakeCheckpoint({ config: { ...CONFIG, ...config }, tensors });
  return loadModel(new FakeBackend(), checkpoint);
}

Deno.test("a model is loaded with all its tensors", () => {
  const { lm, weights } = load({}, llamaTensors());
  assertEquals([lm.vocabSize, lm.contextLength, lm.kvLayers.length], [10, 64, 1]);
  assertEquals(lm.kvLayers[0], { nKvHeads: 2, kHeadDim: 4, vHeadDim: 4 });
  assertEquals(weights.unusedTensors(), []);
});

Deno.test("a tied model needs no output matrix, and uses the one it has", () => {
  const { "lm_head.weight": _, ...tied } = llamaTensors();
  const loaded = load({ tie_word_embeddings: true }, tied).weights;
  assertEquals(loaded.unusedTensors(), []);
  assertThrows(() => load({}, tied), ForgeError, `has no tensor "lm_head.weight"`);

  using folder = new TempFolder();
  const bytesOf = (lastOfHead: number) => {
    const tensors = Object.entries(llamaTensors()).map(([name, shape]) => {
      const values = new Float32Array((shape as number[]).reduce((size, n) => size * n));
      if (name === "lm_head.weight") values[values.length - 1] = lastOfHead;
      return float32Tensor(name, shape as number[], values);
    });
    const config = { ...CONFIG, tie_word_embeddings: true };
    writeModelFolder(folder.path, { "config.json": config }, tensors);
    const { weights } = loadModel(new FakeBackend(), openCheckpoint(folder.path));
    assertEquals(weights.unusedTensors(), []);
    return weights.mappedBytes;
  };
  // A copy of the embedding is loaded once.
  assertEquals(bytesOf(0), loaded.mappedBytes);
  assertEquals(bytesOf(1), loaded.mappedBytes + 10 * 8 * 4);
});

Deno.test("an output matrix alone is the embedding of a tied model only", () => {
  const { "model.embed_tokens.weight": _, ...tensors } = llamaTensors();
  const { weights } = load({ tie_word_embeddings: true }, tensors);
  assertEquals(weights.unusedTensors(), []);
  const { "lm_head.weight": __, ...tied } = llamaTensors();
  assertEquals(weights.mappedBytes, load({ tie_word_embeddings: true }, tied).weights.mappedBytes);
  assertThrows(() => load({}, tensors), ForgeError, `has no tensor "model.embed_tokens.weight"`);
});

Deno.test("a class without an output matrix needs none, but is not written as GGUF", () => {
  const { "lm_head.weight": _, ...tensors } = llamaTensors();
  for (const name of ["LlamaModel", "LlamaForSequenceClassification"]) {
    const config = { architectures: [name] };
    assertEquals(load(config, tensors).lm.hasHead, false);
    assertEquals(load(config, llamaTensors()).lm.hasHead, true);
    const checkpoint = fakeCheckpoint({ config: { ...CONFIG, ...config }, tensors });
    const error = assertThrows(() => folderAsGguf(new FakeBackend(), checkpoint), ForgeError);
    assertEquals(error.code, "unsupported");
    assertEquals(
      error.message,
      '"model" has no output matrix; forge writes models that generate',
    );
  }
  for (const architectures of [[], ["LlamaModelForCausalLM"], ["LlamaModel", "LlamaForCausalLM"]]) {
    const message = `has no tensor "lm_head.weight"`;
    assertThrows(() => load({ architectures }, tensors), ForgeError, message);
  }
});

Deno.test("a config and tensors that contradict each other are rejected", () => {
  const heads = { num_key_value_heads: 2, head_dim: 4 };
  const length = { factor: 2, original_max_position_embeddings: 16 };
  const tempered = { rope_theta: 1e4, rope_type: "yarn", ...length, llama_4_scaling_beta: -1 };
  const bad: [object, Record<string, FakeTensor>, string, string][] = [
    [{ num_hidden_layers: 2 }, {}, "bad_model", `no tensor "model.layers.1.`],
    [{ vocab_size: 11 }, {}, "bad_model", `"model.embed_tokens.weight" has the shape [10,8]`],
    [{ vocab_size: 1e9 }, {}, "bad_model", `vocab_size is "1000000000"`],
    [{ vocab_size: null }, {}, "bad_model", "vocab_size is null"],
    [{ intermediate_size: 2 ** 26 }, {}, "bad_model", "implies [67108864,8]"],
    [{}, { "lm_head.weight": [9, 8] }, "bad_model", `"lm_head.weight" has the shape [9,8]`],
    [{ attention_bias: true }, {}, "bad_model", `no tensor "model.layers.0.self_attn.q_proj.bias"`],
    [{ is_causal: false }, {}, "unsupported", "has is_causal false: in this architecture forge"],
    [{ mlp_bias: true }, {}, "bad_model", `no tensor "model.layers.0.mlp.gate_proj.bias"`],
    [
      { ...heads, model_type: "ministral3", rope_parameters: tempered },
      {},
      "bad_model",
      `llama_4_scaling_beta is "-1"; expected a number of at least 0`,
    ],
    [
      {},
      { "model.layers.0.mlp.up_proj.bias": [12] },
      "unsupported",
      `the tensor "model.layers.0.mlp.up_proj.bias", which forge does not use`,
    ],
  ];
  for (const [config, tensors, code, includes] of bad) {
    const error = assertThrows(
      () => load(config, { ...llamaTensors(), ...tensors }),
      ForgeError,
      includes,
    );
    assertEquals(error.code, code);
  }
});
