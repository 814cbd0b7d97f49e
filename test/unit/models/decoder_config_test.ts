import { assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import type { GgufValue } from "../../../src/formats/gguf/types.ts";
import type { JsonObject } from "../../../src/formats/json.ts";
import {
  decoderConfig,
  noteWindows,
  readSoftcap,
  rotatedLayers,
  slidingWindows,
} from "../../../src/models/config/decoder_config.ts";
import { qwenWindows } from "../../../src/models/families/qwen.ts";
import { ConfigReader } from "../../../src/models/config/config_reader.ts";
import { fakeCheckpoint, ggufConfig, jsonConfig } from "./fakes.ts";

const JSON_SETTINGS: JsonObject = {
  hidden_size: 64,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  num_hidden_layers: 3,
  intermediate_size: 128,
  rms_norm_eps: 1e-6,
  max_position_embeddings: 256,
};
const GGUF_SETTINGS: Readonly<Record<string, GgufValue>> = {
  embedding_length: 64,
  "attention.head_count": 4,
  "attention.head_count_kv": 2,
  block_count: 3,
  feed_forward_length: 128,
  "attention.layer_norm_rms_epsilon": 1e-6,
  context_length: 256,
};
const SETTINGS = {
  hiddenSize: 64,
  nHeads: 4,
  nKvHeads: 2,
  headDim: 16,
  nLayers: 3,
  intermediateSize: 128,
  normEps: 1e-6,
  activation: "silu",
  contextLength: 256,
} as const;

Deno.test("a decoder's settings are the same from both formats", () => {
  assertEquals(decoderConfig(jsonConfig(JSON_SETTINGS)), SETTINGS);
  assertEquals(decoderConfig(ggufConfig(GGUF_SETTINGS)), SETTINGS);
});

Deno.test("the size of heads is the given one", () => {
  const json = jsonConfig({ ...JSON_SETTINGS, head_dim: 32 });
  assertEquals(decoderConfig(json).headDim, 32);
  const gguf = ggufConfig({ ...GGUF_SETTINGS, "attention.key_length": 32 });
  assertEquals(decoderConfig(gguf).headDim, 32);
  const large = jsonConfig({ ...JSON_SETTINGS, head_dim: 4096 });
  assertEquals(decoderConfig(large).headDim, 4096);
  // Heads that divide the hidden size unevenly are rounded down.
  assertEquals(decoderConfig(jsonConfig({ ...JSON_SETTINGS, hidden_size: 67 })).headDim, 16);
  assertEquals(decoderConfig(jsonConfig({ ...JSON_SETTINGS, hidden_size: 7 })).headDim, 1);
});

Deno.test("layers for multi-token prediction in GGUF files are not run", () => {
  const read = (nextn_predict_layers: number) =>
    decoderConfig(ggufConfig({ ...GGUF_SETTINGS, nextn_predict_layers })).nLayers;
  assertEquals([0, 1, 2].map(read), [3, 2, 1]);
  assertThrows(() => read(3), ForgeError, `nextn_predict_layers is "3"; expected a whole number`);
});

Deno.test("a family's own number of layers, activation and width of the MLP replace settings", () => {
  const json = jsonConfig({ ...JSON_SETTINGS, hidden_act: "xielu" });
  const own = decoderConfig(json, { nLayers: 5, activation: "gelu_erf", hasOwnActivation: true });
  assertEquals([own.nLayers, own.activation], [5, "gelu_erf"]);
  const { feed_forward_length: _, ...without } = GGUF_SETTINGS;
  const widthOf = (settings: typeof GGUF_SETTINGS, defaults: Parameters<typeof decoderConfig>[1]) =>
    decoderConfig(ggufConfig(settings), defaults).intermediateSize;
  assertEquals(widthOf(without, { intermediateSize: 96 }), 96);
  assertEquals(widthOf(GGUF_SETTINGS, { intermediateSize: 96 }), 128);
  assertThrows(() => widthOf(without, {}), ForgeError, "feed_forward_length is missing");
  const some = { ...GGUF_SETTINGS, feed_forward_length: Int32Array.of(0, 160, 0) };
  assertEquals(widthOf(some, { mlpLayer: 1 }), 160);
});

Deno.test("without a number of KV heads every head has its own", () => {
  const { num_key_value_heads: _, ...json } = JSON_SETTINGS;
  assertEquals(decoderConfig(jsonConfig(json)).nKvHeads, 4);
});

Deno.test("the norm's epsilon is read under the family's key", () => {
  const { rms_norm_eps: _, ...json } = JSON_SETTINGS;
  const config = jsonConfig({ ...json, norm_epsilon: 1e-4 });
  assertEquals(decoderConfig(config, { normEps: ["norm_epsilon", undefined] }).normEps, 1e-4);
});

Deno.test("the activation is that of the config, else of the family", () => {
  const read = (added: JsonObject) =>
    decoderConfig(jsonConfig({ ...JSON_SETTINGS, ...added })).activation;
  const gguf = decoderConfig(ggufConfig(GGUF_SETTINGS), { activation: "gelu_tanh" });
  assertEquals(gguf.activation, "gelu_tanh");
  assertEquals(read({}), "silu");
  assertEquals(read({ model_type: "gemma2" }), "gelu_tanh");
  const named = [
    ["silu", "silu"],
    ["swish", "silu"],
    ["gelu", "gelu_erf"],
    ["gelu_new", "gelu_tanh"],
    ["gelu_pytorch_tanh", "gelu_tanh"],
    ["relu2", "relu_squared"],
  ] as const;
  for (const [hidden_act, activation] of named) assertEquals(read({ hidden_act }), activation);
  const refused = assertThrows(() => read({ hidden_act: "tanhshrink" }), ForgeError);
  assertStringIncludes(refused.message, 'hidden_act is "tanhshrink"; forge supports');
  for (const [name] of named) assertStringIncludes(refused.message, `"${name}"`);
  // Gemma has another name for it and ignores this one.
  assertEquals(read({ model_type: "gemma2", hidden_act: "silu" }), "gelu_tanh");
  assertEquals(read({ model_type: "gemma2", hidden_activation: "gelu" }), "gelu_erf");
});

Deno.test("invalid settings are rejected", () => {
  const bad: [JsonObject, string, string][] = [
    [{ hidden_size: null }, "bad_model", "hidden_size is null; expected a whole"],
    [
      { num_key_value_heads: 3 },
      "bad_model",
      `is "3"; expected a divisor of the 4 attention heads`,
    ],
    [{ head_dim: 4097 }, "bad_model", `head_dim is "4097"; expected a whole number from 1 to 4096`],
    [{ hidden_size: 2 }, "bad_model", `head_dim is "0"`],
    [{ num_hidden_layers: 4097 }, "bad_model", `num_hidden_layers is "4097"; expected a whole`],
    [{ num_hidden_layers: [1, 2] }, "unsupported", "num_hidden_layers differs between layers"],
    [{ rms_norm_eps: 0 }, "bad_model", `rms_norm_eps is "0"`],
    [{ max_position_embeddings: -1 }, "bad_model", `max_position_embeddings is "-1"`],
    [{ hidden_act: "relu" }, "unsupported", `hidden_act is "relu"; forge supports`],
    [{ hidden_act: "constructor" }, "unsupported", `"constructor"`],
    [{ hidden_act: 1 }, "bad_model", `hidden_act is "1"; expected text`],
    [{ hidden_act: null }, "bad_model", "hidden_act is null"],
    [{ layer_types: ["full_attention"] }, "bad_model", "an entry for each of 3 layers"],
  ];
  for (const [added, code, includes] of bad) {
    const read = () => decoderConfig(jsonConfig({ ...JSON_SETTINGS, ...added }));
    const error = assertThrows(read, ForgeError, includes);
    assertEquals(error.code, code);
  }
});

Deno.test("GGUF's sizes for each layer must be equal", () => {
  for (const key of ["attention.head_count", "attention.head_count_kv", "feed_forward_length"]) {
    const value = Number(GGUF_SETTINGS[key]);
    const same = ggufConfig({ ...GGUF_SETTINGS, [key]: Int32Array.of(value, value, value) });
    assertEquals(decoderConfig(same), SETTINGS);
    const other = ggufConfig({ ...GGUF_SETTINGS, [key]: Int32Array.of(value, value, 2 * value) });
    const error = assertThrows(() => decoderConfig(other), ForgeError, `llama.${key} differs`);
    assertEquals(error.code, "unsupported");
  }
});

const NONE = undefined;

Deno.test("without a window every layer has full attention", () => {
  assertEquals(slidingWindows(jsonConfig({}), 2, undefined), [NONE, NONE]);
  assertEquals(slidingWindows(jsonConfig({ sliding_window: null }), 2, undefined), [NONE, NONE]);
  assertEquals(slidingWindows(ggufConfig({ "attention.sliding_window": 0 }), 2, 2), [NONE, NONE]);
  assertEquals(slidingWindows(ggufConfig({}), 2, 2), [NONE, NONE]);
  assertEquals(slidingWindows(jsonConfig({}), 2, 1), [NONE, NONE]);
  const layer_types = ["full_attention", "full_attention"];
  assertEquals(slidingWindows(jsonConfig({ layer_types }), 2, undefined), [NONE, NONE]);
});

Deno.test("every layer has the window, or all but the last of each period", () => {
  const json = jsonConfig({ sliding_window: 8 });
  assertEquals(slidingWindows(json, 3, undefined), [8, 8, 8]);
  assertEquals(slidingWindows(json, 5, 2), [8, NONE, 8, NONE, 8]);
  assertEquals(slidingWindows(json, 3, 1), [NONE, NONE, NONE]);
  const gguf = { "attention.sliding_window": 8, "attention.sliding_window_pattern": 3 };
  assertEquals(slidingWindows(ggufConfig(gguf), 4, 2), [8, 8, NONE, 8]);
});

Deno.test("types of layers override the period", () => {
  const layer_types = ["full_attention", "sliding_attention", "full_attention"];
  const json = jsonConfig({ sliding_window: 8, layer_types });
  assertEquals(slidingWindows(json, 3, 2), [NONE, 8, NONE]);
  for (const pattern of [[false, true, false], Uint8Array.of(0, 1, 0)]) {
    const gguf = { "attention.sliding_window": 8, "attention.sliding_window_pattern": pattern };
    assertEquals(slidingWindows(ggufConfig(gguf), 3, 2), [NONE, 8, NONE]);
  }
});

Deno.test("GGUF files name the layers with a window, if there are any", () => {
  const collected: unknown[] = [];
  const setting = (...noted: unknown[]) => void collected.push(noted);
  const sink = { setting, tensor: () => {}, numbers: () => {} };
  const config = new ConfigReader(fakeCheckpoint({ config: {} }), undefined, sink);
  noteWindows(config, [undefined, undefined]);
  assertEquals(collected, []);
  noteWindows(config, [8, undefined]);
  const key = "attention.sliding_window_pattern";
  assertEquals(collected, [[key, ["array", "bool", [true, false]]]]);
});

Deno.test("an invalid window or type of layer is rejected", () => {
  const bad: [JsonObject, string, string][] = [
    [{ sliding_window: 0 }, "bad_model", `sliding_window is "0"`],
    [{ sliding_window: "8" }, "bad_model", `sliding_window is "8"`],
    [{ layer_types: ["full_attention"] }, "bad_model", "an entry for each of 2 layers"],
    [
      { layer_types: ["full_attention", "linear_attention"] },
      "unsupported",
      `layer 1 is of the type "linear_attention"; forge supports "full_attention" and`,
    ],
  ];
  for (const [config, code, includes] of bad) {
    const error = assertThrows(() => slidingWindows(jsonConfig(config), 2, 2), ForgeError);
    assertEquals(error.code, code);
    assertStringIncludes(error.message, includes);
  }
});

Deno.test("layers that need a window are rejected without one", () => {
  const layer_types = ["full_attention", "sliding_attention"];
  for (
    const [settings, period, reason] of [
      [{}, 2, "missing"],
      [{ layer_types }, undefined, "missing"],
      [{ sliding_window: 0 }, undefined, `"0"`],
    ] as const
  ) {
    const read = () => slidingWindows(jsonConfig(settings), 2, period);
    assertThrows(read, ForgeError, `sliding_window is ${reason}; expected`);
  }
});

Deno.test("all but every fourth layer rotate, or those of a list", () => {
  const read = (settings: JsonObject, nLayers: number) =>
    rotatedLayers(jsonConfig(settings), nLayers).map(Number);
  assertEquals(read({}, 9), [1, 1, 1, 0, 1, 1, 1, 0, 1]);
  assertEquals(read({ no_rope_layer_interval: 2 }, 3), [1, 0, 1]);
  assertEquals(read({ no_rope_layers: [] }, 5), [1, 1, 1, 0, 1]);
  assertEquals(read({ no_rope_layers: [0, 1, 0] }, 3), [0, 1, 0]);
  for (const no_rope_layers of [[0, 1], 1]) {
    const message = "no_rope_layers is";
    assertThrows(() => read({ no_rope_layers }, 3), ForgeError, message);
  }
});

Deno.test("a soft-cap is optional, and above 0", () => {
  const read = (cap: number | null) => readSoftcap(jsonConfig({ cap }), "cap");
  assertEquals([read(30), read(null)], [30, undefined]);
  assertEquals(readSoftcap(ggufConfig({ cap: 30 }), "cap"), 30);
  assertThrows(() => read(0), ForgeError, `cap is "0"; expected a number above 0`);
});

Deno.test("Qwen's windows are off by default, and start at a layer", () => {
  const windows = (config: JsonObject) =>
    qwenWindows(jsonConfig({ sliding_window: 8, ...config }), 3);
  assertEquals(windows({}), [NONE, NONE, NONE]);
  assertEquals(windows({ use_sliding_window: false, max_window_layers: 0 }), [NONE, NONE, NONE]);
  assertEquals(windows({ use_sliding_window: true, max_window_layers: 1 }), [NONE, 8, 8]);
  // The default exceeds the number of layers.
  assertEquals(windows({ use_sliding_window: true }), [NONE, NONE, NONE]);
  const layer_types = ["sliding_attention", "full_attention", "full_attention"];
  assertEquals(windows({ use_sliding_window: true, layer_types }), [8, NONE, NONE]);
});
