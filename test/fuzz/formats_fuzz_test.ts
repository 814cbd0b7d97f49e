import { assert } from "@std/assert";
import { openCheckpoint } from "../../src/formats/checkpoint.ts";
import { readGguf } from "../../src/formats/gguf/gguf.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../../src/formats/json.ts";
import { readSafetensors } from "../../src/formats/safetensors.ts";
import { tensorBytes, type TensorInfo } from "../../src/formats/tensor_info.ts";
import { meanSquares, readImportance, writeImportance } from "../../src/formats/gguf/importance.ts";
import type { GgufField } from "../../src/formats/gguf/writer.ts";
import type { Random } from "../support/random.ts";
import { encodeSafetensors, withLength, writeModelFolder } from "../support/safetensors_writer.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { float32Tensor, type TensorData } from "../../src/formats/tensor_data.ts";
import { fuzz } from "./harness.ts";
import { mutateBytes, mutateJson, mutateText } from "./mutate.ts";
import { encodeGguf, joinParts } from "../support/parts.ts";

const folder = new TempFolder();
globalThis.addEventListener("unload", () => folder[Symbol.dispose]());

const METADATA: Record<string, GgufField> = {
  "general.architecture": ["string", "llama"],
  "general.alignment": ["u32", 32],
  "llama.block_count": ["u32", 2],
  "llama.rope.freq_base": ["f32", 10000],
  "llama.vocab_size": ["u64", 3],
  "tokenizer.ggml.add_bos_token": ["bool", true],
  "tokenizer.ggml.tokens": ["array", "string", ["<s>", "é", "日本😀"]],
  "tokenizer.ggml.scores": ["array", "f32", [0, -1, -2]],
  "tokenizer.ggml.flags": ["array", "bool", [true, false]],
  "nested": ["array", "array", [["array", "u16", [1, 2]], ["array", "string", ["a"]]]],
};

const TENSORS: readonly TensorData[] = [
  float32Tensor("token_embd.weight", [3, 8], new Float32Array(24)),
  { name: "blk.0.attn_q.weight", type: "Q4_0", shape: [2, 32], data: new Uint8Array(36) },
  { name: "blk.0.attn_norm.weight", type: "BF16", shape: [8], data: new Uint8Array(16) },
];

/** Checks the invariants of an accepted file. */
function checkTensors(tensors: Iterable<TensorInfo>, fileBytes: number): void {
  for (const tensor of tensors) {
    assert(tensor.offset >= 0 && tensor.offset + tensor.bytes <= fileBytes, "inside the file");
    assert(tensorBytes(tensor.type, tensor.shape) === tensor.bytes, "bytes match the shape");
  }
}

function checkGguf(bytes: Uint8Array): void {
  const { tensors, fileBytes } = readGguf(folder.write("model.gguf", bytes));
  assert(fileBytes === bytes.length, "the size of the file");
  checkTensors(tensors.values(), fileBytes);
}

function checkSafetensors(bytes: Uint8Array): void {
  const { tensors, fileBytes } = readSafetensors(folder.write("model.safetensors", bytes));
  checkTensors(tensors.values(), fileBytes);
}

const gguf = encodeGguf({ metadata: METADATA, tensors: TENSORS });
fuzz("bytes of a GGUF file", 2000, (random) => checkGguf(mutateBytes(gguf, random)));

fuzz("keys and values of a GGUF file swapped", 500, (random) => {
  const keys = Object.keys(METADATA);
  const metadata: Record<string, GgufField> = {};
  for (const key of keys) {
    const field = METADATA[random.chance(1 / 2) ? key : random.pick(keys)];
    if (field !== undefined) metadata[random.chance(1 / 8) ? mutateText(key, random) : key] = field;
  }
  const tensors = Array.from({ length: random.int(0, 4) }, () => random.pick(TENSORS));
  checkGguf(encodeGguf({ metadata, tensors, version: random.pick([2, 3, 3, 3, 4]) }));
});

const IMPORTANCES = new Map([
  ["blk.0.attn_q.weight", importance(1, 8)],
  ["blk.0.ffn_down_exps.weight", importance(4, 8)],
]);

function importance(matrices: number, cols: number) {
  return {
    sums: new Float32Array(matrices * cols).fill(2),
    counts: new Float32Array(matrices).fill(3),
  };
}

/** Returns importances in the older binary form. */
function binaryImportances(): Uint8Array<ArrayBuffer> {
  const number = (value: number) => new Uint8Array(Int32Array.of(value).buffer);
  return joinParts([
    number(IMPORTANCES.size),
    ...[...IMPORTANCES].flatMap(([name, { sums }]) => [
      number(name.length),
      new TextEncoder().encode(name),
      number(3),
      number(sums.length),
      new Uint8Array(sums.buffer),
    ]),
  ]);
}

writeImportance(folder.at("imatrix.gguf"), IMPORTANCES, {
  dataset: "text.txt",
  chunks: 3,
  chunkTokens: 8,
});
const importanceForms = [Deno.readFileSync(folder.at("imatrix.gguf")), binaryImportances()];

fuzz("bytes of a file of importances", 2000, (random) => {
  const path = folder.write("imatrix", mutateBytes(random.pick(importanceForms), random));
  for (const [name, found] of readImportance(path)) {
    // As a tensor that the model has under this name asks for them.
    const { sums, counts } = IMPORTANCES.get(name) ?? found;
    const nMatrices = counts.length;
    const squares = meanSquares(found, sums.length / nMatrices, nMatrices, nMatrices - 1);
    assert(squares === undefined || squares.every((square) => square >= 0), "a valid weight");
  }
});

const safetensorsTensors: readonly TensorData[] = [
  float32Tensor("model.embed_tokens.weight", [3, 8], new Float32Array(24)),
  { name: "model.norm.weight", type: "BF16", shape: [8], data: new Uint8Array(16) },
  { name: "scale", type: "F16", shape: [], data: new Uint8Array(2) },
];
const safetensors = encodeSafetensors({
  metadata: { format: "pt" },
  tensors: safetensorsTensors,
});
fuzz("bytes of a safetensors file", 2000, (random) => {
  checkSafetensors(mutateBytes(safetensors, random));
});

fuzz("the header of a safetensors file", 2000, (random) => {
  const length = new DataView(safetensors.buffer).getUint32(0, true);
  const text = new TextDecoder().decode(safetensors.subarray(8, 8 + length));
  const header: JsonObject = JSON.parse(text);
  const mutant = random.chance(1 / 4)
    ? mutateText(text, random)
    : JSON.stringify(mutateJson(header, random));
  checkSafetensors(joinParts([withLength(mutant), safetensors.subarray(8 + length)]));
});

const FOLDER_FILES: Readonly<Record<string, JsonValue>> = {
  "config.json": { model_type: "llama", hidden_size: 8, rope_scaling: { type: "linear" } },
  "generation_config.json": { eos_token_id: [1, 2], temperature: 0.5 },
  "tokenizer.json": { model: { type: "BPE", vocab: { a: 0 }, merges: [] } },
  "tokenizer_config.json": {
    chat_template: [{ name: "default", template: "{{ messages }}" }],
  },
};

fuzz("the JSON files of a model folder", 600, (random) => {
  using model = new TempFolder();
  writeModelFolder(model.path, FOLDER_FILES, safetensorsTensors, 2);
  const names = Array.from(Deno.readDirSync(model.path), (entry) => entry.name).sort();
  damageFile(model, random.pick(names), random);
  const checkpoint = openCheckpoint(model.path);
  for (const tensor of checkpoint.tensors.values()) {
    checkTensors([tensor], Deno.statSync(tensor.file).size);
  }
  checkpoint.tokenizerJson();
  checkpoint.tokenizerConfig();
  assert(typeof (checkpoint.chatTemplate ?? "") === "string");
});

function damageFile(model: TempFolder, name: string, random: Random): void {
  const bytes = Deno.readFileSync(model.at(name));
  if (random.chance(1 / 20)) {
    Deno.removeSync(model.at(name));
  } else if (name.endsWith(".json") && !random.chance(1 / 4)) {
    const json: JsonValue = JSON.parse(new TextDecoder().decode(bytes));
    if (isJsonObject(json)) model.write(name, mutateJson(json, random));
  } else {
    model.write(name, mutateBytes(bytes, random));
  }
}
