/** Facts about models, from given configurations and files. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { modelFacts } from "../../../src/cli/model/model_facts.ts";
import { DEFAULT_CONTEXT } from "../../../src/engine/limits.ts";
import { openCheckpoint } from "../../../src/formats/checkpoint.ts";
import { float32Tensor } from "../../../src/formats/tensor_data.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { writeRandomLlama } from "../../support/tiny_llama.ts";
import { fakeCheckpoint } from "../models/fakes.ts";

const CONFIG = {
  model_type: "none",
  num_hidden_layers: 3,
  hidden_size: 90,
  intermediate_size: 200,
  num_attention_heads: 5,
  num_key_value_heads: 2,
  num_experts: 8,
  num_experts_per_tok: 4,
  max_position_embeddings: 100,
  sliding_window: 64,
  rope_theta: 5000,
  rope_scaling: { type: "linear", factor: 2 },
};

const FACTS = {
  layers: 3,
  hidden_size: 90,
  intermediate_size: 200,
  heads: 5,
  kv_heads: 2,
  head_dim: 18,
  experts: 8,
  experts_used: 4,
  context_length: 100,
  sliding_window: 64,
  rope_theta: 5000,
  rope_scaling: "linear",
};

Deno.test("model facts: the sizes of config.json and of a GGUF file, also of unknown models", () => {
  const facts = (config: Record<string, unknown>) =>
    modelFacts(fakeCheckpoint({ config: { ...CONFIG, ...config } as typeof CONFIG }));
  assertEquals(facts({}).config, FACTS);
  assertEquals(facts({ head_dim: 7 }).config, { ...FACTS, head_dim: 7 });
  assertEquals(facts({ num_key_value_heads: null }).config, { ...FACTS, kv_heads: 5 });
  assertEquals(
    facts({ num_local_experts: 6, intermediate_size: null, moe_intermediate_size: 30 }).config,
    { ...FACTS, experts: 6, intermediate_size: 30 },
  );
  const rope_parameters = { rope_theta: 70, rope_type: "yarn" };
  assertEquals(facts({ rope_theta: null, rope_parameters }).config, {
    ...FACTS,
    rope_theta: 70,
    rope_scaling: "yarn",
  });
  const headless = facts({ num_attention_heads: null, num_key_value_heads: null }).config;
  assertEquals(headless, { ...FACTS, heads: null, kv_heads: null, head_dim: null });
  const unknown = modelFacts(fakeCheckpoint({ config: { model_type: "none" } }));
  const none = Object.fromEntries(Object.keys(FACTS).map((name) => [name, null]));
  assertEquals<unknown>(unknown.config, none);
  assertStringIncludes(unknown.problem!, '"none"');
  assertEquals([unknown.tokenizer, unknown.name, unknown.multimodal], [null, null, null]);
  const gguf = modelFacts(fakeCheckpoint({
    metadata: {
      "general.architecture": "none",
      "general.name": "A name",
      "none.block_count": 3,
      "none.embedding_length": 90,
      "none.feed_forward_length": 200,
      "none.attention.head_count": 5,
      "none.attention.head_count_kv": 2,
      "none.attention.key_length": 18,
      "none.expert_count": 8,
      "none.expert_used_count": 4,
      "none.context_length": 100,
      "none.attention.sliding_window": 64,
      "none.rope.freq_base": 5000,
      "none.rope.scaling.type": "linear",
    },
  }));
  assertEquals([gguf.config, gguf.name, gguf.format], [FACTS, "A name", "gguf"]);
});

Deno.test("model facts: memory follows from the sizes, and is unknown without one", () => {
  const tensors = {
    "a.weight": [10, 4],
    "b.weight": { type: "F16" as const, shape: [30, 4] },
    "c.weight": [3],
    "d.weight": { type: "F16" as const, shape: [7] },
  };
  const facts = (config: Record<string, unknown>) =>
    modelFacts(fakeCheckpoint({ config: { ...CONFIG, ...config } as typeof CONFIG, tensors }));
  const { memory, parameters, bytes, types } = facts({});
  assertEquals([parameters, bytes], [40 + 120 + 3 + 7, 4 * 43 + 2 * 127]);
  assertEquals(Object.entries(types), [
    ["F16", { tensors: 2, bytes: 254 }],
    ["F32", { tensors: 2, bytes: 172 }],
  ]);
  assertEquals(memory, {
    weights: 426,
    // Keys and values of two heads of 18 in three layers, two bytes each.
    kv_per_token: 2 * 2 * 18 * 3 * 2,
    default_context: 100,
    kv_default: 100 * 432,
    state_per_sequence: 0,
    activations: 4 * 100 * (2 * 90 + 3 * 200 * 4),
  });
  const { default_context, kv_default } = facts({ max_position_embeddings: 1e6 }).memory;
  assertEquals([default_context, kv_default], [DEFAULT_CONTEXT, 432 * DEFAULT_CONTEXT]);
  for (
    const [key, unknown] of [
      ["num_hidden_layers", ["kv_per_token", "kv_default"]],
      ["intermediate_size", ["activations"]],
      ["max_position_embeddings", ["default_context", "kv_default", "activations"]],
    ] as const
  ) {
    const missing = Object.entries(facts({ [key]: null }).memory)
      .filter(([, value]) => value === null).map(([name]) => name);
    assertEquals(missing, [...unknown], key);
  }
});

Deno.test("model facts: tokenizer, end tokens and memory of a model that runs", () => {
  using folder = new TempFolder();
  const chatTemplate = "{{ messages[0].content }}";
  const generationConfig = { eos_token_id: [1, 5, -1, 9999] };
  writeRandomLlama(folder.path, { chatTemplate, generationConfig, contextLength: 40 });
  const facts = modelFacts(openCheckpoint(folder.path));
  assertEquals([facts.problem, facts.chat_template], [null, chatTemplate]);
  const { description: _, ...tokenizer } = facts.tokenizer!;
  assertEquals(tokenizer, {
    vocab_size: 97,
    add_bos: true,
    add_eos: false,
    bos: { id: 0, text: "<s>" },
    end: [{ id: 1, text: "</s>" }, { id: 5, text: "#" }],
  });
  const { layers, hidden_size, heads, kv_heads, head_dim, context_length } = facts.config;
  assertEquals([layers, hidden_size, heads, kv_heads, head_dim], [2, 64, 4, 2, 16]);
  assertEquals(context_length, 40);
  assertEquals(facts.memory, {
    weights: facts.bytes,
    kv_per_token: 2 * 2 * 16 * 2 * 2,
    default_context: 40,
    kv_default: 40 * 256,
    state_per_sequence: 0,
    activations: 4 * 40 * (2 * 64 + 3 * 96 + 97),
  });
  assertEquals([facts.multi_token_prediction, facts.unused_tensors], [false, []]);
  // A layer for multi-token prediction is a part of the model; other tensors take no memory.
  writeRandomLlama(folder.path, {
    predictor: true,
    change: (tensors) => [...tensors, float32Tensor("other", [5], new Float32Array(5))],
  });
  const predicting = modelFacts(openCheckpoint(folder.path));
  assertEquals([predicting.problem, predicting.multi_token_prediction], [null, true]);
  assertEquals(predicting.unused_tensors, ["other"]);
  assertEquals(predicting.memory.weights, predicting.bytes - 4 * 5);
});
