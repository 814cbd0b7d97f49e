/** Settings of config.json that no model can have: each is refused by its name, in one line. */
import { assert, assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { join } from "@std/path";
import { wantedTensors } from "../../../src/bench/synthetic/checkpoint.ts";
import { ForgeError } from "../../../src/errors.ts";
import type { JsonObject, JsonValue } from "../../../src/formats/json.ts";
import { generated } from "../families/generated.ts";
import { readJson } from "../reference_check.ts";

const FOLDER = import.meta.dirname ?? ".";

const encoders = readJson<{ readonly models: Readonly<Record<string, { config: JsonObject }>> }>(
  join(FOLDER, "..", "encoders", "encoders.json"),
);

/** A config of each architecture that generates, by a name. */
const DECODERS: Readonly<Record<string, JsonObject>> = {
  ...readJson<Record<string, JsonObject>>(join(FOLDER, "config_sweep_bases.json")),
  ...configsOf(generated.models),
};

function configsOf(models: Readonly<Record<string, { readonly config: JsonObject }>>) {
  return Object.fromEntries(Object.entries(models).map(([name, { config }]) => [name, config]));
}

/** Settings that determine the meaning of the others. */
const KINDS: ReadonlySet<string> = new Set(["model_type", "text_config"]);

/** Loads a model of a config without weights. */
function plan(config: JsonObject): void {
  wantedTensors({ name: "test", config, type: "F32" });
}

const REFUSALS: readonly (readonly [name: string, settings: JsonObject, message: string])[] = [
  [
    "bert",
    { position_embedding_type: "relative_key" },
    '"relative_key"; forge supports "absolute"',
  ],
  [
    "modernbert, cross-encoder",
    { classifier_pooling: "max" },
    'classifier_pooling is "max"; expected "cls" or "mean"',
  ],
  [
    "modernbert, cross-encoder",
    { classifier_activation: "mish" },
    'classifier_activation is "mish"; forge supports gelu,',
  ],
  [
    "lfm2",
    { layer_types: undefined!, full_attn_idxs: 2 },
    'full_attn_idxs is "2"; expected a list',
  ],
  ["lfm2", { layer_types: ["conv", "linear"] }, "layer_types"],
  [
    "lfm2",
    { layer_types: undefined!, num_hidden_layers: 4097 },
    'num_hidden_layers is "4097"; expected a whole number from 1 to 4096',
  ],
  [
    "mamba2",
    { num_hidden_layers: 4097 },
    'num_hidden_layers is "4097"; expected a whole number from 1 to 4096',
  ],
  ["mamba2", { expand: 3 }, "expected a divisor of the width of"],
  ["gemma4_text", { attention_bias: true }, 'attention_bias is "true"; forge supports false'],
  ["llama4_text", { attn_scale: -0.5 }, 'attn_scale is "-0.5"; expected a number of at least 0'],
  ["llama4_text", { moe_layers: 3 }, 'moe_layers is "3"; expected a list of layers'],
  ["phimoe", { router_jitter_noise: -1 }, 'router_jitter_noise is "-1"; expected a number of at'],
  ["qwen3_moe", { mlp_only_layers: 1 }, 'mlp_only_layers is "1"; expected a list of layers'],
  ["deepseek_v3", { scoring_func: "max" }, "scoring_func"],
];

Deno.test("settings that an architecture lacks are refused with those that it has", () => {
  const configs = { ...DECODERS, ...configsOf(encoders.models) };
  for (const [name, settings, message] of REFUSALS) {
    const error = assertThrows(() => plan({ ...configs[name]!, ...settings }), ForgeError);
    assertStringIncludes(error.message, message);
  }
});

/** Settings that an error may name in place of the wrong one, which they follow from. */
const ALSO_NAMED: Readonly<Record<string, readonly string[]>> = {
  enable_moe_block: ["num_experts"],
  head_dim: ["partial_rotary_factor"],
  hidden_size: ["head_dim"],
  moe_intermediate_size: ["intermediate_size"],
  num_attention_heads: ["num_key_value_heads"],
  num_experts: ["num_local_experts"],
  num_hidden_layers: ["layer_types"],
  num_local_experts: ["num_experts"],
  rope_parameters: ["rope_theta", "original_max_position_embeddings"],
  use_sliding_window: ["sliding_window"],
};

/** Values that are wrong for most settings. */
const WRONG: readonly JsonValue[] = ["no such", "", -1, 0, 0.5, 1e30, true, [], [1, "a"], {}, null];

Deno.test("any setting of any architecture with any value loads, or is refused in one line", () => {
  const unnamed: string[] = [];
  let refused = 0;
  for (const [name, config] of Object.entries(DECODERS)) {
    plan(config);
    const keys = Object.keys(config).filter((key) => !KINDS.has(key));
    for (const [key, value] of keys.flatMap((key) => WRONG.map((value) => [key, value] as const))) {
      const what = `${name}: ${key} = ${JSON.stringify(value)}`;
      try {
        plan({ ...config, [key]: value });
      } catch (error) {
        assert(error instanceof ForgeError, `${what}: ${error}`);
        const { code, message } = error;
        assert(["bad_model", "unsupported"].includes(code), `${code}: ${message}`);
        assert(!message.includes("\n"), message);
        refused++;
        if (![key, ...ALSO_NAMED[key] ?? []].some((key) => message.includes(key))) {
          unnamed.push(`${what}: ${message}`);
        }
      }
    }
  }
  assertEquals(unnamed, []);
  assert(refused > 4000, `${refused}`);
});
