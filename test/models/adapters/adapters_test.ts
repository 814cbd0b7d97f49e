/**
 * Low-rank adapters against peft (adapters.json), from folders and as GGUF files, on models of both
 * formats.
 */
import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { join } from "@std/path";
import { syntheticTokenizer } from "../../../src/bench/synthetic/tokenizer.ts";
import type { GgufField } from "../../../src/formats/gguf/writer.ts";
import type { JsonObject } from "../../../src/formats/json.ts";
import { float32Tensor } from "../../../src/formats/tensor_data.ts";
import {
  type AdapterChoice,
  ForgeError,
  load,
  type LoadOptions,
  type Model,
  quantize,
} from "../../../src/mod.ts";
import { Adapters } from "../../../src/engine/request/adapters.ts";
import { openAdapter } from "../../../src/formats/adapter.ts";
import { createHandler } from "../../../src/serve/mod.ts";
import { ROOT } from "../../support/checkout.ts";
import { devices } from "../../support/devices.ts";
import { encodeGguf } from "../../support/parts.ts";
import { encodeSafetensors, writeModelFolder } from "../../support/safetensors_writer.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { writeRandomLlama } from "../../support/tiny_llama.ts";
import { filledTensors } from "../families/generated.ts";
import type { FloatTensor } from "../families/tiny_gguf.ts";
import { assertClose, readJson } from "../reference_check.ts";

type Shapes = Readonly<Record<string, readonly number[]>>;

interface AdaptedModel {
  readonly config: JsonObject;
  readonly tensors: Shapes;
  readonly adapters: Readonly<
    Record<string, { readonly config: JsonObject; readonly tensors: Shapes }>
  >;
  /** Every fourth of the logits after the prompt, by the adapters in use, joined by "+". */
  readonly logits: Readonly<Record<string, readonly number[]>>;
}

/** Written by adapters.py. */
const { prompt, models } = readJson<{
  readonly prompt: readonly number[];
  readonly models: Readonly<Record<string, AdaptedModel>>;
}>(join(import.meta.dirname ?? ".", "adapters.json"));

/** Tolerance of the GGUF tests as of the folders: all weights are F32. */
const TOLERANCE = 1e-4;

const CPU: LoadOptions = { device: "cpu", kvType: "F32", products: "f32" };
const kinds: readonly string[] = devices.map(({ kind }) => kind);
const DEVICES = [
  { device: "reference" },
  CPU,
  { device: "cuda", kvType: "F32" },
  { device: "metal", kvType: "F32" },
].filter(({ device }) => kinds.includes(device!)) as readonly LoadOptions[];

/** True for devices of which a machine may have one. */
const isOnlyOne = ({ device }: LoadOptions) => device === "cuda" || device === "metal";

const DEMO = join(ROOT, "models", "demo");

const stored = (tensors: readonly FloatTensor[]) =>
  tensors.map(({ name, shape, values }) => float32Tensor(name, shape, values));

function writeModel(folder: TempFolder, name: string): string {
  const { config, tensors } = models[name]!;
  const path = join(folder.path, name);
  // Prompts are token ids; any tokenizer will do.
  writeRandomLlama(folder.at("tokens"));
  const tokenizer = readJson(folder.at("tokens", "tokenizer.json"));
  writeModelFolder(
    path,
    { "config.json": config, "tokenizer.json": tokenizer },
    stored(filledTensors(tensors)),
  );
  return path;
}

/** Writes an adapter as peft does, with changed settings and tensors. */
function writeAdapter(
  folder: TempFolder,
  model: string,
  name: string,
  settings: JsonObject = {},
  change: (tensors: FloatTensor[]) => readonly FloatTensor[] = (tensors) => tensors,
): string {
  const { config, tensors } = models[model]!.adapters[name]!;
  const path = join(folder.path, `${model}-${name}`);
  Deno.mkdirSync(path, { recursive: true });
  Deno.writeTextFileSync(
    join(path, "adapter_config.json"),
    JSON.stringify({ ...config, ...settings }),
  );
  Deno.writeFileSync(
    join(path, "adapter_model.safetensors"),
    encodeSafetensors({ tensors: stored(change(filledTensors(tensors))) }),
  );
  return path;
}

/** The adapters of one model, with their names. */
function writeAdapters(folder: TempFolder, model: string) {
  return Object.keys(models[model]!.adapters).map((name) => ({
    name,
    path: writeAdapter(folder, model, name),
  }));
}

/** Compares the logits of every choice of adapters. */
async function assertLogits(model: Model, { logits }: AdaptedModel): Promise<void> {
  for (const [choice, expected] of Object.entries(logits)) {
    const lora = choice === "none" ? [] : choice.split("+").map((name) => ({ name }));
    const actual = await model.logits(Int32Array.from(prompt), { lora });
    assertClose(actual.filter((_, i) => i % 4 === 0), expected, TOLERANCE);
  }
}

const WITH_ADAPTERS = "tensor parallelism divides no experts and no latent attention with adapters";

/** Models that tensor parallelism refuses, with or because of their adapters. */
const UNDIVIDED: Readonly<Record<string, string>> = {
  nemotron_h: "recurrent state",
  qwen3_moe: WITH_ADAPTERS,
  mixtral: WITH_ADAPTERS,
  gpt_oss: "stored layout of experts",
  llama4_text: "mixture of experts",
  granitemoe: WITH_ADAPTERS,
  deepseek_v3: WITH_ADAPTERS,
  qwen3_5_text: "linear attention",
};

for (const options of DEVICES) {
  for (const [name, adapted] of Object.entries(models)) {
    Deno.test(`adapters of ${name} agree with peft (${options.device})`, async () => {
      using folder = new TempFolder();
      const path = writeModel(folder, name);
      const lora = writeAdapters(folder, name);
      await using model = await load(path, { ...options, lora });
      await assertLogits(model, adapted);
      if (isOnlyOne(options)) return;
      await using staged = await load(path, { ...options, lora, pipelineParallel: 2 });
      await assertLogits(staged, adapted);
      const divided = () => load(path, { ...options, lora, tensorParallel: 2 });
      const refusal = UNDIVIDED[name];
      if (refusal !== undefined) {
        const { code, message } = await assertRejects(divided, ForgeError);
        assertEquals(code, "unsupported");
        return assertStringIncludes(message, refusal);
      }
      await using ranks = await divided();
      await assertLogits(ranks, adapted);
    });
  }
}

/** The names of GGUF for the matrices of Llama's layers, and for the other tensors. */
const GGUF_NAMES: readonly (readonly [RegExp, string])[] = [
  [/^model\.layers\.(\d+)\./, "blk.$1."],
  [/self_attn\.([qkv])_proj/, "attn_$1"],
  [/self_attn\.o_proj/, "attn_output"],
  [/mlp\.(gate|up|down)_proj/, "ffn_$1"],
  [/input_layernorm/, "attn_norm"],
  [/post_attention_layernorm/, "ffn_norm"],
  [/^model\.embed_tokens/, "token_embd"],
  [/^model\.norm/, "output_norm"],
  [/^lm_head/, "output"],
];

function ggufName(name: string): string {
  return GGUF_NAMES.reduce((text, [pattern, to]) => text.replace(pattern, to), name);
}

/** Returns a tensor of Llama as llama.cpp's converter stores it: rows of q and k are reordered. */
function converted({ name, shape, values }: FloatTensor): FloatTensor {
  const [, part] = /attn_([qk])\./.exec(name) ?? [];
  if (part === undefined || name.endsWith(".lora_a")) return { name, shape, values };
  const [rows = 0, cols = 0] = shape, headDim = rows / (part === "q" ? 4 : 2);
  const result = new Float32Array(values.length);
  for (let row = 0; row < rows; row++) {
    const at = row % headDim;
    const from = row - at + at % 2 * headDim / 2 + Math.floor(at / 2);
    result.set(values.subarray(from * cols, (from + 1) * cols), row * cols);
  }
  return { name, shape, values: result };
}

/** Writes the Llama model as a GGUF file. */
function writeGgufModel(folder: TempFolder): string {
  const settings: Readonly<Record<string, GgufField>> = {
    block_count: ["u32", 2],
    context_length: ["u32", 64],
    embedding_length: ["u32", 32],
    feed_forward_length: ["u32", 48],
    "attention.head_count": ["u32", 4],
    "attention.head_count_kv": ["u32", 2],
    "attention.layer_norm_rms_epsilon": ["f32", 1e-6],
    "rope.dimension_count": ["u32", 8],
    vocab_size: ["u32", 120],
  };
  const metadata = {
    "general.architecture": ["string", "llama"] as const,
    ...Object.fromEntries(
      Object.entries(settings).map(([key, field]) => [`llama.${key}`, field]),
    ),
    ...syntheticTokenizer(120),
  };
  const tensors = filledTensors(models.llama!.tensors)
    .map((tensor) => converted({ ...tensor, name: ggufName(tensor.name) }));
  return folder.write("model.gguf", encodeGguf({ metadata, tensors: stored(tensors) }));
}

/** Writes the adapter "some" of the Llama model as a GGUF file, with a scale of peft's. */
function writeGgufAdapter(
  folder: TempFolder,
  change: Readonly<Record<string, GgufField>> = {},
): string {
  const metadata: Record<string, GgufField> = {
    "general.type": ["string", "adapter"],
    "general.architecture": ["string", "llama"],
    "adapter.type": ["string", "lora"],
    // peft divides by the root of the rank.
    "adapter.lora.alpha": ["f32", 12 * Math.sqrt(3)],
    ...change,
  };
  const tensors = filledTensors(models.llama!.adapters.some!.tensors)
    .filter(({ name }) => name.includes(".lora_"))
    .map((tensor) => {
      const [, module = "", side = ""] =
        /^base_model\.model\.(.+)\.lora_([AB])\.weight$/.exec(tensor.name) ?? [];
      const name = `${ggufName(module)}.weight.lora_${side.toLowerCase()}`;
      return converted({ ...tensor, name });
    });
  return folder.write("some.gguf", encodeGguf({ metadata, tensors: stored(tensors) }));
}

Deno.test("adapters of both formats fit models of both formats", async () => {
  using folder = new TempFolder();
  const adapters = [
    ["some", writeAdapter(folder, "llama", "some")],
    ["some", writeGgufAdapter(folder)],
    ["all", writeAdapter(folder, "llama", "all")],
  ] as const;
  for (const path of [writeModel(folder, "llama"), writeGgufModel(folder)]) {
    for (const [name, adapter] of adapters) {
      await using model = await load(path, { ...CPU, lora: [{ name, path: adapter }] });
      const { none, [name]: adapted } = models.llama!.logits;
      await assertLogits(model, { ...models.llama!, logits: { none: none!, [name]: adapted! } });
    }
  }
});

const N_EXPERTS = 5;

/** Returns the part of an expert in a tensor of peft's for all experts. */
function ofExpert({ name, shape, values }: FloatTensor, expert: number): FloatTensor {
  const [rows = 0, cols = 0] = shape;
  if (name.includes("lora_A")) {
    const size = rows / N_EXPERTS * cols;
    const own = values.slice(expert * size, (expert + 1) * size);
    return { name, shape: [rows / N_EXPERTS, cols], values: own };
  }
  const own = values.filter((_, i) => i % N_EXPERTS === expert);
  return { name, shape: [rows, cols / N_EXPERTS], values: own };
}

/** Matches the names of pairs of stacked experts: those of gate and up have a base layer. */
const STACKED_PAIR = /^(.+\.mlp\.experts)(\.base_layer)?\.lora_([AB])\.weight$/;

/** Returns an adapter's tensors with a pair for each expert, as of models with single experts. */
function singleExperts(tensors: readonly FloatTensor[]): FloatTensor[] {
  return tensors.flatMap((tensor) => {
    const [, module, isGateUp, side] = STACKED_PAIR.exec(tensor.name) ?? [];
    if (module === undefined) return [tensor];
    return Array.from({ length: N_EXPERTS }, (_, expert) => {
      const { shape: [rows = 0, cols = 0], values } = ofExpert(tensor, expert);
      const parts = isGateUp === undefined ? ["down"] : ["gate", "up"];
      return parts.map((part, i): FloatTensor => {
        const name = `${module}.${expert}.${part}_proj.lora_${side}.weight`;
        if (side === "A") return { name, shape: [rows, cols], values };
        const size = values.length / parts.length;
        const own = values.slice(i * size, (i + 1) * size);
        return { name, shape: [rows / parts.length, cols], values: own };
      });
    }).flat();
  });
}

/** Returns an adapter's tensors as older versions of peft write them: A is of the rows. */
function reversedExperts(tensors: readonly FloatTensor[]): FloatTensor[] {
  return tensors.map((tensor) => {
    if (!STACKED_PAIR.test(tensor.name)) return tensor;
    const isA = tensor.name.includes("lora_A");
    const other = tensor.name.replace(/lora_[AB]/, isA ? "lora_B" : "lora_A");
    const { shape: [rows = 0, cols = 0], values } = tensors.find(({ name }) => name === other)!;
    const rank = (isA ? cols : rows) / N_EXPERTS;
    // A has ranks expert by expert, B experts rank by rank.
    const reversed = Float32Array.from(values, (_, i) => {
      const col = i % rows, row = Math.floor(i / rows);
      const [from, to] = isA ? [rank, N_EXPERTS] : [N_EXPERTS, rank];
      if (isA) return values[col * cols + row % from * to + Math.floor(row / from)]!;
      return values[(col % from * to + Math.floor(col / from)) * cols + row]!;
    });
    return { name: tensor.name, shape: [cols, rows], values: reversed };
  });
}

/** Writes the adapter "other" of the model with experts as a GGUF file. */
function writeGgufExperts(folder: TempFolder): string {
  const parts = new Map<string, FloatTensor[]>();
  for (const tensor of singleExperts(filledTensors(models.qwen3_moe!.adapters.other!.tensors))) {
    const name = ggufName(tensor.name.replace("base_model.model.", ""))
      .replace(/mlp\.experts\.\d+\.(\w+)_proj/, "ffn_$1_exps")
      .replace("mlp.gate", "ffn_gate_inp")
      .replace(/\.lora_([AB])\.weight$/, (_, side) => `.weight.lora_${side.toLowerCase()}`);
    parts.set(name, [...parts.get(name) ?? [], tensor]);
  }
  const tensors = Array.from(parts, ([name, own]): FloatTensor => {
    const { shape, values } = own[0]!;
    if (!name.includes("_exps")) return { name, shape, values };
    const all = Float32Array.from(own.flatMap(({ values }) => [...values]));
    return { name, shape: [N_EXPERTS, ...shape], values: all };
  });
  const metadata: Record<string, GgufField> = {
    "general.type": ["string", "adapter"],
    "general.architecture": ["string", "qwen3moe"],
    "adapter.type": ["string", "lora"],
    // peft divides by the root of the rank.
    "adapter.lora.alpha": ["f32", 6 * Math.sqrt(2)],
  };
  return folder.write("other.gguf", encodeGguf({ metadata, tensors: stored(tensors) }));
}

/** Writes a model as a folder, and that folder as a GGUF file. */
async function writeBoth(folder: TempFolder, name: string): Promise<[string, string]> {
  const path = writeModel(folder, name), file = folder.at(`${name}.gguf`);
  const tokenizer = join(path, "tokenizer.json");
  // GGUF files need a name for the way in which text is cut.
  const { pre_tokenizer } = readJson<JsonObject>(join(DEMO, "tokenizer.json"));
  const json = JSON.stringify({ ...readJson<JsonObject>(tokenizer), pre_tokenizer });
  Deno.writeTextFileSync(tokenizer, json);
  await quantize(path, file, { type: "F32" });
  return [path, file];
}

/** Models whose architectures forge does not write as GGUF. */
const NOT_WRITTEN = ["nemotron_h", "llama4_text", "qwen3_5_text"];

for (const name of Object.keys(models).filter((name) => !NOT_WRITTEN.includes(name))) {
  Deno.test(`adapters of ${name} fit its GGUF file`, async () => {
    using folder = new TempFolder();
    const [, file] = await writeBoth(folder, name);
    const lora = writeAdapters(folder, name);
    await using model = await load(file, { ...CPU, lora });
    await assertLogits(model, models[name]!);
  });
}

Deno.test("adapters of experts fit in every layout, and models of both formats", async () => {
  using folder = new TempFolder();
  const write = (form: string, settings: JsonObject = {}, change?: typeof singleExperts) => {
    const path = folder.at(form);
    Deno.renameSync(writeAdapter(folder, "qwen3_moe", "experts", settings, change), path);
    return { name: "experts", path };
  };
  const single = {
    target_parameters: ["mlp.gate.weight"],
    rank_pattern: { gate_proj: 4, up_proj: 4 },
  };
  const [folderModel, ggufModel] = await writeBoth(folder, "qwen3_moe");
  const adapters = [
    write("stacked"),
    write("single", single, singleExperts),
    write("reversed", {}, reversedExperts),
    { name: "other", path: writeGgufExperts(folder) },
  ];
  const { none, ...adapted } = models.qwen3_moe!.logits;
  for (const path of [folderModel, ggufModel]) {
    for (const adapter of adapters) {
      await using model = await load(path, { ...CPU, lora: [adapter] });
      const logits = { none: none!, [adapter.name]: adapted[adapter.name]! };
      await assertLogits(model, { ...models.qwen3_moe!, logits });
    }
  }
});

Deno.test("adapters of a model's decoder alone name the same matrices", async () => {
  using folder = new TempFolder();
  const path = writeModel(folder, "qwen2");
  const adapter = writeAdapter(
    folder,
    "qwen2",
    "all",
    {},
    (tensors) =>
      tensors.map((tensor) => ({
        ...tensor,
        name: tensor.name.replace(".model.model.", ".model."),
      })),
  );
  await using model = await load(path, { ...CPU, lora: [{ name: "all", path: adapter }] });
  const { none, all } = models.qwen2!.logits;
  await assertLogits(model, { ...models.qwen2!, logits: { none: none!, all: all! } });
});

Deno.test("an adapter's scale multiplies its corrections", async () => {
  using folder = new TempFolder();
  const path = writeModel(folder, "phi3");
  const adapter = writeAdapter(folder, "phi3", "fused");
  const halved = writeAdapter(folder, "phi3", "fused", { lora_alpha: 4 });
  const tokens = Int32Array.from(prompt);
  const options = CPU;
  await using model = await load(path, { ...options, lora: [{ path: halved, name: "halved" }] });
  const expected = await model.logits(tokens);
  writeAdapter(folder, "phi3", "fused");
  const lora = [{ path: adapter, name: "fused", scale: 0.5 }];
  await using scaled = await load(path, { ...options, lora });
  assertClose(await scaled.logits(tokens), expected, 1e-6);
  assertClose(await scaled.logits(tokens, { lora: [{ name: 0, scale: 0.5 }] }), expected, 1e-6);
});

Deno.test("adapters of scale 0 are none, and no part of what pages depend on", () => {
  using folder = new TempFolder();
  const [first, second] = writeAdapters(folder, "llama");
  const both = new Adapters([first!, second!]), alone = new Adapters([first!]);
  assertEquals(both.resolve([{ name: 0, scale: 0 }]), undefined);
  const chosen = [{ name: 0, scale: 0.5 }];
  assertEquals(
    both.identity(both.resolve([...chosen, { name: 1, scale: 0 }])!),
    alone.identity(alone.resolve(chosen)!),
  );
});

Deno.test("an alpha of 0 in a GGUF file is none, as for llama.cpp", () => {
  using folder = new TempFolder();
  const pairs = (alpha: number) =>
    openAdapter(writeGgufAdapter(folder, { "adapter.lora.alpha": ["f32", alpha] })).pairs;
  assert(pairs(6).every(({ factor, rank }) => factor === 6 / rank));
  assert(pairs(0).every(({ factor }) => factor === 1));
});

for (
  const [modelName, options] of ["llama", "qwen3_moe", "deepseek_v3"].flatMap((name) =>
    DEVICES.map((options) => [name, options] as const)
  )
) {
  const title = `requests with different adapters of ${modelName} share steps and no pages`;
  Deno.test(`${title} (${options.device})`, async () => {
    using folder = new TempFolder();
    const path = writeModel(folder, modelName);
    const lora = writeAdapters(folder, modelName);
    const [one, other] = lora.map(({ name }) => name) as [string, string];
    const choices = [[], [{ name: one }], [{ name: other }], [{ name: one, scale: -0.5 }]];
    // Longer than a page, so that whole pages would be shared.
    const long = Int32Array.from({ length: 40 }, (_, i) => prompt[i % prompt.length]!);
    const generate = { temperature: 0, maxTokens: 8, logprobs: 2 };
    const alone = [];
    for (const choice of choices) {
      await using model = await load(path, { ...options, lora });
      alone.push(await model.complete(long, { ...generate, lora: choice }));
    }
    await using model = await load(path, { ...options, lora });
    const together = await Promise.all(
      choices.map((choice) => model.complete(long, { ...generate, lora: choice })),
    );
    for (const [i, { tokenIds, logprobs, cachedPromptTokens }] of together.entries()) {
      assertEquals([tokenIds, logprobs], [alone[i]!.tokenIds, alone[i]!.logprobs]);
      assertEquals(cachedPromptTokens, 0);
    }
    assert(new Set(together.map(({ logprobs }) => JSON.stringify(logprobs))).size === 4);
    // The same adapters share what is cached.
    const again = await model.complete(long, { ...generate, lora: other });
    assertEquals([again.tokenIds, again.logprobs], [alone[2]!.tokenIds, alone[2]!.logprobs]);
    assertEquals(again.cachedPromptTokens, long.length - 1);
  });
}

Deno.test("a saved prompt belongs to its adapters", async () => {
  using folder = new TempFolder();
  const path = writeModel(folder, "llama");
  const lora = writeAdapters(folder, "llama");
  const file = folder.at("prompt.kv");
  const tokens = Int32Array.from(prompt);
  const options = { ...CPU, lora };
  {
    await using model = await load(path, options);
    await model.savePrompt(file, tokens, { lora: "some" });
  }
  await using model = await load(path, options);
  for (const choice of [[], "all", [{ name: "some", scale: 2 }], undefined]) {
    await assertRejects(
      () => model.loadPrompt(file, { lora: choice }),
      ForgeError,
      "another set of adapters",
    );
  }
  assertEquals(await model.loadPrompt(file, { lora: "some" }), tokens);
  const generate = { temperature: 0, maxTokens: 2 };
  const { cachedPromptTokens } = await model.complete(tokens, { ...generate, lora: "some" });
  assertEquals(cachedPromptTokens, tokens.length - 1);
  assertEquals((await model.complete(tokens, { ...generate, lora: [] })).cachedPromptTokens, 0);
});

/** Changes the tensors whose names match. */
function changing(pattern: RegExp, change: (tensor: FloatTensor) => FloatTensor | undefined) {
  return (tensors: FloatTensor[]) =>
    tensors.flatMap((tensor) => {
      const changed = pattern.test(tensor.name) ? change(tensor) : tensor;
      return changed === undefined ? [] : [changed];
    });
}

Deno.test("adapters that do not fit are refused by name", async () => {
  using folder = new TempFolder();
  const path = writeModel(folder, "llama");
  const of = (settings: JsonObject, change?: (tensors: FloatTensor[]) => FloatTensor[]) => () =>
    writeAdapter(folder, "llama", "all", settings, change);
  const wider = ({ name, shape, values }: FloatTensor) => ({
    name,
    shape: [shape[0]!, shape[1]! + 1],
    values: new Float32Array(values.length + shape[0]!),
  });
  const refusals: [make: () => string, message: string][] = [
    [of({ peft_type: "LOHA" }), 'peft_type "LOHA"; forge computes "LORA"'],
    [of({ use_dora: true }), "use_dora true, which forge does not compute"],
    [of({ bias: "all" }), 'bias "all"'],
    [of({ modules_to_save: ["score"] }), 'modules_to_save "score"'],
    [of({ fan_in_fan_out: true }), "fan_in_fan_out true"],
    [of({ init_lora_weights: "pissa_niter_4" }), 'init_lora_weights "pissa_niter_4"'],
    [of({ init_lora_weights: "loftq" }), 'init_lora_weights "loftq"'],
    [of({ kasa_config: { beta: 1 } }), "kasa_config an object"],
    [of({ r: 0 }), "r is 0; valid is a whole number from 1 to 4096"],
    [of({ r: 5 }), "has rank 4; adapter_config.json implies 5"],
    [of({ lora_alpha: "6" }), 'lora_alpha is "6"; valid is a number'],
    [of({ lora_alpha: null }), "lora_alpha is null"],
    [of({ lora_alpha: 1e39 }), "lora_alpha is 1e+39; valid is a number of at most 3.4e38"],
    [of({ alpha_pattern: { up_proj: "6" } }), 'alpha_pattern of "up_proj" is "6"'],
    [of({ use_rslora: "no" }), 'use_rslora "no"; valid is true or false'],
    [of({ alpha_pattern: { "(a+)+": 1 } }), 'the regular expression "(a+)+"'],
    [of({ alpha_pattern: { "(a|aa)*": 1 } }), 'the regular expression "(a|aa)*"'],
    [of({ rank_pattern: { "a*a*a*b": 1 } }), 'the regular expression "a*a*a*b"'],
    [of({}, changing(/0\.mlp\.up_proj\.lora_B/, () => undefined)), "without its B matrix"],
    [of({}, changing(/0\.mlp\.up_proj\.lora_A/, () => undefined)), "without its A matrix"],
    [of({}, () => []), "has no tensors"],
    [of({ rank_pattern: 5 }), "rank_pattern is 5; expected an object"],
    [of({ alpha_pattern: ["up_proj"] }), "alpha_pattern is an array; expected an object"],
    [of({}, changing(/0\.mlp\.up_proj\.lora_A/, wider)), "is for another model"],
    [
      of({}, changing(/1\.mlp/, (t) => ({ ...t, name: t.name.replace("layers.1", "layers.7") }))),
      'changes the matrix "model.layers.7.mlp.',
    ],
    [
      of({}, (tensors) => [...tensors, {
        ...tensors[0]!,
        name: "base_model.model.model.embed_tokens.lora_magnitude_vector",
      }]),
      "low-rank pairs of matrices only",
    ],
    [() => writeAdapter(folder, "starcoder2", "activated"), "mlp.c_fc.weight"],
    [() => writeGgufAdapter(folder, { "adapter.lora.alpha": ["f32", NaN] }), "alpha is NaN"],
    [() => writeGgufAdapter(folder, { "adapter.type": ["string", "ia3"] }), 'adapter.type "ia3"'],
    [
      () => writeGgufAdapter(folder, { "adapter.lora.alpha": ["array", "f32", [1]] }),
      "adapter.lora.alpha is a list; valid is a number",
    ],
    [
      () =>
        writeGgufAdapter(folder, { "adapter.alora.invocation_tokens": ["array", "u32", [1, 2]] }),
      "from its invocation tokens on (aLoRA)",
    ],
    [
      () => writeGgufAdapter(folder, { "general.type": ["string", "model"] }),
      'general.type "model"',
    ],
    [() => folder.at("nowhere"), "nowhere"],
    [() => path, "has no adapter_config.json"],
  ];
  for (const [make, message] of refusals) {
    const lora = [{ path: make() }];
    await assertRejects(() => load(path, { device: "reference", lora }), ForgeError, message);
  }
  const experts = writeModel(folder, "qwen3_moe");
  const ofExperts = (
    settings: JsonObject,
    change?: (tensors: FloatTensor[]) => FloatTensor[],
  ) => writeAdapter(folder, "qwen3_moe", "experts", settings, change);
  const expertRefusals: [make: () => string, message: string][] = [
    [
      () => ofExperts({ rank_pattern: {} }),
      "has rank 20; adapter_config.json implies 3 for each expert",
    ],
    [() => ofExperts({ rank_pattern: { gate_up_proj: 5 } }), "is for another model"],
    [
      () => ofExperts({ target_parameters: ["mlp.experts.down_proj"] }),
      'names "down_proj" of "model.layers.0.mlp.experts"; "adapter_model.safetensors" has pairs of 2',
    ],
    [() => ofExperts({ target_parameters: 7 }), "target_parameters 7; valid is a list of names"],
    [() => ofExperts({}, changing(/1\.mlp\.experts\.lora_B/, wider)), "expected [rank, columns]"],
    [
      () => ofExperts({ rank_pattern: { gate_up_proj: 4, "mlp.gate.weight": 1 } }),
      'the matrix "model.layers.0.mlp.gate.weight" has [5,32]',
    ],
    [() => ofExperts({ target_parameters: [] }), "has rank 20; adapter_config.json implies 3"],
  ];
  for (const [make, message] of expertRefusals) {
    const lora = [{ path: make() }];
    await assertRejects(() => load(experts, { device: "reference", lora }), ForgeError, message);
  }
  const gguf = writeGgufModel(folder);
  const foreign = writeGgufAdapter(folder, { "general.architecture": ["string", "qwen2"] });
  await assertRejects(
    () => load(gguf, { device: "reference", lora: [{ path: foreign }] }),
    ForgeError,
    'is for the architecture "qwen2"',
  );
});

Deno.test("an adapter may change the layer that drafts tokens, loaded or not", async () => {
  using folder = new TempFolder();
  const name = "base_model.model.model.layers.4.eh_proj";
  const tensors = [[`${name}.lora_A.weight`, 1, 384], [`${name}.lora_B.weight`, 192, 1]] as const;
  Deno.writeTextFileSync(
    folder.at("adapter_config.json"),
    JSON.stringify({ peft_type: "LORA", r: 1, lora_alpha: 1 }),
  );
  Deno.writeFileSync(
    folder.at("adapter_model.safetensors"),
    encodeSafetensors({
      tensors: tensors.map(([name, rows, cols]) =>
        float32Tensor(name, [rows, cols], new Float32Array(rows * cols))
      ),
    }),
  );
  for (const speculate of ["on", "off"] as const) {
    const lora = [{ path: folder.path, name: "drafts" }];
    await using model = await load(DEMO, { device: "cpu", speculate, lora });
    const { text } = await model.complete("Once upon a time", { temperature: 0, maxTokens: 4 });
    assert(text.length > 0);
  }
});

Deno.test("a choice of unknown adapters is refused", async () => {
  using folder = new TempFolder();
  const path = writeModel(folder, "phi3");
  const lora = [{ path: writeAdapter(folder, "phi3", "fused"), name: "fused" }];
  await using model = await load(path, { device: "reference", lora });
  const tokens = Int32Array.from(prompt);
  const refused = (lora: unknown, message: string) =>
    assertRejects(() => model.complete(tokens, { lora: lora as string }), ForgeError, message);
  await refused("other", 'there is no adapter "other"; loaded are "fused"');
  await refused([{ name: 1 }], "there is no adapter 1");
  await refused([{ name: "fused", scale: NaN }], "the scale of the adapter");
  await refused([{ name: "fused" }, { name: 0, scale: 2 }], 'lora has the adapter "fused" twice');
  await refused([{ name: "fused", scal: 2 }], "valid is the name of an adapter, or a list");
  await refused(7, "lora is 7; valid is the name of an adapter");
  await assertRejects(
    () => load(path, { device: "reference", lora: [lora[0]!, lora[0]!] }),
    ForgeError,
    'two adapters are named "fused"',
  );
});

Deno.test("an adapter that is not finite is refused by its file", async () => {
  using folder = new TempFolder();
  const path = writeModel(folder, "phi3");
  const damage = changing(/0\.self_attn\.qkv_proj\.lora_B/, ({ name, shape, values }) => {
    const damaged = Float32Array.from(values);
    damaged[5] = NaN;
    return { name, shape, values: damaged };
  });
  const lora = [{ path: writeAdapter(folder, "phi3", "fused", {}, damage), name: "fused" }];
  await using model = await load(path, { device: "reference", lora });
  const tokens = Int32Array.from(prompt);
  const { message } = await assertRejects(() => model.complete(tokens), ForgeError);
  assertStringIncludes(message, join("phi3-fused", "adapter_model.safetensors"));
  assertStringIncludes(message, 'qkv_proj.lora_B.weight" holds NaN');
  await model.complete(tokens, { maxTokens: 2, lora: [] });
});

Deno.test("patterns of a configuration cost no time for each pair", () => {
  using folder = new TempFolder();
  const names = Array.from({ length: 10_000 }, (_, i) => `base_model.model.m${i}.x`);
  const tensors = names.flatMap((name) =>
    ["A", "B"].map((side) =>
      float32Tensor(`${name}.lora_${side}.weight`, [1, 1], Float32Array.of(1))
    )
  );
  folder.write("adapter_model.safetensors", encodeSafetensors({ tensors }));
  // The first of several patterns that fit counts.
  const patterns = { "^m7.x": 8, x: 4, "m9.x": 2 };
  const others = Array.from({ length: 200_000 }, (_, i) => [`n${i}`, 1]);
  folder.write("adapter_config.json", {
    ...{ peft_type: "LORA", r: 1, lora_alpha: 3 },
    alpha_pattern: { ...patterns, ...Object.fromEntries(others) },
  });
  const factors = openAdapter(folder.path).pairs.map(({ factor }) => factor);
  assertEquals([factors[7], factors[8], factors[9], factors.length], [8, 4, 4, 10_000]);
});

Deno.test("a server chooses adapters by the name of the model and by lora", async () => {
  using folder = new TempFolder();
  const path = writeModel(folder, "llama");
  const lora = writeAdapters(folder, "llama");
  await using model = await load(path, { ...CPU, lora });
  const handle = createHandler(model, { names: ["tiny"] });
  const get = async (path: string) => (await handle(new Request(`http://localhost${path}`))).json();
  const post = async (body: JsonObject) => {
    const options = { prompt: [...prompt], max_tokens: 3, temperature: 0, logprobs: 1 };
    const response = await handle(
      new Request("http://localhost/v1/completions", {
        method: "POST",
        body: JSON.stringify({ ...options, ...body }),
      }),
    );
    return { status: response.status, body: await response.json() };
  };
  const { data } = await get("/v1/models");
  assertEquals(data.map(({ id }: { id: string }) => id), ["tiny", "tiny:all", "tiny:some"]);
  assertEquals((await get("/v1/models/tiny:some")).id, "tiny:some");

  const expected = async (choice: AdapterChoice) => {
    const options = { maxTokens: 3, temperature: 0, logprobs: 1, lora: choice };
    const { logprobs = [] } = await model.complete(Int32Array.from(prompt), options);
    return logprobs.map(({ logprob }) => logprob);
  };
  const cases: [JsonObject, AdapterChoice, string][] = [
    [{}, [], "tiny"],
    [{ model: "tiny" }, [], "tiny"],
    [{ model: "tiny:some" }, "some", "tiny:some"],
    [{ lora: "all" }, "all", "tiny"],
    [
      { model: "tiny:some", lora: [{ id: 0, scale: -1 }] },
      [{ name: "all", scale: -1 }],
      "tiny:some",
    ],
    [{ lora: [{ name: "all" }, { id: 1 }] }, [{ name: "all" }, { name: "some" }], "tiny"],
  ];
  // All at once, so that they share steps.
  const answers = await Promise.all(cases.map(([body]) => post(body)));
  for (const [i, [body, choice, name]] of cases.entries()) {
    const { choices, model: answered } = answers[i]!.body;
    assertEquals(choices[0].logprobs.token_logprobs, await expected(choice), JSON.stringify(body));
    assertEquals(answered, name);
  }

  const refused = async (body: JsonObject, status: number, message: string) => {
    const answer = await post(body);
    assertEquals(answer.status, status, JSON.stringify(answer.body));
    assertStringIncludes(answer.body.error.message, message);
  };
  await refused({ model: "tiny:none" }, 404, '"tiny:none" is not served here');
  await refused({ lora: "none" }, 400, 'there is no adapter "none"');
  await refused({ lora: [{ id: 2 }] }, 400, "there is no adapter 2");
  await refused({ lora: [{ scale: 1 }] }, 400, "lora[0] is");
  await refused({ lora: [{ id: 0, scale: "x" }] }, 400, "lora[0].scale");
  await refused({ lora: [{ id: 0, weight: 1 }] }, 400, 'unknown key "weight"');
  await refused({ lora: 1 }, 400, "lora is 1");
});
