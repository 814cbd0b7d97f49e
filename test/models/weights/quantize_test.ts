/** Quantising weights while they load gives the logits of weights that were quantised before. */
import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { openBackend } from "../../../src/engine/load/open_backend.ts";
import { ForgeError } from "../../../src/errors.ts";
import { type Checkpoint, openCheckpoint } from "../../../src/formats/checkpoint.ts";
import { quantized, QUANTIZED_TYPES } from "../../../src/formats/quantized.ts";
import { float32Tensor, type TensorData } from "../../../src/formats/tensor_data.ts";
import type { TensorInfo, TensorType } from "../../../src/formats/tensor_info.ts";
import { load, type LoadOptions } from "../../../src/mod.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { writeRandomLlama } from "../../support/tiny_llama.ts";

/** A shape whose rows are whole blocks of 256. */
const SHAPE = { hidden: 256, intermediate: 512, headDim: 64 };

async function logits(path: string, options: LoadOptions) {
  await using model = await load(path, options);
  const values = await model.logits("What is quantised is a little different.");
  return { values, bytes: model.memory.weights };
}

/** Writes the same model with its weights quantised and dequantised. */
function writeRounded(folder: string, tensors: ReadonlyMap<string, TensorInfo>): void {
  const device = openBackend("reference");
  const rounded = (tensor: TensorData): TensorData => {
    const { type } = tensors.get(tensor.name)!;
    if (type === "F32") return tensor;
    const [rows, cols] = tensor.shape as [number, number];
    const values = new Float32Array((tensor.data as Uint8Array<ArrayBuffer>).slice().buffer);
    const weight = device.uploadWeight(type, rows, cols, device.quantize(type, rows, cols, values));
    return float32Tensor(tensor.name, [rows, cols], device.readWeight(weight, 0, rows));
  };
  try {
    writeRandomLlama(folder, { ...SHAPE, change: (all) => all.map(rounded) });
  } finally {
    device.close();
  }
}

Deno.test("quantising while loading gives the logits of quantised weights", async () => {
  using folder = new TempFolder();
  const path = folder.at("plain");
  writeRandomLlama(path, SHAPE);
  const plain = await logits(path, { device: "reference" });
  for (const quantize of QUANTIZED_TYPES) {
    const before = folder.at(quantize);
    writeRounded(before, quantized(openCheckpoint(path), quantize).tensors);
    const expected = await logits(before, { device: "reference" });
    const made = await logits(path, { device: "reference", quantize });
    assertEquals(made.values, expected.values, quantize);
    assert(made.bytes < 0.3 * plain.bytes, `${made.bytes} of ${plain.bytes} bytes`);
    const onCpu = await logits(path, { device: "cpu", quantize });
    assert(angle(onCpu.values, expected.values) < 0.1, `${quantize} on the CPU`);
    assert(angle(made.values, plain.values) < (quantize === "Q8_0" ? 0.05 : 0.6), quantize);
  }
});

/** Returns the angle between two vectors, in radians. */
function angle(a: Float32Array, b: Float32Array): number {
  const dot = (x: Float32Array, y: Float32Array) => x.reduce((sum, xi, i) => sum + xi * y[i]!, 0);
  return Math.acos(Math.min(1, dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b))));
}

/** Returns a checkpoint that holds only tensors. */
function checkpointOf(
  kind: Checkpoint["kind"],
  tensors: Readonly<Record<string, readonly [TensorType, ...number[]]>>,
): Checkpoint {
  const infos = Object.entries(tensors).map(([name, [type, ...shape]]): [string, TensorInfo] => {
    return [name, { name, type, shape, file: "file", offset: 0, bytes: 1 }];
  });
  const config = { modelType: "llama", config: undefined, generationConfig: undefined };
  return {
    kind,
    path: "model",
    files: ["file"],
    ...config,
    metadata: undefined,
    tensors: new Map(infos),
    tokenizerJson: () => undefined,
    tokenizerConfig: () => undefined,
    chatTemplate: undefined,
  };
}

function typesOf({ tensors }: Checkpoint): string[] {
  return Array.from(tensors.values(), ({ type }) => type);
}

Deno.test("weights are quantised to a type that depends on their name and shape", () => {
  const folder = checkpointOf("safetensors", {
    "model.embed_tokens.weight": ["BF16", 1000, 512],
    "model.layers.0.self_attn.q_proj.weight": ["BF16", 512, 512],
    "model.layers.0.self_attn.kv_b_proj.weight": ["BF16", 512, 512],
    "model.layers.0.mlp.gate.weight": ["BF16", 64, 512],
    "model.layers.0.mlp.gate_proj.weight": ["F32", 96, 160],
    "model.layers.0.mlp.down_proj.weight": ["F16", 160, 100],
    "model.layers.0.mlp.experts.gate_up_proj": ["BF16", 8, 512, 512],
    "model.layers.0.input_layernorm.weight": ["F32", 512],
    "lm_head.weight": ["F16", 1000, 96],
  });
  const types = typesOf(quantized(folder, "Q4_K"));
  const kept = ["F16", "BF16", "F32"];
  assertEquals(types, ["Q6_K", "Q4_K", "BF16", "BF16", "Q5_0", "F16", "BF16", "F32", "Q8_0"]);
  assertEquals(typesOf(quantized(folder, "Q8_0")).filter((type) => !kept.includes(type)), [
    ...["Q8_0", "Q8_0", "Q8_0", "Q8_0"],
  ]);

  const gguf = checkpointOf("gguf", {
    "token_embd.weight": ["Q6_K", 1000, 512],
    "blk.0.ffn_gate_exps.weight": ["F16", 8, 512, 512],
    "blk.0.ffn_gate_inp.weight": ["F32", 64, 512],
    "blk.0.attn_output.weight": ["Q4_0", 512, 512],
    "blk.0.scale.weight": ["F32", 2 ** 20],
  });
  assertEquals(typesOf(quantized(gguf, "Q4_0")), ["Q6_K", "Q4_0", "F32", "Q4_0", "F32"]);
});

Deno.test("tables have at least six bits, and matrices that choose or recur stay floats", () => {
  const typesIn = (kind: Checkpoint["kind"], names: readonly string[]) => {
    const tensors = names.map((name) => [`${name}.weight`, ["F16", 64, 256]] as const);
    return new Set(
      typesOf(quantized(
        checkpointOf(kind, { ...Object.fromEntries(tensors), "a.up.weight": ["F16", 64, 256] }),
        "Q4_K",
      )).slice(0, -1),
    );
  };
  const layer = (...names: string[]) => names.map((name) => `model.layers.0.${name}`);
  const block = (...names: string[]) => names.map((name) => `blk.0.${name}`);
  const tables = ["model.embed_tokens", "model.embed_tokens_per_layer", "lm_head"];
  assertEquals(typesIn("safetensors", tables), new Set(["Q6_K"]));
  assertEquals(typesIn("gguf", ["token_embd", "output"]), new Set(["Q6_K"]));
  // Not an output matrix.
  assertEquals(typesIn("gguf", block("attn_output")), new Set(["Q4_K"]));
  const routers = layer("mlp.gate", "mlp.router", "mlp.router.layer", "mlp.shared_expert_gate");
  const recurrent = ["ba", "a", "b"].map((name) => `linear_attn.in_proj_${name}`);
  const kept = [...routers, ...layer(...recurrent, "self_attn.kv_b_proj")];
  assertEquals(typesIn("safetensors", kept), new Set(["F16"]));
  const gates = block("ffn_gate_inp", "ffn_gate_inp_shexp", "ssm_ba", "ssm_alpha", "ssm_beta");
  const latent = block("attn_kv_b", "attn_k_b", "attn_v_b");
  assertEquals(typesIn("gguf", [...gates, ...latent]), new Set(["F16"]));
});

Deno.test("the smallest matrix has 8192 elements, and packed ones stay as they are", () => {
  const file = checkpointOf("gguf", { "a.weight": ["F32", 128, 64], "b.weight": ["F32", 127, 64] });
  const codes = file.tensors.get("a.weight")!;
  const packed = { packing: "float", groupRows: 1, groupCols: 64, codes } as const;
  const c = { ...codes, name: "c.weight", packed };
  const all = quantized({ ...file, tensors: new Map([...file.tensors, [c.name, c]]) }, "Q8_0");
  assertEquals(typesOf(all), ["Q8_0", "F32", "F32"]);
  const [made] = all.tensors.values();
  assertEquals([made?.bytes, made?.packed], [128 * 68, packed]);
});

Deno.test("everything but the tensors is as in the checkpoint", () => {
  const { tensors, ...others } = checkpointOf("gguf", { "a.weight": ["F32", 128, 64] });
  const checkpoint: Checkpoint = {
    ...others,
    tensors,
    files: ["a", "b"],
    multimodal: "outer",
    config: { a: 1 },
    generationConfig: { b: 2 },
    metadata: new Map([["c", 3]]),
    tokenizerJson: () => ({ d: 4 }),
    tokenizerConfig: () => ({ e: 5 }),
    chatTemplate: "template",
  };
  const facts = ({ tensors: _, tokenizerJson, tokenizerConfig, ...rest }: Checkpoint) => {
    return { ...rest, json: tokenizerJson(), settings: tokenizerConfig() };
  };
  assertEquals(facts(quantized(checkpoint, "Q8_0")), facts(checkpoint));
});

Deno.test("tensors that cannot be quantised are rejected", async () => {
  const done = checkpointOf("gguf", { "a.weight": ["Q4_0", 512, 512], "b.weight": ["F32", 512] });
  const error = assertThrows(() => quantized(done, "Q8_0"), ForgeError, "it holds F32, Q4_0");
  assertEquals(error.code, "usage");
  const small = checkpointOf("gguf", { "a.weight": ["F32", 64, 64], "b.weight": ["F32", 512, 90] });
  const message = "its matrices have fewer than 8192 elements, or rows of other lengths than";
  assertThrows(() => quantized(small, "Q4_0"), ForgeError, `${message} multiples of 32`);
  using folder = new TempFolder();
  writeRandomLlama(folder.path);
  const unknown = () => load(folder.path, { quantize: "Q3_K" as never });
  await assertRejects(unknown, ForgeError, 'quantize is "Q3_K"; valid is');
});
