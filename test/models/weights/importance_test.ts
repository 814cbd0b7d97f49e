/** Importances of columns: measured, written, read, and used to quantise. */
import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { openBackend } from "../../../src/engine/load/open_backend.ts";
import { ImportanceMeter } from "../../../src/engine/quantize/importance_meter.ts";
import { LazyWeights } from "../../../src/engine/quantize/lazy_weights.ts";
import { openSource } from "../../../src/engine/quantize/source.ts";
import { ForgeError } from "../../../src/errors.ts";
import {
  type ImportanceMatrix,
  meanSquares,
  readImportance,
  writeImportance,
} from "../../../src/formats/gguf/importance.ts";
import { readGguf } from "../../../src/formats/gguf/gguf.ts";
import { float32Tensor, type TensorData } from "../../../src/formats/tensor_data.ts";
import { load, openCheckpoint, quantize } from "../../../src/mod.ts";
import { encodeGguf } from "../../support/parts.ts";
import { writeModelFolder } from "../../support/safetensors_writer.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { writeRandomLlama } from "../../support/tiny_llama.ts";
import { generated, generatedTensors } from "../families/generated.ts";
import { assertClose, readJson } from "../reference_check.ts";

const SHAPE = { hidden: 256, intermediate: 512, headDim: 64 };
const TEXT = { dataset: "text.txt", chunks: 1, chunkTokens: 150 };

/** Reads a tensor of a folder or file in its rows. */
function rowsOf(path: string, name: string): Float32Array {
  const tensor = openCheckpoint(path).tensors.get(name)!;
  const device = openBackend("reference");
  try {
    const weight = device.mapWeight([{ tensor }], tensor.shape.at(-1)!);
    return device.readWeight(weight, 0, weight.rows);
  } finally {
    device.close();
  }
}

async function measure(path: string, tokens: Int32Array): Promise<ImportanceMatrix> {
  using meter = await ImportanceMeter.open(path, { device: "cpu", contextLength: 256 });
  const scores = await meter.score(tokens);
  await using model = await load(path, { device: "cpu", kvType: "F32" });
  assertClose(scores, await model.score(tokens), 1e-5);
  return meter.importance();
}

Deno.test("the first layer's importances are the squares of the normalised embeddings", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.path, SHAPE);
  // More than two chunks of the meter.
  const tokens = Int32Array.from({ length: 150 }, (_, i) => 2 + (i * 7) % 90);
  const matrix = await measure(folder.path, tokens);
  const embedding = rowsOf(folder.path, "model.embed_tokens.weight");
  const norm = rowsOf(folder.path, "model.layers.0.input_layernorm.weight");
  const expected = new Float64Array(SHAPE.hidden);
  for (const token of tokens) {
    const row = embedding.subarray(token * SHAPE.hidden, (token + 1) * SHAPE.hidden);
    const power = row.reduce((sum, value) => sum + value ** 2, 0) / SHAPE.hidden + 1e-5;
    row.forEach((value, i) => expected[i]! += (value * norm[i]!) ** 2 / power);
  }
  for (const part of ["attn_q", "attn_k", "attn_v"]) {
    const { sums, counts } = matrix.get(`blk.0.${part}.weight`)!;
    assertClose(sums, expected, 1e-5);
    assertEquals([...counts], [tokens.length]);
  }
  assertEquals(matrix.size, 14); // seven matrices in each of two layers
  assertEquals(matrix.get("blk.1.ffn_down.weight")!.sums.length, SHAPE.intermediate);
});

Deno.test("importances of experts count the tokens that chose each", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.at("tokens"));
  const { config } = generated.models.qwen2_moe!;
  writeModelFolder(
    folder.at("model"),
    { "config.json": config, "tokenizer.json": readJson(folder.at("tokens", "tokenizer.json")) },
    generatedTensors("qwen2_moe", config)
      .map(({ name, shape, values }) => float32Tensor(name, shape, values)),
  );
  const tokens = Int32Array.from(generated.prompt_ids);
  const matrix = await measure(folder.at("model"), tokens);
  const topK = Number(config.num_experts_per_tok);
  const router = matrix.get("blk.0.ffn_gate_inp.weight")!;
  const gate = matrix.get("blk.0.ffn_gate_exps.weight")!;
  const cols = router.sums.length;
  assertEquals(gate.counts.reduce((sum, count) => sum + count, 0), topK * tokens.length);
  // All experts together see the input of each token as often as experts are chosen.
  const total = router.sums.map((_, i) =>
    gate.counts.reduce((sum, _, expert) => sum + gate.sums[expert * cols + i]!, 0)
  );
  assertClose(total, router.sums.map((sum) => topK * sum), 1e-5);
  const down = matrix.get("blk.0.ffn_down_exps.weight")!;
  const width = down.sums.length / down.counts.length;
  gate.counts.forEach((count, expert) => {
    const own = down.sums.subarray(expert * width, (expert + 1) * width);
    assertEquals(own.some((sum) => sum > 0), count > 0, `expert ${expert}`);
  });
});

/** Writes a model with a tokenizer that GGUF can express. */
function writeExpressible(model: string): void {
  writeRandomLlama(model, SHAPE);
  const demo = readJson(new URL("../../../models/demo/tokenizer.json", import.meta.url).pathname);
  const own = readJson<object>(`${model}/tokenizer.json`);
  const { pre_tokenizer } = demo as { pre_tokenizer: unknown };
  Deno.writeTextFileSync(`${model}/tokenizer.json`, JSON.stringify({ ...own, pre_tokenizer }));
}

Deno.test("importances make the errors of important columns smaller", async () => {
  using folder = new TempFolder();
  const model = folder.at("model");
  writeExpressible(model);
  const matrix = await measure(model, Int32Array.from({ length: 100 }, (_, i) => 2 + (i * 7) % 90));
  writeImportance(folder.at("im.gguf"), matrix, TEXT);
  const name = "blk.1.ffn_down.weight";
  const wanted = rowsOf(model, "model.layers.1.mlp.down_proj.weight");
  const importance = meanSquares(matrix.get(name)!, SHAPE.intermediate, 1, 0)!;
  const errorOf = async (type: "Q4_K_S" | "Q2_K", options: { importance?: string } = {}) => {
    const path = folder.at("out.gguf");
    await quantize(model, path, { type, overwrite: true, ...options });
    const values = rowsOf(path, name);
    return wanted.reduce((sum, value, i) => {
      return sum + importance[i % importance.length]! * (value - values[i]!) ** 2;
    }, 0);
  };
  for (const type of ["Q4_K_S", "Q2_K"] as const) {
    const [plain, weighted] = [
      await errorOf(type),
      await errorOf(type, { importance: folder.at("im.gguf") }),
    ];
    assert(weighted < 0.98 * plain, `${type}: ${weighted} with importances, ${plain} without`);
  }
  const { metadata } = openCheckpoint(folder.at("out.gguf"));
  assertEquals(metadata!.get("quantize.imatrix.entries_count"), 14);

  const narrow = new Map([[name, { sums: new Float32Array(8), counts: new Float32Array([1]) }]]);
  writeImportance(folder.at("narrow.gguf"), narrow, TEXT);
  const other = () => errorOf("Q2_K", { importance: folder.at("narrow.gguf") });
  await assertRejects(
    other,
    ForgeError,
    "do not fit its shape [256,512]: they are of another model",
  );
  const foreign = new Map([["blk.99.x.weight", { sums: new Float32Array(8), counts: [1] }]]);
  writeImportance(folder.at("foreign.gguf"), foreign as unknown as ImportanceMatrix, TEXT);
  const none = () => errorOf("Q2_K", { importance: folder.at("foreign.gguf") });
  await assertRejects(none, ForgeError, "has importances of no tensor of");
});

Deno.test("a meter's context is the model's at most", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.path, { ...SHAPE, contextLength: 128 });
  for (const [asked, expected] of [[64, 64], [128, 128], [1000, 128]] as const) {
    const options = { device: "cpu", contextLength: asked };
    using meter = await ImportanceMeter.open(folder.path, options);
    assertEquals(meter.contextLength, expected);
  }
});

Deno.test("a tensor to be written reads the same in parts of the rows that belong together", () => {
  using folder = new TempFolder();
  writeExpressible(folder.path);
  const device = openBackend("cpu");
  try {
    using weights = new LazyWeights(device);
    const { tensors } = openSource(weights, openCheckpoint(folder.path));
    for (const { name, shape, rowsTogether, read } of tensors) {
      // The halves of the rows of a head alternate.
      const isRotated = /attn_[qk]\.weight/.test(name);
      assertEquals(rowsTogether, isRotated ? SHAPE.headDim : 1, name);
      const rows = shape[0]!, step = rowsTogether;
      const parts = Array.from({ length: rows / step }, (_, i) => [...read(i * step, step)]);
      assertEquals(parts.flat(), [...read(0, rows)], name);
    }
  } finally {
    device.close();
  }
});

/** Encodes the older form of llama.cpp's files. */
function binaryForm(entries: readonly (readonly [name: string, calls: number, sums: number[]])[]) {
  const int = (value: number) => new Uint8Array(Int32Array.of(value).buffer);
  const parts = entries.flatMap(([name, calls, sums]) => {
    const text = new TextEncoder().encode(name);
    const values = new Uint8Array(Float32Array.from(sums).buffer);
    return [int(text.length), text, int(calls), int(sums.length), values];
  });
  const trailer = [int(3), int(8), new TextEncoder().encode("text.txt")];
  return new Uint8Array([int(entries.length), ...parts, ...trailer].flatMap((part) => [...part]));
}

Deno.test("files of importances are read in both forms", () => {
  using folder = new TempFolder();
  const matrix = new Map([
    ["blk.0.ffn_up_exps.weight", {
      sums: Float32Array.of(1, 2, 0, 0, 6, 3),
      counts: Float32Array.of(4, 0, 3),
    }],
    ["blk.0.ffn_up.weight", { sums: Float32Array.of(1, 4), counts: Float32Array.of(2) }],
  ]);
  writeImportance(folder.at("im.gguf"), matrix, TEXT);
  const read = readImportance(folder.at("im.gguf"));
  assertEquals(new Map(read), matrix);
  // As llama.cpp reads them.
  const { metadata, tensors } = readGguf(folder.at("im.gguf"));
  assertEquals(Object.fromEntries(metadata), {
    "general.type": "imatrix",
    "imatrix.datasets": ["text.txt"],
    "imatrix.chunk_count": 1,
    "imatrix.chunk_size": 150,
  });
  assertEquals(Array.from(tensors.values(), ({ name, shape }) => [name, shape]), [
    ["blk.0.ffn_up.weight.in_sum2", [1, 2]],
    ["blk.0.ffn_up.weight.counts", [1, 1]],
    ["blk.0.ffn_up_exps.weight.in_sum2", [3, 2]],
    ["blk.0.ffn_up_exps.weight.counts", [3, 1]],
  ]);
  const experts = read.get("blk.0.ffn_up_exps.weight")!;
  assertEquals([...meanSquares(experts, 2, 3, 0)!], [0.25, 0.5]);
  assertEquals([...meanSquares(experts, 2, 3, 1)!], [1, 1]);
  assertEquals([...meanSquares(experts, 2, 3, 2)!], [2, 1]);
  assertEquals(meanSquares(experts, 3, 3, 1), undefined);
  // Columns without activations, or with some of no token, are all alike.
  const strange = { sums: Float32Array.of(0, 0, 1, 2), counts: Float32Array.of(3, 0) };
  assertEquals([...meanSquares(strange, 2, 2, 0)!], [1, 1]);
  assertEquals([...meanSquares(strange, 2, 2, 1)!], [1, 1]);

  const bytes = binaryForm([["blk.0.ffn_up.weight", 2, [1, 4]]]);
  const old = readImportance(folder.write("im.dat", bytes)).get("blk.0.ffn_up.weight")!;
  assertEquals([...meanSquares(old, 2, 1, 0)!], [0.5, 2]);
  assertEquals([...meanSquares({ ...old, sums: Float32Array.of(2, 4, 6, 8) }, 2, 2, 1)!], [3, 4]);
  const single = { sums: Float32Array.of(0.5, 0.25), counts: Float32Array.of(1) };
  assertEquals([...meanSquares(single, 2, 1, 0)!], [0.5, 0.25]);
  // Of two entries, without what follows them.
  const two = binaryForm([["a", 1, [1]], ["b", 3, [2, 3]]]);
  const trailer = 8 + "text.txt".length;
  const alone = readImportance(folder.write("two.dat", two.slice(0, two.length - trailer)));
  assertEquals(
    new Map(alone),
    new Map([
      ["a", { sums: Float32Array.of(1), counts: Float32Array.of(1) }],
      ["b", { sums: Float32Array.of(2, 3), counts: Float32Array.of(3) }],
    ]),
  );

  const bad = (content: Uint8Array<ArrayBuffer> | string) => () =>
    readImportance(folder.write("bad", content));
  assertThrows(bad("some text that is no matrix"), ForgeError, "not an importance matrix");
  assertThrows(bad(bytes.slice(0, 40)), ForgeError, "cut short");
  for (const sum of [NaN, Infinity, -1]) {
    assertThrows(bad(binaryForm([["a", 1, [sum]]])), ForgeError, "negative or not finite");
  }
  assertThrows(bad(binaryForm([["a", 0, [1]]])), ForgeError, "its number of chunks is 0");
  assertThrows(bad(binaryForm([])), ForgeError, "its number of entries is 0");
  const long = binaryForm([["a".repeat(1025), 1, [1]]]);
  assertThrows(bad(long), ForgeError, "its length of a name is 1025");
  assertThrows(() => readImportance(folder.at("missing")), ForgeError, "missing");
  const sums = float32Tensor("a.in_sum2", [1, 4], new Float32Array(4));
  const counts = float32Tensor("a.counts", [3, 1], new Float32Array(3));
  const half = { ...sums, type: "F16", data: new Uint8Array(8) } as const;
  const gguf = (type: string, ...tensors: TensorData[]) =>
    bad(encodeGguf({ metadata: { "general.type": ["string", type] }, tensors }));
  assertThrows(gguf("model", sums, counts), ForgeError, '"general.type" is not "imatrix"');
  assertThrows(gguf("imatrix"), ForgeError, "it has no importances");
  assertThrows(gguf("imatrix", sums), ForgeError, 'it has no tensor "a.counts"');
  const negative = float32Tensor("a.counts", [1, 1], [-1]);
  assertThrows(gguf("imatrix", sums, negative), ForgeError, "negative or not finite");
  assertThrows(gguf("imatrix", sums, counts), ForgeError, '"a" has 4 sums for 3 counts');
  assertThrows(gguf("imatrix", half, counts), ForgeError, '"a.in_sum2" is stored as F16, not F32');
  const unwritable = folder.at("no such folder/im.gguf");
  assertThrows(() => writeImportance(unwritable, matrix, TEXT), ForgeError, "cannot write");
});
