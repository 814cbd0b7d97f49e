/**
 * Loads models without weights: the windows and scales of attention, the tensors that settings ask
 * for, and parts that devices do not divide.
 */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { join } from "@std/path";
import {
  type Backend,
  type KvCache,
  type Operand,
  Recorder,
  type StateCache,
  type Step,
  type Value,
  type WeightData,
} from "../../../src/backend.ts";
import { wantedTensors } from "../../../src/bench/synthetic/checkpoint.ts";
import { ForgeError } from "../../../src/errors.ts";
import { openCheckpoint } from "../../../src/formats/checkpoint.ts";
import type { JsonObject } from "../../../src/formats/json.ts";
import { float32Tensor } from "../../../src/formats/tensor_data.ts";
import type { TensorType } from "../../../src/formats/tensor_info.ts";
import type { CausalLm, ModelOptions } from "../../../src/models/causal_lm.ts";
import { loadModel } from "../../../src/models/registry.ts";
import { FakeBackend, fakeCheckpoint } from "../../unit/models/fakes.ts";
import { writeModelFolder } from "../../support/safetensors_writer.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { readJson } from "../reference_check.ts";
import { filledTensors, generated, published } from "./generated.ts";

const FOLDER = join(import.meta.dirname ?? ".", "..");

type Configs = Readonly<Record<string, { readonly config: JsonObject }>>;

type Shapes = Readonly<Record<string, readonly number[]>>;

const encoders = readJson<{
  readonly models: Readonly<Record<string, { config: JsonObject; tensors: Shapes }>>;
}>(join(FOLDER, "encoders", "encoders.json"));
const bases = readJson<Readonly<Record<string, JsonObject>>>(
  join(FOLDER, "config", "config_sweep_bases.json"),
);
const models: Configs = { ...encoders.models, ...published.models, ...generated.models };

/** Returns a config with other settings, without those that are `undefined`. */
function configOf(name: string, settings: Readonly<Record<string, unknown>> = {}): JsonObject {
  const config = bases[name] ?? models[name]?.config;
  assert(config !== undefined, name);
  const all = Object.entries({ ...config, ...settings }).filter(([, value]) => value !== undefined);
  return Object.fromEntries(all) as JsonObject;
}

/** A device that reads no files. */
class NoFiles extends FakeBackend {
  override uploadWeight(type: TensorType, rows: number, cols: number, data: WeightData) {
    const bytes = typeof data === "function" ? new Uint8Array(4 * rows * cols) : data;
    return super.uploadWeight(type, rows, cols, bytes);
  }
}

/** Loads a model of a config, with tensors that hold ones. */
function loadConfig(
  config: JsonObject,
  options: ModelOptions = {},
  device: Backend = new NoFiles(),
): CausalLm {
  const wanted = wantedTensors({ name: "test", config, type: "F32" });
  const tensors = Object.fromEntries(wanted.map(({ name, shape }) => [name, shape]));
  return loadModel(device, fakeCheckpoint({ config, tensors }), options).lm;
}

type Operands = Readonly<Record<string, Operand>>;

/** Records a step of a model, and returns the operands of the operations with a name. */
function recorded(lm: CausalLm, operation: string): Operands[] {
  const found: Operands[] = [];
  let values = 0;
  const recorder = new Recorder({
    record: (name, operands) => {
      if (name === operation) found.push(operands);
      return ++values as Value;
    },
    keep: () => {},
    finish: (): Promise<Step> => Promise.reject(new Error("a recording cannot be run")),
  });
  const caches = (count: number) => Array.from({ length: count }, (_, handle) => ({ handle }));
  const kv = caches(lm.kvLayers.length) as unknown as KvCache[];
  lm.hidden(recorder, kv, caches(lm.stateLayers.length) as unknown as StateCache[]);
  return found;
}

/** Without the list of the layers' types, which transformers 5 writes. */
const SIX = { num_hidden_layers: 6, layer_types: undefined };

/** Windows of the layers, 0 for full attention. */
const WINDOWS: readonly (readonly [
  name: string,
  settings: Readonly<Record<string, unknown>>,
  windows: readonly number[],
])[] = [
  ["gemma2", { ...SIX, sliding_window: 9 }, [9, 0, 9, 0, 9, 0]],
  ["gpt_oss", { ...SIX, sliding_window: 9 }, [9, 0, 9, 0, 9, 0]],
  ["cohere2", { ...SIX, sliding_window: 9 }, [9, 9, 9, 0, 9, 9]],
  ["exaone4", { ...SIX, sliding_window: 9 }, [9, 9, 9, 0, 9, 9]],
  ["olmo3", { ...SIX, sliding_window: 9 }, [9, 9, 9, 0, 9, 9]],
  [
    "gemma3_text",
    { ...SIX, num_hidden_layers: 7, sliding_window: 9, sliding_window_pattern: undefined },
    [9, 9, 9, 9, 9, 0, 9],
  ],
  ["gemma3_text", { ...SIX, sliding_window: 9, sliding_window_pattern: 3 }, [9, 9, 0, 9, 9, 0]],
  [
    "smollm3",
    { ...SIX, no_rope_layers: undefined, use_sliding_window: true, sliding_window: 9 },
    [0, 0, 0, 9, 0, 0],
  ],
  [
    "qwen2",
    { ...SIX, use_sliding_window: true, sliding_window: 9, max_window_layers: 4 },
    [0, 0, 0, 0, 9, 9],
  ],
  [
    "qwen2_moe",
    { ...SIX, use_sliding_window: true, sliding_window: 9, max_window_layers: 4 },
    [9, 0, 9, 0, 0, 0],
  ],
  [
    "qwen2_moe",
    { ...SIX, use_sliding_window: true, sliding_window: 9, max_window_layers: 5 },
    [9, 0, 9, 0, 9, 0],
  ],
  [
    "modernbert",
    { ...SIX, local_attention: 16, global_attn_every_n_layers: 3 },
    [0, 9, 9, 0, 9, 9],
  ],
  [
    "modernbert",
    {
      num_hidden_layers: 2,
      layer_types: ["sliding_attention", "full_attention"],
      local_attention: 17,
      global_attn_every_n_layers: 3,
    },
    [9, 0],
  ],
];

for (const [name, settings, windows] of WINDOWS) {
  Deno.test(`layers of ${name} have the windows ${windows}`, () => {
    const lm = loadConfig(configOf(name, settings));
    assertEquals(recorded(lm, "attention").map(({ window }) => window), [...windows]);
  });
}

Deno.test("Llama 4 attends in chunks in sessions that are longer", () => {
  const config = configOf("llama4_text in chunks", { attention_chunk_size: 8 });
  const chunks = (sessionLength?: number) => {
    const lm = loadConfig(config, { sessionLength });
    return recorded(lm, "attention").map(({ window, chunked }) => chunked ? window : 0);
  };
  assertEquals(chunks(8), [0, 0, 0, 0]);
  assertEquals(chunks(9), [8, 8, 8, 0]);
  assertEquals(chunks(), [8, 8, 8, 0]);
});

Deno.test("positions of RoBERTa start after the id of the padding token", () => {
  const name = "xlm-roberta";
  const tensors = filledTensors(encoders.models[name]!.tensors)
    .map(({ name, shape, values }) => float32Tensor(name, shape, values));
  const lengthOf = (pad_token_id?: number) => {
    using folder = new TempFolder();
    writeModelFolder(folder.path, { "config.json": configOf(name, { pad_token_id }) }, tensors);
    return loadModel(new NoFiles(), openCheckpoint(folder.path)).lm.contextLength;
  };
  assertEquals([lengthOf(0), lengthOf(1), lengthOf(5)], [95, 94, 90]);
  assertEquals(lengthOf(), 94);
});

Deno.test("scores of Gemma's 27B models in GGUF files are scaled by another size", () => {
  const scalesOf = (architecture: string, nLayers: number) => {
    const layer = {
      attn_norm: [8],
      attn_q: [32, 8],
      attn_k: [16, 8],
      attn_v: [16, 8],
      attn_output: [8, 32],
      ...(architecture === "gemma3" ? { attn_q_norm: [16], attn_k_norm: [16] } : {}),
      post_attention_norm: [8],
      ffn_norm: [8],
      ffn_gate: [12, 8],
      ffn_up: [12, 8],
      ffn_down: [8, 12],
      post_ffw_norm: [8],
    };
    const layers = Array.from(
      { length: nLayers },
      (_, i) =>
        Object.entries(layer).map(([name, shape]) => [`blk.${i}.${name}.weight`, shape] as const),
    );
    const settings = {
      block_count: nLayers,
      context_length: 64,
      embedding_length: 8,
      feed_forward_length: 12,
      "attention.head_count": 2,
      "attention.head_count_kv": 1,
      "attention.key_length": 16,
      "attention.layer_norm_rms_epsilon": 1e-6,
      "attention.sliding_window": 9,
    };
    const named = Object.entries(settings).map(([key, value]) => [`${architecture}.${key}`, value]);
    const checkpoint = fakeCheckpoint({
      metadata: { "general.architecture": architecture, ...Object.fromEntries(named) },
      tensors: Object.fromEntries([
        ["token_embd.weight", [10, 8]],
        ["output_norm.weight", [8]],
        ...layers.flat(),
      ]),
    });
    const { lm } = loadModel(new NoFiles(), checkpoint);
    return new Set(recorded(lm, "attention").map(({ scale }) => scale));
  };
  assertEquals(scalesOf("gemma2", 46), new Set([0.5]));
  assertEquals(scalesOf("gemma2", 42), new Set([0.25]));
  assertEquals(scalesOf("gemma3", 62), new Set([0.5]));
  assertEquals(scalesOf("gemma3", 48), new Set([0.25]));
});

Deno.test("factors of Mamba-2's x, B and C are in the weights of its convolution", () => {
  const convOf = (ssm_multipliers: readonly number[], ssm_in_multiplier = 1) => {
    const device = new NoFiles();
    const settings = { ssm_multipliers, ssm_in_multiplier, attention_in_multiplier: 1 };
    const config = configOf("falcon_h1", { ...settings, num_hidden_layers: 1 });
    loadConfig(config, {}, device);
    // 128 columns of x, then 2 groups of 16 each for B and for C, of 4 tokens.
    const found = device.uploaded.filter(({ length }) => length === (128 + 32 + 32) * 4);
    return found.map((conv) => [0, 127, 128, 159, 160, 191].map((column) => conv[4 * column]));
  };
  assertEquals(convOf([1, 1, 1, 1, 1]), []);
  assertEquals(convOf([1, 2, 1, 1, 1]), [[2, 2, 1, 1, 1, 1]]);
  assertEquals(convOf([1, 1, 3, 1, 1]), [[1, 1, 3, 3, 1, 1]]);
  assertEquals(convOf([1, 1, 1, 5, 1]), [[1, 1, 1, 1, 5, 5]]);
  assertEquals(convOf([1, 2, 3, 5, 1], 2), [[4, 4, 6, 6, 10, 10]]);
});

/** Settings that add or remove tensors, with a pattern of their names. */
const TENSORS: readonly (readonly [name: string, settings: JsonObject, pattern: RegExp])[] = [
  ["nemotron", { mlp_bias: true }, /layers\.2\.mlp\.(up|down)_proj\.bias$/],
  ["nemotron", { attention_bias: true }, /layers\.2\.self_attn\.[qkvo]_proj\.bias$/],
  ["lfm2", { conv_bias: true }, /layers\.3\.conv\.(conv|in_proj|out_proj)\.bias$/],
  ["arcee", { mlp_bias: true }, /layers\.2\.mlp\.(up|down)_proj\.bias$/],
  ["glm4_moe", { use_qk_norm: true }, /layers\.0\.self_attn\.[qk]_norm\.weight$/],
];

function namesOf(name: string, settings: JsonObject): string[] {
  const config = configOf(name, settings);
  return wantedTensors({ name, config, type: "F32" }).map(({ name }) => name);
}

for (const [name, settings, pattern] of TENSORS) {
  const [[key, value]] = Object.entries(settings) as [[string, boolean]];
  Deno.test(`${name} has the tensors of ${key} only with it`, () => {
    assertEquals(namesOf(name, { [key]: !value }).filter((name) => pattern.test(name)), []);
    const found = namesOf(name, settings).filter((name) => pattern.test(name));
    assert(found.length > 1, `${found}`);
  });
}

Deno.test("LFM2's experts are chosen with a bias unless it is off", () => {
  const isBias = (name: string) => name.endsWith("expert_bias");
  assertEquals(namesOf("lfm2_moe", { use_expert_bias: false }).filter(isBias), []);
  assertEquals(namesOf("lfm2_moe", {}).filter(isBias).length, 2);
});

Deno.test("the MLP of LFM2 has two thirds of the setting times a factor, rounded up", () => {
  const widthOf = (settings: JsonObject) => {
    const config = configOf("lfm2", { intermediate_size: 100, block_multiple_of: 16, ...settings });
    const wanted = wantedTensors({ name: "lfm2", config, type: "F32" });
    return wanted.find(({ name }) => name.endsWith("layers.1.feed_forward.w1.weight"))?.shape[0];
  };
  assertEquals(widthOf({}), 80);
  assertEquals(widthOf({ block_ffn_dim_multiplier: 1.5 }), 112);
  assertEquals(widthOf({ block_ff_dim: 130 }), 96);
  assertEquals(widthOf({ block_auto_adjust_ff_dim: false }), 100);
});

/** Parts that devices do not divide, by a config with the part. */
const WHOLE: readonly (readonly [
  part: string,
  name: string,
  settings?: Readonly<Record<string, unknown>>,
])[] = [
  ["MLP with xIELU", "apertus"],
  ["change of all heads", "cohere with norms of heads"],
  ["convolutions", "lfm2"],
  ["experts without gates", "nemotron_h with experts", { layers_block_type: ["moe", "attention"] }],
  ["gated attention", "qwen3_next", { layer_types: Array(4).fill("full_attention") }],
  ["linear attention", "qwen3_next"],
  ["mixture of experts", "llama4_text"],
  ["norm over all heads", "olmo2"],
  ["recurrent state", "falcon_h1"],
  ["recurrent state", "mamba2"],
  ["shared MLP", "granitemoeshared"],
  ["stored layout of experts", "gpt_oss"],
  ["stored layout of experts", "qwen3_vl_moe_text"],
];

const refusal = (part: string, by: string) => `${part} forge does not divide among ${by}`;

for (const [part, name, settings] of WHOLE) {
  Deno.test(`devices do not divide the ${part} of ${name}`, () => {
    const rank = { index: 0, count: 2 };
    const load = () =>
      loadConfig(configOf(name, settings), { part: { rank, stage: { index: 0, memory: [1] } } });
    const error = assertThrows(load, ForgeError, refusal(part, "devices"));
    assertEquals(error.code, "unsupported");
  });
}

Deno.test("an encoder, and inputs of every layer, are not divided among stages", () => {
  const part = { rank: { index: 0, count: 1 }, stage: { index: 0, memory: [1, 1] } };
  for (
    const [config, message] of [
      [configOf("modernbert"), refusal("attention to later tokens", "devices")],
      [
        configOf("gemma4_text", { num_kv_shared_layers: 0, hidden_size_per_layer_input: 8 }),
        refusal("input of every layer", "stages"),
      ],
    ] as const
  ) {
    assertThrows(() => loadConfig(config, { part }), ForgeError, message);
  }
});
