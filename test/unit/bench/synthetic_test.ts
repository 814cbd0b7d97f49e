import { assert, assertAlmostEquals, assertEquals, assertThrows } from "@std/assert";
import { openBenchModel } from "../../../src/bench/bench_model.ts";
import { measure } from "../../../src/bench/measure.ts";
import { SyntheticModel, writeSyntheticModel } from "../../../src/bench/synthetic/model.ts";
import { writeEmptyCheckpoint } from "../../../src/bench/synthetic/checkpoint.ts";
import { syntheticTokenizer } from "../../../src/bench/synthetic/tokenizer.ts";
import { SyntheticWeights } from "../../../src/bench/synthetic/weights.ts";
import { mean, sampleDeviation } from "../../../src/bench/statistics.ts";
import type { Checkpoint } from "../../../src/formats/checkpoint.ts";
import { readGguf } from "../../../src/formats/gguf/gguf.ts";
import { dataParts } from "../../../src/formats/tensor_data.ts";
import { type ModelShape, SYNTHETIC_TYPES } from "../../../src/bench/synthetic/shapes.ts";
import { openBackend } from "../../../src/engine/load/open_backend.ts";
import { ForgeError } from "../../../src/errors.ts";
import { load } from "../../../src/mod.ts";
import { TempFolder } from "../../support/temp_folder.ts";

const SHAPE: ModelShape = {
  architecture: "qwen3",
  nLayers: 2,
  hiddenSize: 256,
  intermediateSize: 512,
  nHeads: 4,
  nKvHeads: 2,
  headDim: 64,
  vocabSize: 500,
  contextLength: 128,
  ropeTheta: 10000,
  tied: false,
};

Deno.test("synthetic models: load, generate and have the requested types", async () => {
  using folder = new TempFolder();
  const quantizer = openBackend("cpu", 1);
  try {
    for (const type of SYNTHETIC_TYPES) {
      for (const architecture of ["llama", "qwen3"] as const) {
        const path = folder.at(`${architecture}-${type}.gguf`);
        // Heads of qwen3 may be wider together than the hidden state.
        const nHeads = architecture === "qwen3" ? 8 : SHAPE.nHeads;
        const spec = { name: `tiny:${type}`, shape: { ...SHAPE, architecture, nHeads }, type };
        writeSyntheticModel(path, spec, quantizer);
        await using model = await load(path, { threads: 1 });
        assertEquals(model.unusedTensors, []);
        const { tensors } = model.checkpoint;
        assertEquals(tensors.get("blk.1.ffn_down.weight")?.type, type);
        assertEquals(tensors.get("output.weight")?.type, /^Q[45]/.test(type) ? "Q6_K" : type);
        const { tokenIds } = await model.complete("Any text: ✓", { maxTokens: 4, temperature: 0 });
        assert(tokenIds.length > 0, type);
        const logits = await model.logits("x");
        assert(new Set(logits).size > 100, `${type}: the logits are all alike`);
      }
    }
  } finally {
    quantizer.close();
  }
});

Deno.test("synthetic models: a file has the tensors of its shape and of a predictor", () => {
  using folder = new TempFolder();
  const quantizer = openBackend("cpu", 1);
  const list = (tied: boolean, hasPredictor: boolean) => {
    const shape = { ...SHAPE, nHeads: 8, nLayers: 1, tied };
    const spec = { name: "m", shape, type: "Q4_0", hasPredictor } as const;
    writeSyntheticModel(folder.at("m.gguf"), spec, quantizer);
    const { metadata, tensors } = readGguf(folder.at("m.gguf"));
    const sizes = ["block_count", "nextn_predict_layers"].map((key) =>
      metadata.get(`qwen3.${key}`)
    );
    const shown = Array.from(
      tensors.values(),
      ({ name, type, shape }) => `${name.replace(/\.weight$/, "")} ${type} ${shape.join("x")}`,
    );
    return [sizes.join(), ...shown];
  };
  const layer = (index: number) =>
    [
      "attn_norm F32 256",
      "attn_q Q4_0 512x256",
      "attn_k Q4_0 128x256",
      "attn_v Q4_0 128x256",
      "attn_q_norm F32 64",
      "attn_k_norm F32 64",
      "attn_output Q4_0 256x512",
      "ffn_norm F32 256",
      "ffn_gate Q4_0 512x256",
      "ffn_up Q4_0 512x256",
      "ffn_down Q4_0 256x512",
    ].map((tensor) => `blk.${index}.${tensor}`);
  const tied = ["token_embd Q6_K 500x256", "output_norm F32 256"];
  assertEquals(list(true, false), ["1,0", ...tied, ...layer(0)]);
  const untied = ["token_embd Q4_0 500x256", "output_norm F32 256", "output Q6_K 500x256"];
  assertEquals(list(false, true), [
    "2,1",
    ...untied,
    ...["enorm F32 256", "hnorm F32 256", "shared_head_norm F32 256", "eh_proj Q4_0 256x512"]
      .map((tensor) => `blk.1.nextn.${tensor}`),
    ...layer(0),
    ...layer(1),
  ]);
  const weights = new SyntheticWeights(quantizer);
  assertThrows(() => weights.matrix("m", "Q4_0", 2, 33), RangeError, "m: ");
  quantizer.close();
});

Deno.test("synthetic models: weights are normally distributed, and those of tensors differ", () => {
  const quantizer = openBackend("cpu", 1);
  const weights = new SyntheticWeights(quantizer);
  const [one, other] = ["a", "b"].map((name) => {
    const parts = [...dataParts(weights.matrix(name, "F32", 300, 1000))];
    return parts.flatMap((part) => [...new Float32Array(part.slice().buffer)]);
  }) as [number[], number[]];
  quantizer.close();
  assert(one.some((value, i) => value !== other[i]));
  for (const values of [one, other]) {
    // Mean, standard deviation, and the shares within one and two of them.
    assertAlmostEquals(mean(values), 0, 2e-4);
    assertAlmostEquals(sampleDeviation(values), 0.02, 2e-4);
    for (const [limit, share] of [[0.02, 0.6827], [0.04, 0.9545]] as const) {
      const within = values.filter((value) => Math.abs(value) < limit).length / values.length;
      assertAlmostEquals(within, share, 0.005);
    }
  }
});

Deno.test("synthetic models: the tokenizer has special tokens, bytes, a space and words", () => {
  const fields = syntheticTokenizer(262);
  const [, , tokens] = fields["tokenizer.ggml.tokens"] as [string, string, string[]];
  const [, , types] = fields["tokenizer.ggml.token_type"] as [string, string, number[]];
  const shown = tokens.map((token, id) => `${token} ${types[id]}`);
  // Types of GGUF: 1 normal, 2 unknown, 3 control, 6 byte.
  assertEquals(shown.slice(0, 4), ["<unk> 2", "<s> 3", "</s> 3", "<0x00> 6"]);
  assertEquals(shown.slice(-4), ["<0xFF> 6", "▁ 1", "▁w260 1", "▁w261 1"]);
});

Deno.test("synthetic models: decoding gives back encoded text", async () => {
  using folder = new TempFolder();
  const quantizer = openBackend("cpu", 1);
  writeSyntheticModel(folder.at("m.gguf"), { name: "m", shape: SHAPE, type: "F16" }, quantizer);
  quantizer.close();
  await using model = await load(folder.at("m.gguf"));
  const text = "naïve w400 🙂";
  assertEquals(model.tokenizer.decode(model.tokenizer.encode(text)).trim(), text);
});

Deno.test("synthetic models: a file that cannot be written is removed, with its handlers", () => {
  using folder = new TempFolder();
  const outer = Deno.env.get("TMPDIR");
  const config = { model_type: "no such architecture" };
  const quantizer = openBackend("cpu", 1);
  const make = () => new SyntheticModel({ name: "none", config, type: "Q4_K" }, quantizer);
  let listeners = 0;
  const { addEventListener, removeEventListener } = globalThis;
  globalThis.addEventListener = () => listeners++;
  globalThis.removeEventListener = () => listeners--;
  try {
    Deno.env.set("TMPDIR", folder.path);
    assertThrows(make, ForgeError, "no such architecture");
    assertEquals([...Deno.readDirSync(folder.path)], []);
    assertEquals(listeners, 0);
    Deno.env.set("TMPDIR", folder.at("no such folder"));
    const error = assertThrows(make, ForgeError, 'cannot write "a temporary file": ');
    assertEquals(error.code, "device");
  } finally {
    Object.assign(globalThis, { addEventListener, removeEventListener });
    if (outer === undefined) Deno.env.delete("TMPDIR");
    else Deno.env.set("TMPDIR", outer);
    quantizer.close();
  }
});

Deno.test("synthetic models: the config.json of any architecture suffices", async () => {
  const config = {
    model_type: "qwen3_moe",
    num_hidden_layers: 2,
    hidden_size: 256,
    intermediate_size: 320,
    moe_intermediate_size: 96,
    num_experts: 4,
    num_experts_per_tok: 2,
    decoder_sparse_step: 2,
    num_attention_heads: 4,
    num_key_value_heads: 2,
    head_dim: 64,
    vocab_size: 300,
    max_position_embeddings: 64,
    rms_norm_eps: 1e-6,
    rope_theta: 10000,
    tie_word_embeddings: false,
  };
  const quantizer = openBackend("cpu", 1);
  using file = new SyntheticModel({ name: "tiny-moe", config, type: "Q4_K" }, quantizer);
  quantizer.close();
  assert(typeof file.model !== "string");
  const { tensors } = file.model;
  const types = ["self_attn.q_proj", "mlp.gate", "mlp.experts.3.down_proj", "input_layernorm"]
    .map((name) => tensors.get(`model.layers.1.${name}.weight`)?.type);
  // 96 columns are not a whole number of Q4_K blocks.
  assertEquals(types, ["Q4_K", "F32", "F16", "F32"]);
  assertEquals(tensors.get("lm_head.weight")?.type, "Q6_K");
  assertEquals(tensors.get("model.embed_tokens.weight")?.type, "Q4_K");
  using model = await openBenchModel(file.model, {
    name: "tiny-moe",
    device: "cpu",
    threads: 1,
    contextLength: 32,
  });
  assertEquals(model.summary.type.startsWith("qwen3_moe"), true, model.summary.type);
  assertEquals(model.runner.limits.maxSequences, 1);
  assert(model.backend.startsWith("cpu:"), model.backend);
  const workload = { nPrompt: 16, nGen: 2, nDepth: 0 };
  const times = [];
  for await (const { decode } of measure(model.runner, workload, 2)) times.push(decode);
  assertEquals(times.map((time) => time > 0), [true, true]);
});

/** Reads a tensor of one dimension from a synthetic model. */
function vector({ path, model }: SyntheticModel, name: string): number[] {
  const { offset, bytes } = (model as Checkpoint).tensors.get(name)!;
  return [...new Float32Array(Deno.readFileSync(path).slice(offset, offset + bytes).buffer)];
}

Deno.test("synthetic models: biases are zero", () => {
  const config = {
    model_type: "qwen2",
    num_hidden_layers: 1,
    hidden_size: 64,
    intermediate_size: 96,
    num_attention_heads: 4,
    num_key_value_heads: 2,
    vocab_size: 300,
    max_position_embeddings: 64,
    rms_norm_eps: 1e-6,
    tie_word_embeddings: true,
  };
  const quantizer = openBackend("cpu", 1);
  using file = new SyntheticModel({ name: "tiny-bias", config, type: "F16" }, quantizer);
  quantizer.close();
  assertEquals(new Set(vector(file, "model.layers.0.self_attn.k_proj.bias")), new Set([0]));
});

Deno.test("synthetic models: hybrid models have convolutions and decay rates", async () => {
  const config = {
    model_type: "qwen3_5_text",
    layer_types: ["linear_attention", "full_attention"],
    num_hidden_layers: 2,
    hidden_size: 64,
    intermediate_size: 96,
    num_attention_heads: 4,
    num_key_value_heads: 2,
    head_dim: 16,
    linear_num_key_heads: 2,
    linear_num_value_heads: 4,
    linear_key_head_dim: 16,
    linear_value_head_dim: 16,
    linear_conv_kernel_dim: 4,
    vocab_size: 300,
    max_position_embeddings: 64,
    rms_norm_eps: 1e-6,
    tie_word_embeddings: false,
  };
  const quantizer = openBackend("cpu", 1);
  const spec = { name: "tiny-hybrid", config, type: "Q8_0" } as const;
  using file = new SyntheticModel(spec, quantizer);
  quantizer.close();
  assert(typeof file.model !== "string");
  const at = "model.layers.0.linear_attn";
  assertEquals(file.model.tensors.get(`${at}.conv1d.weight`)?.shape, [128, 1, 4]);
  assertEquals(file.model.tensors.get(`${at}.A_log`)?.shape, [4]);
  assertEquals(vector(file, `${at}.A_log`), [-3, -3, -3, -3]);
  assertEquals(new Set(vector(file, `${at}.norm.weight`)), new Set([1]));
  // An empty file for plans has the same tensors at the same places.
  using folder = new TempFolder();
  const empty = writeEmptyCheckpoint(folder.at("m"), spec).tensors;
  const placed = Array.from(file.model.tensors, ([name, info]) => [name, { ...info, file: "" }]);
  assertEquals(Array.from(empty, ([name, info]) => [name, { ...info, file: "" }]), placed);
  assertEquals(Deno.statSync(folder.at("m")).size, Deno.statSync(file.path).size);
  using model = await openBenchModel(file.model, {
    name: "tiny-hybrid",
    device: "cpu",
    threads: 1,
    contextLength: 32,
  });
  const times = [];
  for await (const { decode } of measure(model.runner, { nPrompt: 16, nGen: 2, nDepth: 4 }, 1)) {
    times.push(decode);
  }
  assertEquals(times.map((time) => time > 0), [true]);
});

Deno.test("synthetic models: terminating the process removes the file", async () => {
  const module = (path: string) => JSON.stringify(import.meta.resolve(`../../../src/${path}`));
  const code = `
    import { SyntheticModel } from ${module("bench/synthetic/model.ts")};
    import { openBackend } from ${module("engine/load/open_backend.ts")};
    const spec = { name: "m", shape: ${JSON.stringify(SHAPE)}, type: "F32" };
    const model = new SyntheticModel(spec, openBackend("cpu", 1));
    console.log(model.path);
    setTimeout(() => {}, 60_000);
  `;
  for (const [signal, expected] of [["SIGTERM", 143], ["SIGHUP", 129]] as const) {
    const child = new Deno.Command(Deno.execPath(), {
      args: ["eval", "--quiet", code],
      stdin: "null",
      stdout: "piped",
    }).spawn();
    let path = "";
    for await (const part of child.stdout.pipeThrough(new TextDecoderStream())) {
      path += part;
      if (path.endsWith("\n")) child.kill(signal);
    }
    assertEquals((await child.status).code, expected);
    assert(path.trim().endsWith(".gguf"), path);
    assertThrows(() => Deno.statSync(path.trim()), Deno.errors.NotFound);
  }
});

Deno.test("synthetic models: disposing the object or failing to write removes the file", () => {
  const quantizer = openBackend("cpu", 1);
  const spec = { name: "m", shape: SHAPE, type: "Q8_0" } as const;
  let path = "";
  {
    using model = new SyntheticModel(spec, quantizer);
    path = model.path;
    assert(Deno.statSync(path).isFile);
  }
  assertThrows(() => Deno.statSync(path), Deno.errors.NotFound);
  const missing = `${path}/missing/model.gguf`;
  const write = () => writeSyntheticModel(missing, spec, quantizer);
  assertEquals(assertThrows(write, ForgeError, "cannot write").code, "device");
  quantizer.close();
});

Deno.test("synthetic models: exiting the process removes the file", async () => {
  const module = (path: string) => JSON.stringify(import.meta.resolve(`../../../src/${path}`));
  const code = `
    import { SyntheticModel } from ${module("bench/synthetic/model.ts")};
    import { openBackend } from ${module("engine/load/open_backend.ts")};
    const spec = { name: "m", shape: ${JSON.stringify(SHAPE)}, type: "F32" };
    const model = new SyntheticModel(spec, openBackend("cpu", 1));
    Deno.statSync(model.path);
    console.log(model.path);
    Deno.exit(0);
  `;
  const command = new Deno.Command(Deno.execPath(), { args: ["eval", "--quiet", code] });
  const { code: exitCode, stdout, stderr } = await command.output();
  assertEquals(exitCode, 0, new TextDecoder().decode(stderr));
  const path = new TextDecoder().decode(stdout).trim();
  assert(path.endsWith(".gguf"), path);
  assertThrows(() => Deno.statSync(path), Deno.errors.NotFound);
});
