/** GGUF files that `quantize` writes, compared with their source tensor by tensor. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { join } from "@std/path";
import { openBackend } from "../../../src/engine/load/open_backend.ts";
import { ForgeError } from "../../../src/errors.ts";
import { readGguf } from "../../../src/formats/gguf/gguf.ts";
import { writeImportance } from "../../../src/formats/gguf/importance.ts";
import { type GgufField, writeGguf } from "../../../src/formats/gguf/writer.ts";
import { float32Tensor, type TensorData } from "../../../src/formats/tensor_data.ts";
import type { TensorType } from "../../../src/formats/tensor_info.ts";
import { openCheckpoint, quantize } from "../../../src/mod.ts";
import { ROOT } from "../../support/checkout.ts";
import { Random } from "../../support/random.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { writeRandomLlama } from "../../support/tiny_llama.ts";
import { randomWeight } from "../../support/weights.ts";
import { readJson } from "../reference_check.ts";

const ARCHITECTURE: Record<string, GgufField> = { "general.architecture": ["string", "llama"] };

/** Returns the stored bytes of a tensor of a file. */
function bytesOf(path: string, name: string): Uint8Array {
  const { file, offset, bytes } = openCheckpoint(path).tensors.get(name)!;
  return Deno.readFileSync(file).slice(offset, offset + bytes);
}

/** Repeats random numbers, so that large tensors are made quickly. */
function repeated(name: string, count: number): Float32Array<ArrayBuffer> {
  const some = new Random(name).normals(1021);
  return Float32Array.from({ length: count }, (_, i) => some[i % 1021]!);
}

Deno.test("a file is written in pieces that do not depend on the importances of other experts", async () => {
  using folder = new TempFolder();
  const source = folder.at("source.gguf"), path = folder.at("out.gguf");
  // Each matrix has more than the 2^20 elements of a piece, each kept tensor more bytes.
  const [rows, cols] = [1030, 1024];
  const experts = repeated("experts", 2 * rows * cols);
  const norm = repeated("norm", 2 ** 18 + 3);
  const tensors: TensorData[] = [
    float32Tensor("blk.0.first.bias", [3], [1, 2, 3]),
    float32Tensor("blk.0.ffn_up_exps.weight", [2, rows, cols], experts),
    float32Tensor("blk.0.attn_norm.weight", [norm.length], norm),
  ];
  writeGguf(source, { metadata: ARCHITECTURE, tensors });
  const sums = new Random("importance").normals(2 * cols).map((value) => value ** 2);
  const importance = { sums, counts: Float32Array.of(2, 5) };
  writeImportance(folder.at("im.gguf"), new Map([["blk.0.ffn_up_exps.weight", importance]]), {
    dataset: "text",
    chunks: 1,
    chunkTokens: 1,
  });
  const progress: (readonly [done: number, total: number])[] = [];
  const result = await quantize(source, path, {
    type: "Q4_0",
    threads: 2,
    importance: folder.at("im.gguf"),
    onProgress: (...counts) => progress.push(counts),
  });
  const weights = 3 + experts.length + norm.length;
  assertEquals(result, {
    weights,
    types: { F32: 2, Q4_0: 1 },
    bytes: Deno.statSync(path).size,
    sourceBytes: Deno.statSync(source).size,
  });
  assert(progress.length > 5);
  assert(
    progress.every(([done, total], i) => total === weights && done > (progress[i - 1]?.[0] ?? 0)),
  );
  assertEquals(progress.at(-1), [weights, weights]);

  const device = openBackend("cpu");
  try {
    const size = rows * cols, written = bytesOf(path, "blk.0.ffn_up_exps.weight");
    for (const [expert, count] of importance.counts.entries()) {
      const own = sums.slice(expert * cols, (expert + 1) * cols).map((sum) => sum / count);
      const values = experts.slice(expert * size, (expert + 1) * size);
      const expected = device.quantize("Q4_0", rows, cols, values, own);
      const part = written.subarray(expert * expected.length, (expert + 1) * expected.length);
      assert(expected.every((byte, i) => byte === part[i]), `expert ${expert}`);
    }
  } finally {
    device.close();
  }
  const kept = new Uint8Array(norm.buffer);
  assert(bytesOf(path, "blk.0.attn_norm.weight").every((byte, i) => byte === kept[i]));
  assertEquals(bytesOf(path, "blk.0.first.bias"), bytesOf(source, "blk.0.first.bias"));
});

Deno.test("settings that describe a file are replaced, all others are copied", async () => {
  using folder = new TempFolder();
  const parts = [0, 1].map((index) => folder.at(`a-0000${index + 1}-of-00002.gguf`));
  for (const [index, path] of parts.entries()) {
    writeGguf(path, {
      alignment: 64,
      metadata: {
        ...(index === 0 ? ARCHITECTURE : {}),
        "split.no": ["u16", index],
        "split.count": ["u16", 2],
        "quantize.imatrix.file": ["string", "old"],
        "general.file_type": ["u32", 99],
        "general.quantization_version": ["u32", 1],
        "llama.block_count": ["u32", 1],
      },
      tensors: [float32Tensor(`blk.0.attn_${"qk"[index]}.weight`, [8, 32], new Float32Array(256))],
    });
  }
  const path = folder.at("out.gguf");
  const { sourceBytes } = await quantize(parts[1]!, path, { type: "Q8_0" });
  assertEquals(sourceBytes, parts.reduce((sum, part) => sum + Deno.statSync(part).size, 0));
  const { metadata, tensors } = readGguf(path);
  assertEquals(Object.fromEntries(metadata), {
    "general.architecture": "llama",
    "llama.block_count": 1,
    "general.file_type": 7,
    "general.quantization_version": 2,
  });
  assertEquals([...tensors.keys()], ["blk.0.attn_q.weight", "blk.0.attn_k.weight"]);
});

Deno.test("quantised tensors are copied or refused, MXFP4 is copied in every mixture", async () => {
  using folder = new TempFolder();
  const source = folder.at("source.gguf"), path = folder.at("out.gguf");
  const random = new Random("stored");
  const stored = (name: string, type: TensorType): TensorData => {
    return { name, type, shape: [8, 64], data: randomWeight(random, type, 8, 64).bytes };
  };
  const write = async (tensors: TensorData[], type: "Q8_0" | "Q4_0") => {
    writeGguf(source, { metadata: ARCHITECTURE, tensors });
    await quantize(source, path, { type, overwrite: true });
  };
  await write([stored("blk.0.a.weight", "MXFP4"), stored("blk.0.b.weight", "Q4_0")], "Q4_0");
  for (const name of ["blk.0.a.weight", "blk.0.b.weight"]) {
    assertEquals(bytesOf(path, name), bytesOf(source, name));
  }
  const error = await assertRejects(
    () => write([stored("blk.0.b.weight", "Q4_0")], "Q8_0"),
    ForgeError,
    'tensor "blk.0.b.weight"',
  );
  assertEquals(error.code, "unsupported");
  // NVFP4 has scales of its own, also in matrices that mixtures keep.
  for (const name of ["blk.0.a", "blk.0.ffn_gate_inp"]) {
    const data = new Uint8Array(8 * 36);
    const packed: TensorData[] = [
      { name: `${name}.weight`, type: "NVFP4", shape: [8, 64], data },
      float32Tensor(`${name}.scale`, [1], [1]),
    ];
    await assertRejects(() => write(packed, "Q8_0"), ForgeError, "already");
  }
});

Deno.test("numbers of heads, experts and layers decide about types, whatever their form", async () => {
  using folder = new TempFolder();
  const source = folder.at("source.gguf"), path = folder.at("out.gguf");
  const typesOf = async (settings: Record<string, GgufField>) => {
    const named = Object.entries(settings).map(([key, field]) => [`llama.${key}`, field]);
    const tensors = ["attn_v", "ffn_down"].map((part) =>
      float32Tensor(`blk.0.${part}.weight`, [2, 256], new Float32Array(512))
    );
    writeGguf(source, { metadata: { ...ARCHITECTURE, ...Object.fromEntries(named) }, tensors });
    await quantize(source, path, { type: "IQ4_NL", overwrite: true });
    return Array.from(readGguf(path).tensors.values(), ({ type }) => type);
  };
  const heads: Record<string, GgufField> = { "attention.head_count": ["u32", 8] };
  const kv = (...counts: number[]): Record<string, GgufField> => ({
    ...heads,
    "attention.head_count_kv": counts.length === 1 ? ["u32", counts[0]!] : ["array", "i32", counts],
  });
  assertEquals(await typesOf({}), ["IQ4_NL", "IQ4_NL"]);
  assertEquals(await typesOf(heads), ["IQ4_NL", "IQ4_NL"]);
  assertEquals(await typesOf(kv(2)), ["Q5_K", "IQ4_NL"]);
  assertEquals(await typesOf(kv(2, 8)), ["Q5_K", "IQ4_NL"]);
  assertEquals(await typesOf(kv(4)), ["IQ4_NL", "IQ4_NL"]);
  assertEquals(await typesOf(kv(0, 2)), ["IQ4_NL", "IQ4_NL"]);
  assertEquals(await typesOf({ ...kv(2), expert_count: ["u32", 8] }), ["Q8_0", "IQ4_NL"]);
  assertEquals(await typesOf({ block_count: ["u32", 8] }), ["IQ4_NL", "Q5_K"]);
});

Deno.test("a file that is not completed is removed", async () => {
  using folder = new TempFolder();
  const source = folder.at("source.gguf"), path = folder.at("out.gguf");
  const tensors = ["a", "b"].map((name) =>
    float32Tensor(`${name}.weight`, [8, 32], new Float32Array(256))
  );
  writeGguf(source, { metadata: ARCHITECTURE, tensors });
  const controller = new AbortController();
  const stopped = quantize(source, path, {
    type: "Q8_0",
    signal: controller.signal,
    onProgress: () => controller.abort(),
  });
  assertEquals((await assertRejects(() => stopped, ForgeError)).code, "cancelled");
  assertEquals([...Deno.readDirSync(folder.path)].map(({ name }) => name), ["source.gguf"]);
  // An error of the callback is its own.
  const failure = new Error("progress");
  const failed = quantize(source, path, {
    type: "Q8_0",
    onProgress: () => {
      throw failure;
    },
  });
  assert(await assertRejects(() => failed, Error) === failure);
  assertEquals([...Deno.readDirSync(folder.path)].map(({ name }) => name), ["source.gguf"]);
});

Deno.test("a folder's heads are reordered whole, and its file has the name of the model", async () => {
  using folder = new TempFolder();
  const model = folder.at("Tiny", "main"), path = folder.at("out.gguf");
  // 2^20 elements, which a piece has, are no whole number of heads.
  const headDim = 260, hidden = 1024;
  writeRandomLlama(model, {
    hidden,
    headDim,
    intermediate: 32,
    layers: 1,
    chatTemplate: "{{ 1 }}",
  });
  // A tokenizer that GGUF can express.
  const demo = readJson<Record<string, unknown>>(join(ROOT, "models", "demo", "tokenizer.json"));
  const tokenizer = join(model, "tokenizer.json");
  const own = readJson<object>(tokenizer);
  Deno.writeTextFileSync(
    tokenizer,
    JSON.stringify({ ...own, pre_tokenizer: demo.pre_tokenizer }),
  );
  await quantize(model, path, { type: "F32" });
  const { metadata } = readGguf(path);
  assertEquals(
    ["general.name", "tokenizer.chat_template", "tokenizer.ggml.eos_token_id"]
      .map((key) => metadata.get(key)),
    ["Tiny", "{{ 1 }}", 1],
  );
  const floats = (path: string, name: string) =>
    new Float32Array(bytesOf(path, name).slice().buffer);
  for (const part of ["q", "k"]) {
    const stored = floats(model, `model.layers.0.self_attn.${part}_proj.weight`);
    const written = floats(path, `blk.0.attn_${part}.weight`);
    assertEquals(written.length, stored.length);
    for (let row = 0; row < written.length / hidden; row++) {
      const inHead = row % headDim;
      const from = row - inHead + inHead % 2 * headDim / 2 + Math.floor(inHead / 2);
      const expected = stored.subarray(from * hidden, (from + 1) * hidden);
      assert(expected.every((value, i) => value === written[row * hidden + i]), `${part} ${row}`);
    }
  }
});
