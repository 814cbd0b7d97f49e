/** Loads EAGLE-3 heads without weights: the layers that they read, and what is rejected. */
import { assertEquals, assertThrows } from "@std/assert";
import { type KvCache, Recorder, type Step, type Value } from "../../../src/backend.ts";
import { ForgeError } from "../../../src/errors.ts";
import type { JsonObject } from "../../../src/formats/json.ts";
import { ForwardPass, ModelSource } from "../../../src/models/causal_lm.ts";
import { decoderConfig } from "../../../src/models/config/decoder_config.ts";
import { hiddenShape } from "../../../src/models/parts/draft_head.ts";
import { isEagleHead, loadEagleHead } from "../../../src/models/parts/eagle_head.ts";
import { FakeBackend, fakeCheckpoint, type FakeTensor, jsonConfig } from "./fakes.ts";

Deno.test("a head is known by its architecture, its vocabulary or its class", () => {
  const isHead = (config: JsonObject) => isEagleHead(fakeCheckpoint({ config }));
  assertEquals(isHead({ model_type: "llama", architectures: ["LlamaForCausalLM"] }), false);
  assertEquals(isHead({ architectures: ["LlamaForCausalLMEagle3"] }), true);
  assertEquals(isHead({ architectures: ["LlamaForCausalLM", "EAGLE3Speculator"] }), true);
  assertEquals(isHead({ architectures: "Eagle3" }), false);
  assertEquals(isHead({ draft_vocab_size: 32 }), true);
  const metadata = (architecture: string) => ({ "general.architecture": architecture });
  assertEquals(isEagleHead(fakeCheckpoint({ metadata: metadata("eagle3") })), true);
  assertEquals(isEagleHead(fakeCheckpoint({ metadata: metadata("llama") })), false);
});

const SIZES: JsonObject = {
  hidden_size: 16,
  intermediate_size: 24,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 8,
  num_hidden_layers: 1,
};
const VOCABULARY = 10;

/** Tensors of a head with hidden states of a size, for a model with those of 16. */
function headTensors(hidden: number, prefix = ""): Record<string, FakeTensor> {
  const layer = `${prefix}midlayer.`;
  return {
    [`${prefix}fc.weight`]: [hidden, 48],
    [`${prefix}norm.weight`]: [hidden],
    [`${layer}input_layernorm.weight`]: [hidden],
    [`${layer}hidden_norm.weight`]: [hidden],
    [`${layer}post_attention_layernorm.weight`]: [hidden],
    [`${layer}self_attn.q_proj.weight`]: [32, 2 * hidden],
    [`${layer}self_attn.k_proj.weight`]: [16, 2 * hidden],
    [`${layer}self_attn.v_proj.weight`]: [16, 2 * hidden],
    [`${layer}self_attn.o_proj.weight`]: [hidden, 32],
    [`${layer}mlp.gate_proj.weight`]: [24, hidden],
    [`${layer}mlp.up_proj.weight`]: [24, hidden],
    [`${layer}mlp.down_proj.weight`]: [hidden, 24],
  };
}

function loadHead(
  config: JsonObject,
  tensors: Record<string, FakeTensor> = headTensors(16),
  nLayers = 8,
) {
  const target = jsonConfig({ ...SIZES, num_hidden_layers: nLayers });
  const source = new ModelSource(new FakeBackend(), fakeCheckpoint({}));
  const head = fakeCheckpoint({ config: { model_type: "llama", ...SIZES, ...config }, tensors });
  return loadEagleHead(source, head, {
    config: decoderConfig(target),
    vocabSize: VOCABULARY,
    kvLayers: [],
    embed: () => 1 as Value,
    logits: () => 2 as Value,
  });
}

function assertUnfit(load: () => unknown, message: string): void {
  const error = assertThrows(load, ForgeError, message);
  assertEquals(error.code, "bad_model");
}

Deno.test("a head reads a low, a middle and a high layer, or those that it names", () => {
  const captures = (config: JsonObject, nLayers?: number) =>
    loadHead(config, headTensors(16), nLayers).captures;
  const name = "eagle_aux_hidden_state_layer_ids";
  assertEquals(captures({}), [2, 4, 5]);
  assertEquals(captures({}, 33), [2, 16, 30]);
  assertEquals(captures({ [name]: [0, 3, 8] }), [0, 3, 8]);
  // These are the layers before.
  assertEquals(captures({ eagle_config: { [name]: [-1, 2, 7] } }), [0, 3, 8]);
  assertEquals(captures({ eagle_config: { [name]: [-1, 2, 7] }, [name]: [1, 2, 3] }), [0, 3, 8]);
  for (const layers of [[0, 3, 9], [-1, 3, 8], [0, 3], [0, 1, 2, 3], [0, 1.5, 2]]) {
    const message = `reads the inputs of layers ${layers.join(", ")}; the model has 8`;
    assertUnfit(() => captures({ [name]: layers }), message);
  }
});

Deno.test("a head has caches of its keys and values and of its hidden states", () => {
  const { kvLayers, tokens } = loadHead({});
  assertEquals(kvLayers, [
    { nKvHeads: 2, kHeadDim: 8, vHeadDim: 8 },
    { nKvHeads: 1, kHeadDim: 16, vHeadDim: 16, valuesInKeys: true, keepsHidden: true },
  ]);
  assertEquals(tokens, undefined);
  assertEquals(loadHead({}, headTensors(16, "model.")).kvLayers, kvLayers);
});

Deno.test("frequencies of a GGUF head are divided by its rope_freqs", () => {
  const layer = {
    attn_norm: [16],
    attn_norm_2: [16],
    attn_q: [32, 32],
    attn_k: [16, 32],
    attn_v: [16, 32],
    attn_output: [16, 32],
    ffn_norm: [16],
    ffn_gate: [24, 16],
    ffn_up: [24, 16],
    ffn_down: [16, 24],
  };
  const named = Object.entries(layer).map(([name, shape]) => [`blk.0.${name}.weight`, shape]);
  const tensors: Record<string, FakeTensor> = {
    "fc.weight": [16, 48],
    "output_norm.weight": [16],
    "rope_freqs.weight": [4],
    ...Object.fromEntries(named),
  };
  const metadata = {
    "general.architecture": "eagle3",
    "eagle3.block_count": 1,
    "eagle3.context_length": 64,
    "eagle3.embedding_length": 16,
    "eagle3.feed_forward_length": 24,
    "eagle3.attention.head_count": 4,
    "eagle3.attention.head_count_kv": 2,
    "eagle3.attention.key_length": 8,
    "eagle3.attention.layer_norm_rms_epsilon": 1e-5,
  };
  const device = new FakeBackend({ "rope_freqs.weight": [1, 2, 4, 8] });
  const source = new ModelSource(device, fakeCheckpoint({}));
  const head = loadEagleHead(source, fakeCheckpoint({ metadata, tensors }), {
    config: decoderConfig(jsonConfig({ ...SIZES, num_hidden_layers: 8 })),
    vocabSize: VOCABULARY,
    kvLayers: [],
    embed: () => 1 as Value,
    logits: () => 2 as Value,
  });
  const recorder = new Recorder({
    record: () => 1 as Value,
    keep: () => {},
    finish: (): Promise<Step> => Promise.reject(new Error("a recording cannot be run")),
  });
  const kv = [{ handle: 0 }, { handle: 1 }] as unknown as KvCache[];
  head.draft(new ForwardPass(recorder, kv, [], source.weights));
  assertEquals(device.uploaded.at(-1), Float32Array.of(1, 0.1 / 2, 0.01 / 4, 0.001 / 8));
});

Deno.test("hidden states are kept as heads of at most 4096 numbers", () => {
  const headsOf = (hiddenSize: number) => {
    const { nKvHeads, kHeadDim, vHeadDim } = hiddenShape(hiddenSize);
    assertEquals(vHeadDim, kHeadDim);
    return [nKvHeads, kHeadDim];
  };
  assertEquals([64, 4096, 4098, 5120].map(headsOf), [[1, 64], [1, 4096], [2, 2049], [2, 2560]]);
  // As few as divide the size evenly: neither 3 nor 4 heads do.
  assertEquals(headsOf(8194), [17, 482]);
});

Deno.test("hidden states of another size need an embedding and an output matrix", () => {
  const config = { hidden_size: 12 };
  const message = "has hidden states of 12; the model's are 16";
  const embedding = { "embed_tokens.weight": [VOCABULARY, 12] };
  const output = { "lm_head.weight": [VOCABULARY, 12] };
  for (const some of [{}, embedding, output]) {
    assertUnfit(() => loadHead(config, { ...headTensors(12), ...some }), message);
  }
  const { kvLayers } = loadHead(config, { ...headTensors(12), ...embedding, ...output });
  assertEquals(kvLayers.at(-1)?.kHeadDim, 12);
});

Deno.test("a head's tokens and settings are checked", () => {
  assertUnfit(
    () => loadHead({ draft_vocab_size: 9 }),
    "has 9 tokens and no d2t; the model has 10",
  );
  const d2t = { type: "F32", shape: [VOCABULARY] } as const;
  assertUnfit(
    () => loadHead({ draft_vocab_size: 10 }, { ...headTensors(16), d2t }),
    "stores d2t as F32, not I64",
  );
  for (
    const [config, message] of [
      [{ norm_output: true }, `sets "norm_output", which forge does not support`],
      [{ num_hidden_layers: 2 }, "has 2 layers; forge supports 1"],
    ] as const
  ) {
    const error = assertThrows(() => loadHead(config), ForgeError, message);
    assertEquals(error.code, "unsupported");
  }
  loadHead({ norm_output: false, fc_norm: null });
});
