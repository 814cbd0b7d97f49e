/** Records steps of models without weights: what each layer attends to, and parts of a device. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { join } from "@std/path";
import {
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
function loadConfig(config: JsonObject, options: ModelOptions = {}): CausalLm {
  const wanted = wantedTensors({ name: "test", config, type: "F32" });
  const tensors = Object.fromEntries(wanted.map(({ name, shape }) => [name, shape]));
  return loadModel(new NoFiles(), fakeCheckpoint({ config, tensors }), options).lm;
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
