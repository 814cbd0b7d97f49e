/** Low-rank adapters on disk: their pairs, and the numbers that their settings give them. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import { type Adapter, isAdapter, openAdapter } from "../../../src/formats/adapter.ts";
import type { GgufField } from "../../../src/formats/gguf/writer.ts";
import { float32Tensor } from "../../../src/formats/tensor_data.ts";
import { encodeGguf } from "../../support/parts.ts";
import { encodeSafetensors } from "../../support/safetensors_writer.ts";
import { TempFolder } from "../../support/temp_folder.ts";

type Shapes = Readonly<Record<string, readonly number[]>>;

const encoded = (shapes: Shapes) =>
  Object.entries(shapes).map(([name, shape]) => {
    return float32Tensor(name, shape, new Float32Array(shape.reduce((a, b) => a * b, 1)));
  });

/** Names of the tensors of modules, of rank 4 unless a shape is given. */
function pairs(...modules: readonly string[]): Shapes {
  return Object.fromEntries(modules.flatMap((module) => [
    [`base_model.model.${module}.lora_A.weight`, [4, 6]],
    [`base_model.model.${module}.lora_B.weight`, [5, 4]],
  ]));
}

/** Opens a folder of peft. */
function open(config: object, tensors: Shapes): Adapter {
  using folder = new TempFolder();
  const settings = { peft_type: "LORA", r: 4, lora_alpha: 8, ...config };
  folder.write("adapter_config.json", settings);
  folder.write(
    "adapter_model.safetensors",
    encodeSafetensors({ tensors: encoded(tensors) }),
  );
  return openAdapter(folder.path);
}

/** Opens a GGUF file. */
function openFile(tensors: Shapes, change: Record<string, GgufField> = {}): Adapter {
  using folder = new TempFolder();
  const metadata: Record<string, GgufField> = {
    "general.type": ["string", "adapter"],
    "general.architecture": ["string", "llama"],
    "adapter.type": ["string", "lora"],
    "adapter.lora.alpha": ["f32", 8],
    ...change,
  };
  return openAdapter(folder.write("a.gguf", encodeGguf({ metadata, tensors: encoded(tensors) })));
}

const factors = (config: object, ...modules: readonly string[]) =>
  open(config, pairs(...modules)).pairs.map(({ factor }) => factor);

Deno.test("a folder of peft has a pair for each module, with the settings of its file", () => {
  const adapter = open({ base_model_name_or_path: "some/model" }, {
    ...pairs("model.layers.0.q_proj"),
    "base_model.model.model.k_proj.lora_A.default.weight": [4, 6],
    "base_model.model.model.k_proj.lora_B.default.weight": [5, 4],
    "base_model.model.model.embed_tokens.lora_embedding_A": [4, 9],
    "base_model.model.model.embed_tokens.lora_embedding_B": [6, 4],
    // peft adds copies of the model's own tensors.
    "base_model.model.lm_head.base_layer.weight": [9, 6],
    "base_model.model.model.embed_tokens.base_layer.weight": [9, 6],
  });
  assertEquals([adapter.kind, adapter.architecture, adapter.baseModel], [
    "safetensors",
    undefined,
    "some/model",
  ]);
  const found = adapter.pairs.map(({ target, a, b, rank, factor, isOfEmbedding, nExperts }) => {
    return [target, a.shape, b.shape, rank, factor, isOfEmbedding, nExperts];
  });
  assertEquals(found, [
    ["model.layers.0.q_proj.weight", [4, 6], [5, 4], 4, 2, false, undefined],
    ["model.k_proj.weight", [4, 6], [5, 4], 4, 2, false, undefined],
    ["model.embed_tokens.weight", [4, 9], [6, 4], 4, 2, true, undefined],
  ]);
  assertEquals(open({ base_model_name_or_path: null }, pairs("a")).baseModel, undefined);
});

Deno.test("alpha is divided by the rank, or by its root", () => {
  assertEquals(factors({}, "a"), [2]);
  assertEquals(factors({ use_rslora: null }, "a"), [2]);
  assertEquals(factors({ use_rslora: true }, "a"), [4]);
  // Of stacked experts, the rank of each counts: here 4 for two of them.
  const experts: Shapes = {
    "base_model.model.mlp.experts.lora_A.weight": [8, 6],
    "base_model.model.mlp.experts.lora_B.weight": [5, 8],
  };
  const settings = { target_parameters: ["mlp.experts.up_proj"], use_rslora: true };
  const [pair] = open(settings, experts).pairs;
  assertEquals(
    [pair!.target, pair!.rank, pair!.nExperts, pair!.factor],
    ["mlp.experts.up_proj", 4, 2, 4],
  );
});

Deno.test("settings that change nothing are accepted", () => {
  const switches = ["use_dora", "lora_bias", "fan_in_fan_out", "use_qalora"];
  const off = Object.fromEntries(switches.map((name) => [name, false]));
  const empty = { ...off, bias: "none", modules_to_save: null, layer_replication: [] };
  const none = { alora_invocation_tokens: null, arrow_config: {}, kasa_config: null };
  for (const init of [true, false, "gaussian", "eva"]) {
    assertEquals(factors({ ...empty, ...none, init_lora_weights: init }, "a"), [2]);
  }
  const changes = { use_bdlora: { a: 1 }, modules_to_save: ["a"], bias: "all", kasa_config: 1 };
  const on = switches.map((name) => [name, true] as const);
  for (const [name, value] of [...on, ...Object.entries(changes)]) {
    const changed = () => factors({ [name]: value }, "a");
    assertThrows(changed, ForgeError, `has ${name} `);
  }
  for (
    const [name, value] of Object.entries({ use_rslora: "yes", target_parameters: ["a.b", 1] })
  ) assertThrows(() => factors({ [name]: value }, "a"), ForgeError, `has ${name} `);
  for (const init of ["pissa", "PiSSA_niter_4", "olora", "corda", "loftq", "lora_ga"]) {
    const changed = () => factors({ init_lora_weights: init }, "a");
    assertThrows(changed, ForgeError, "its model has other weights than the original");
  }
});

Deno.test("a pattern counts for the ends of a module's name, and the first that fits", () => {
  const alphas = (patterns: Record<string, number>, ...modules: readonly string[]) =>
    factors({ alpha_pattern: patterns }, ...modules).map((factor) => 4 * factor);
  const module = "model.layers.10.self_attn.q_proj";
  const cases: [Record<string, number>, number][] = [
    [{ q_proj: 1 }, 1],
    [{ "self_attn.q_proj": 1 }, 1],
    [{ "layers.10.self_attn.q_proj": 1 }, 1],
    [{ [module]: 1 }, 1],
    [{ [`^${module}$`]: 1 }, 1],
    [{ "self_attn\\.q_proj$": 1 }, 1],
    // Only whole parts count, and a caret stands for the begin of the name.
    [{ _proj: 1 }, 8],
    [{ "0.self_attn.q_proj": 1 }, 8],
    [{ self_attn: 1 }, 8],
    [{ "^q_proj": 1 }, 8],
    [{ "^layers.10.self_attn.q_proj": 1 }, 8],
    // Regular expressions.
    [{ "(q|k)_proj": 1 }, 1],
    [{ "[qk]_proj": 1 }, 1],
    [{ "layers.\\d+.self_attn.q_proj": 1 }, 1],
    [{ ".*\\.q_pro[j]": 1 }, 1],
    [{ "^layers.\\d+.self_attn.q_proj": 1 }, 8],
    [{ "^model.layers.\\d+.self_attn.q_proj": 1 }, 1],
    [{ "layers.\\d.self_attn.q_proj": 1 }, 8],
    [{ "(k|v)_proj": 1 }, 8],
    [{ "p[r]oj": 1 }, 8],
    // The first one counts, be it a name or an expression.
    [{ q_proj: 1, "self_attn.q_proj": 2 }, 1],
    [{ "self_attn.q_proj": 2, q_proj: 1 }, 2],
    [{ q_proj: 1, "q_proj$": 2 }, 1],
    [{ "[qk]_proj": 1, q_proj: 2 }, 1],
    [{ q_proj: 2, "[qk]_proj": 1 }, 2],
  ];
  for (const [patterns, alpha] of cases) {
    assertEquals(alphas(patterns, module), [alpha], JSON.stringify(patterns));
  }
  assertEquals(alphas({ k_proj: 1, q_proj: 2 }, "a.q_proj", "a.k_proj", "a.v_proj"), [2, 1, 8]);
  // Expressions are not matched with names of more than 256 characters.
  const long = `${"a".repeat(250)}.q_proj`;
  assertEquals(alphas({ "[q]_proj": 1 }, long, long.slice(1)), [8, 1]);
});

Deno.test("pairs that do not belong together are rejected", () => {
  const a = "base_model.model.a.lora_A.weight";
  const refusals: [Shapes, string][] = [
    [{ ...pairs("a"), "base_model.model.a.lora_A.default.weight": [4, 6] }, "for one matrix"],
    [{ ...pairs("a"), [a]: [3, 6] }, "has the shape [3,6]"],
    [{ ...pairs("a"), [a]: [4, 6, 1] }, "expected [rank, columns]"],
    [{ ...pairs("a"), "other.weight": [4, 6] }, "forge computes low-rank pairs"],
  ];
  for (const [tensors, message] of refusals) {
    assertThrows(() => open({}, tensors), ForgeError, message);
  }
});

Deno.test("a GGUF file has pairs of matrices, of stacked experts and of the embedding", () => {
  const adapter = openFile({
    "blk.0.attn_q.weight.lora_a": [4, 6],
    "blk.0.attn_q.weight.lora_b": [5, 4],
    "blk.0.ffn_up_exps.weight.lora_a": [3, 2, 6],
    "blk.0.ffn_up_exps.weight.lora_b": [3, 5, 2],
    "token_embd.weight.lora_a": [9, 4],
    "token_embd.weight.lora_b": [6, 4],
  }, { "general.base_model.0.name": ["string", "Some Model"] });
  assertEquals([adapter.kind, adapter.architecture, adapter.baseModel], [
    "gguf",
    "llama",
    "Some Model",
  ]);
  const found = adapter.pairs.map(({ target, rank, factor, isOfEmbedding, nExperts }) => {
    return [target, rank, factor, isOfEmbedding, nExperts];
  });
  assertEquals(found, [
    ["blk.0.attn_q.weight", 4, 2, false, undefined],
    ["blk.0.ffn_up_exps.weight", 2, 4, false, 3],
    ["token_embd.weight", 4, 2, true, undefined],
  ]);
  const refused = (tensors: Shapes, message: string) =>
    assertThrows(() => openFile(tensors), ForgeError, message);
  refused({ "a.lora_a": [3, 2, 6], "a.lora_b": [4, 5, 2] }, "expected [rank, columns]");
  refused({ "a.lora_a": [9, 4], "a.lora_b": [6, 4] }, "expected [rank, columns]");
  refused({ "a.lora_c": [9, 4] }, "forge computes low-rank pairs");
  const [embedding, side] = ["token_embd.weight.lora_a", "token_embd.weight.lora_b"];
  refused({ [embedding]: [9, 3], [side]: [6, 4] }, "expected [rank, columns]");
  refused({ "a.lora_a": [4097, 1], "a.lora_b": [1, 4097] }, "has rank 4097; forge computes up to");
  const [large] = openFile({ "a.lora_a": [4096, 1], "a.lora_b": [1, 4096] }).pairs;
  assertEquals(large?.rank, 4096);
});

Deno.test("an adapter is told from a model and from other files", () => {
  using folder = new TempFolder();
  assert(!isAdapter(folder.path));
  folder.write("adapter_config.json", {});
  assert(isAdapter(folder.path));
  const file = (type: string) => {
    const metadata: Record<string, GgufField> = { "general.type": ["string", type] };
    return isAdapter(folder.write("a.gguf", encodeGguf({ metadata })));
  };
  assertEquals([file("adapter"), file("model")], [true, false]);
  const text = folder.write("a.safetensors", "text");
  assert(!isAdapter(text));
  assertThrows(() => openAdapter(text), ForgeError, "give the folder of the file");
  const other = folder.write("a.txt", "text");
  assertThrows(() => openAdapter(other), ForgeError, "an adapter is a folder with");
  const missing = () => openAdapter(folder.path);
  assertThrows(missing, ForgeError, "has no adapter_model.safetensors");
});
