import { assert, assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import { openCheckpoint } from "../../../src/formats/checkpoint.ts";
import { type GgufField, writeGguf } from "../../../src/formats/gguf/writer.ts";
import { writeModelFolder } from "../../support/safetensors_writer.ts";
import { sharedAvailable, sharedPath } from "../../support/shared.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { float32Tensor } from "../../../src/formats/tensor_data.ts";

const TENSORS = [float32Tensor("a", [2], [1, 2]), float32Tensor("b", [1], [3])];
const CONFIG = { model_type: "llama", hidden_size: 2 };

function assertRefused(path: string, code: string, ...includes: string[]): void {
  const error = assertThrows(() => openCheckpoint(path), ForgeError);
  assertEquals(error.code, code);
  for (const text of includes) {
    assert(error.message.includes(text), `${error.message} should include ${text}`);
  }
  assert(!error.message.includes("\n"), "one line");
}

Deno.test("a folder with one file and one with shards look the same", () => {
  for (const shards of [1, 2]) {
    using folder = new TempFolder();
    writeModelFolder(folder.path, { "config.json": CONFIG }, TENSORS, shards);
    const checkpoint = openCheckpoint(folder.path);
    assertEquals(checkpoint.kind, "safetensors");
    assertEquals(checkpoint.path, folder.path);
    assertEquals(checkpoint.modelType, "llama");
    assertEquals(checkpoint.config, CONFIG);
    assertEquals(checkpoint.files.length, shards);
    assertEquals([...checkpoint.tensors.keys()].sort(), ["a", "b"]);
    assertEquals(checkpoint.metadata, undefined);
    assertEquals(checkpoint.generationConfig, undefined);
    assertEquals(checkpoint.tokenizerJson(), undefined);
    assertEquals(checkpoint.tokenizerConfig(), undefined);
    assertEquals(checkpoint.chatTemplate, undefined);
  }
});

Deno.test("the optional files of a folder are read if present", () => {
  using folder = new TempFolder();
  const files = {
    "config.json": CONFIG,
    "generation_config.json": { eos_token_id: [1, 2] },
    "tokenizer.json": { model: { type: "BPE" } },
    "tokenizer_config.json": { chat_template: "{{ 1 }}", bos_token: "<s>" },
  };
  writeModelFolder(folder.path, files, TENSORS);
  const checkpoint = openCheckpoint(folder.path);
  assertEquals(checkpoint.generationConfig, { eos_token_id: [1, 2] });
  assertEquals(checkpoint.tokenizerJson(), { model: { type: "BPE" } });
  assertEquals(checkpoint.tokenizerConfig()?.bos_token, "<s>");
  assertEquals(checkpoint.chatTemplate, "{{ 1 }}");
  assert(checkpoint.tokenizerJson() === checkpoint.tokenizerJson(), "read once");
});

Deno.test("an optional file that is a broken link is reported, not taken as missing", () => {
  using folder = new TempFolder();
  writeModelFolder(folder.path, { "config.json": CONFIG }, TENSORS);
  Deno.symlinkSync("nothing", folder.at("tokenizer.json"));
  const checkpoint = openCheckpoint(folder.path);
  const error = assertThrows(() => checkpoint.tokenizerJson(), ForgeError, "tokenizer.json");
  assertEquals(error.code, "not_found");
});

Deno.test("a single file of weights comes before an index", () => {
  using folder = new TempFolder();
  writeModelFolder(folder.path, { "config.json": CONFIG }, TENSORS, 2);
  writeModelFolder(folder.path, {}, TENSORS.slice(0, 1));
  const { files, tensors } = openCheckpoint(folder.path);
  assertEquals([files, [...tensors.keys()]], [[folder.at("model.safetensors")], ["a"]]);
});

Deno.test("hf_quant_config.json stands in for settings that config.json lacks", () => {
  const settings = (config: object) => {
    using folder = new TempFolder();
    const files = {
      "config.json": { ...CONFIG, ...config },
      "hf_quant_config.json": { producer: {}, quantization: { quant_algo: "FP8" } },
    };
    writeModelFolder(folder.path, files, [
      { name: "a.weight", type: "F8_E4M3", shape: [2, 32], data: new Uint8Array(64) },
      float32Tensor("a.weight_scale", [], [1]),
    ]);
    const { config: whole, tensors } = openCheckpoint(folder.path);
    const types = Array.from(tensors.values(), ({ name, type }) => [name, type]);
    assertEquals(types, [["a.weight", "FP8"]]);
    return whole?.quantization_config;
  };
  assertEquals(settings({}), { quant_algo: "FP8", quant_method: "modelopt" });
  const own = { quant_method: "fp8" };
  assertEquals(settings({ quantization_config: own }), own);
});

Deno.test("the tensors of a multimodal folder are those of its text part", () => {
  using folder = new TempFolder();
  const tensors = ["model.language_model.embed_tokens", "lm_head", "model.visual.norm"]
    .map((name) => float32Tensor(`${name}.weight`, [1], [0]));
  const config = { model_type: "outer", text_config: CONFIG };
  writeModelFolder(folder.path, { "config.json": config }, tensors);
  const checkpoint = openCheckpoint(folder.path);
  assertEquals([checkpoint.modelType, checkpoint.multimodal], ["llama", "outer"]);
  assertEquals([...checkpoint.tensors.keys()], ["model.embed_tokens.weight", "lm_head.weight"]);
});

Deno.test("a damaged tokenizer.json is reported at its first use", () => {
  using folder = new TempFolder();
  writeModelFolder(folder.path, { "config.json": CONFIG, "tokenizer.json": "{" }, TENSORS);
  const checkpoint = openCheckpoint(folder.path);
  const error = assertThrows(() => checkpoint.tokenizerJson(), ForgeError, "tokenizer.json");
  assertEquals(error.code, "bad_model");
});

Deno.test("the chat template is found in each of its places", () => {
  const template = (files: Record<string, unknown>) => {
    using folder = new TempFolder();
    writeModelFolder(folder.path, { "config.json": CONFIG, ...files }, TENSORS);
    return openCheckpoint(folder.path).chatTemplate;
  };
  const config = (chatTemplate: unknown) => ({
    "tokenizer_config.json": { chat_template: chatTemplate },
  });
  assertEquals(template(config(null)), undefined);
  assertEquals(template({ ...config("config"), "chat_template.jinja": "file" }), "file");
  assertEquals(template({ "chat_template.json": { chat_template: "json" } }), "json");
  assertEquals(
    template(config([{ name: "tool_use", template: "t" }, { name: "default", template: "d" }])),
    "d",
  );
  assertEquals(template(config([{ name: "only", template: "o" }])), "o");
  for (const bad of [[{ name: "a", template: "a" }, { name: "b", template: "b" }], [], 5]) {
    const error = assertThrows(() => template(config(bad)), ForgeError, 'named "default"');
    assertEquals(error.code, "bad_model");
  }
});

Deno.test("an empty chat_template.jinja counts as missing; a pipe of that name is rejected", async () => {
  using folder = new TempFolder();
  const files = { "config.json": CONFIG, "tokenizer_config.json": { chat_template: "config" } };
  writeModelFolder(folder.path, files, TENSORS);
  const path = folder.write("chat_template.jinja", "");
  assertEquals(openCheckpoint(folder.path).chatTemplate, "config");
  Deno.removeSync(path);
  assert((await new Deno.Command("mkfifo", { args: [path] }).output()).success);
  const checkpoint = openCheckpoint(folder.path);
  assertThrows(() => checkpoint.chatTemplate, ForgeError, "is not a regular file");
});

Deno.test("a GGUF file is recognized by its first bytes, not its name", () => {
  using folder = new TempFolder();
  const path = folder.at("model.bin");
  const metadata: Record<string, GgufField> = {
    "general.architecture": ["string", "qwen3"],
    "tokenizer.chat_template": ["string", "{{ messages }}"],
  };
  writeGguf(path, { metadata, tensors: TENSORS });
  const checkpoint = openCheckpoint(path);
  assertEquals([checkpoint.kind, checkpoint.modelType], ["gguf", "qwen3"]);
  assertEquals(checkpoint.files, [path]);
  assertEquals(checkpoint.chatTemplate, "{{ messages }}");
  assertEquals(checkpoint.metadata?.get("general.architecture"), "qwen3");
  assertEquals([checkpoint.config, checkpoint.generationConfig], [undefined, undefined]);
  assertEquals([checkpoint.tokenizerJson(), checkpoint.tokenizerConfig()], [undefined, undefined]);
});

Deno.test("other files are rejected; the error says what was found and what is expected", () => {
  using folder = new TempFolder();
  assertRefused(folder.at("nothing"), "not_found", "no such file or folder", "nothing");
  assertRefused(folder.path, "not_found", "without config.json", "it is empty");
  assertRefused(folder.write("empty.bin", ""), "bad_model", "is empty");
  assertRefused(
    folder.write("text.txt", "hello"),
    "bad_model",
    "is not a GGUF file",
    "config.json",
  );
  assertRefused(folder.write("short.bin", "GGUF"), "bad_model", "cut off");
  Deno.removeSync(folder.at("short.bin"));
  const lone = folder.write("model.safetensors", "hello");
  assertRefused(lone, "bad_model", "give the folder", "config.json");
  assertRefused(folder.path, "not_found", 'it holds "empty.bin", "model.safetensors"');
  folder.write("part-00001-of-00002.gguf", "GGUF");
  folder.write("a-00002-of-00002.gguf", "GGUF");
  const first = folder.at("part-00001-of-00002.gguf");
  assertRefused(folder.path, "not_found", `give its path: "${first}"`);
  folder.write("other.gguf", "GGUF");
  assertRefused(folder.path, "not_found", "give its path", `${folder.path}/other.gguf"`);
});

Deno.test("a folder without readable weights is rejected, listing its contents", () => {
  using folder = new TempFolder();
  folder.write("config.json", CONFIG);
  assertRefused(folder.path, "not_found", '"model.safetensors" nor', "nor any other weights");
  folder.write("consolidated.safetensors", "x");
  assertRefused(folder.path, "not_found", 'it holds "consolidated.safetensors"');
  folder.write("a.gguf", "x");
  assertRefused(folder.path, "not_found", 'it holds "a.gguf", "consolidated.safetensors"');
  for (const name of ["pytorch_model.bin", "a.pt", "a.pth", "a.ckpt"]) {
    const path = folder.write(name, "x");
    assertRefused(folder.path, "not_found", `pickled weights are not read: "${name}"`);
    Deno.removeSync(path);
  }
});

Deno.test("a configuration without an architecture is rejected", () => {
  using folder = new TempFolder();
  writeModelFolder(folder.path, { "config.json": {} }, TENSORS);
  assertRefused(folder.path, "bad_model", "config.json", 'no "model_type"');
  folder.write("config.json", { model_type: 5 });
  assertRefused(folder.path, "bad_model", 'unreadable "model_type"');
  const gguf = folder.at("model.gguf");
  writeGguf(gguf, { metadata: {}, tensors: TENSORS });
  assertRefused(gguf, "bad_model", 'no key "general.architecture"');
  writeGguf(gguf, { metadata: { "general.architecture": ["u32", 5] }, tensors: TENSORS });
  assertRefused(gguf, "bad_model", '"general.architecture" is a number, not text');
});

Deno.test({
  name: "every shared test model opens, in both formats",
  ignore: !sharedAvailable("models", "tiny"),
  fn: () => {
    const opened = { safetensors: 0, gguf: 0 };
    const open = (path: string) => {
      const checkpoint = openCheckpoint(path);
      opened[checkpoint.kind]++;
      assert(checkpoint.tensors.size > 0, `${path} has tensors`);
      const sizes = new Map(checkpoint.files.map((file) => [file, Deno.statSync(file).size]));
      for (const { name, file, offset, bytes } of checkpoint.tensors.values()) {
        const size = sizes.get(file) ?? 0;
        assert(bytes > 0 && offset + bytes <= size, `${name} lies inside ${file}`);
      }
    };
    const folders = [sharedPath("models", "stories260K"), sharedPath("models", "quant256")];
    for (const entry of Deno.readDirSync(sharedPath("models", "tiny"))) {
      folders.push(sharedPath("models", "tiny", entry.name));
    }
    for (const folder of folders) {
      const names = Array.from(Deno.readDirSync(folder), (entry) => entry.name);
      if (names.includes("config.json")) open(folder);
      for (const name of names) if (name.endsWith(".gguf")) open(`${folder}/${name}`);
    }
    assert(opened.safetensors >= 24, `${opened.safetensors} folders`);
    assert(opened.gguf >= 33, `${opened.gguf} GGUF files`);
  },
});

Deno.test("config.json may have bare infinities, as Python writes them", () => {
  using folder = new TempFolder();
  writeModelFolder(folder.path, { "config.json": CONFIG }, TENSORS);
  const config = (text: string) => {
    folder.write("config.json", `{"model_type": "llama", ${text}}`);
    return openCheckpoint(folder.path).config;
  };
  assertEquals(config('"a": [0.0, Infinity], "Infinity": "-Infinity \\" NaN", "b": -Infinity'), {
    model_type: "llama",
    a: [0, { __float__: "Infinity" }],
    Infinity: '-Infinity " NaN',
    b: { __float__: "-Infinity" },
  });
  assertEquals(config('"a": NaN, "b": -1')?.a, { __float__: "NaN" });
  assertThrows(() => config('"a": Infinite'), ForgeError, "is not valid JSON");
  assertThrows(() => config('"a": Infinity, "b": "'), ForgeError, "is not valid JSON");
});
