import { assert, assertEquals, assertThrows } from "@std/assert";
import { openBenchModel } from "../../../src/bench/bench_model.ts";
import { measure } from "../../../src/bench/measure.ts";
import { SyntheticModel, writeSyntheticModel } from "../../../src/bench/synthetic/model.ts";
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
  using model = await openBenchModel(file.model, {
    name: "tiny-moe",
    device: "cpu",
    threads: 1,
    contextLength: 32,
  });
  assertEquals(model.summary.type.startsWith("qwen3_moe"), true, model.summary.type);
  const workload = { nPrompt: 16, nGen: 2, nDepth: 0 };
  const times = [];
  for await (const { decode } of measure(model.runner, workload, 2)) times.push(decode);
  assertEquals(times.map((time) => time > 0), [true, true]);
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
  using file = new SyntheticModel({ name: "tiny-hybrid", config, type: "Q8_0" }, quantizer);
  quantizer.close();
  assert(typeof file.model !== "string");
  const at = "model.layers.0.linear_attn";
  assertEquals(file.model.tensors.get(`${at}.conv1d.weight`)?.shape, [128, 1, 4]);
  assertEquals(file.model.tensors.get(`${at}.A_log`)?.shape, [4]);
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
