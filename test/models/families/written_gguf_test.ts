/**
 * Folders written as GGUF files: the logits of the folder, and the tensors and settings of
 * llama.cpp's converter.
 */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { join } from "@std/path";
import { ForgeError } from "../../../src/errors.ts";
import { readGguf } from "../../../src/formats/gguf/gguf.ts";
import { InputFile } from "../../../src/formats/file.ts";
import { float32Tensor } from "../../../src/formats/tensor_data.ts";
import type { TensorInfo } from "../../../src/formats/tensor_info.ts";
import { load, openCheckpoint, openTokenizer, quantize } from "../../../src/mod.ts";
import { ROOT } from "../../support/checkout.ts";
import { writeModelFolder } from "../../support/safetensors_writer.ts";
import { sharedAvailable, sharedPath } from "../../support/shared.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { writeRandomLlama } from "../../support/tiny_llama.ts";
import { assertClose, readJson } from "../reference_check.ts";
import { draftAfterPrompt, draftLayer, withRunner } from "./draft_head.ts";
import { generated, generatedTensors, published, publishedTensors } from "./generated.ts";

const REFERENCE = { device: "reference" } as const;

/** Returns a tokenizer of printable ASCII that cuts text as Qwen 2 does. */
function tokenizerJson(): Readonly<Record<string, unknown>> {
  using folder = new TempFolder();
  writeRandomLlama(folder.path);
  const own = readJson<Record<string, unknown>>(folder.at("tokenizer.json"));
  const { pre_tokenizer } = readJson<Record<string, unknown>>(
    join(ROOT, "models", "demo", "tokenizer.json"),
  );
  return { ...own, pre_tokenizer };
}

const tokenizer = tokenizerJson();

/**
 * Writes a model of `generated.json` or `published.json`.
 *
 * @param predicts true to add a layer for multi-token prediction
 */
function writeModel(path: string, name: string, predicts = false): void {
  const isGenerated = Object.hasOwn(generated.models, name);
  const { config } = (isGenerated ? generated : published).models[name]!;
  const tensors = isGenerated ? generatedTensors(name, config) : publishedTensors(name);
  writeModelFolder(
    path,
    { "config.json": config, "tokenizer.json": tokenizer },
    [...tensors, ...predicts ? draftLayer(tensors, config) : []]
      .map(({ name, shape, values }) => float32Tensor(name, shape, values)),
  );
}

const WRITTEN = [
  "apertus",
  "arcee",
  "cohere with norms of heads",
  "ernie4_5",
  "ernie4_5_moe",
  "ernie4_5_moe with biases",
  "glm4_moe",
  "granitemoe",
  "hunyuan_v1_dense with YaRN",
  "hunyuan_v1_dense",
  "internvl, tied at the top only",
  "lfm2_bias",
  "lfm2_moe",
  "llama with biases of the MLP",
  "ministral3 beyond its original length",
  "nemotron",
  "olmoe",
  "olmoe with limits",
  "phimoe",
  "qwen2_moe",
  "qwen3 with biases",
  "voxtral as transformers 5 saves it",
];

for (const name of WRITTEN) {
  Deno.test(`${name} written as GGUF gives the logits of the folder`, async () => {
    using folder = new TempFolder();
    writeModel(folder.at("model"), name);
    await quantize(folder.at("model"), folder.at("model.gguf"), { type: "F32" });
    await using own = await load(folder.at("model"), REFERENCE);
    await using written = await load(folder.at("model.gguf"), REFERENCE);
    const prompt = Int32Array.from(generated.prompt_ids);
    assertClose(await written.logits(prompt), await own.logits(prompt), 1e-6);
  });
}

Deno.test("a layer for multi-token prediction is written as GGUF, and drafts the same tokens", async () => {
  using folder = new TempFolder();
  writeModel(folder.at("model"), "glm4_moe", true);
  await quantize(folder.at("model"), folder.at("model.gguf"), { type: "F32" });
  const [expected, actual] = await Promise.all(
    ["model", "model.gguf"].map((name) =>
      withRunner(folder.at(name), (runner) => draftAfterPrompt(runner))
    ),
  );
  const ids = (tops: typeof expected) => tops!.map((top) => top.map(({ token }) => token));
  assertEquals(ids(actual), ids(expected));
  await quantize(folder.at("model.gguf"), folder.at("small.gguf"), { type: "Q8_0" });
  const complete = async (speculate: "off" | number) => {
    await using model = await load(folder.at("small.gguf"), {
      device: "cpu",
      threads: 1,
      speculate,
    });
    const prompt = Int32Array.from(generated.prompt_ids);
    return await model.complete(prompt, { temperature: 1, seed: 3, maxTokens: 40 });
  };
  const [plain, drafting] = [await complete("off"), await complete(2)];
  assertEquals(drafting.tokenIds, plain.tokenIds);
  assert(drafting.timings.drafted > 5, `only ${drafting.timings.drafted} drafted`);
});

/** Models with settings that GGUF lacks, and families that are not written, with the reason. */
const REJECTED: Readonly<Record<string, string>> = {
  "apertus with biases and SiLU": "xielu.alpha_p is missing",
  "deepseek_v3": "rms_norm needs eps 0.000001, not 0.00000999",
  "llama with YaRN's attention factor": "rope_table needs scale 1.7, not 1.13",
  "phimoe as published": "moe_route needs threshold 0.4, not 0.02",
  "qwen3_moe with biases": "moe_route needs normalize false, not true",
  "smollm3 with windows but without use_sliding_window": "attention needs window 4, not 0",
  "gemma4_moe": 'has the architecture "gemma4_text", which forge does not write as GGUF',
};

for (const [name, reason] of Object.entries(REJECTED)) {
  Deno.test(`${name} is not written as GGUF`, async () => {
    using folder = new TempFolder();
    writeModel(folder.at("model"), name);
    const write = () => quantize(folder.at("model"), folder.at("model.gguf"), { type: "F32" });
    const error = await assertRejects(write, ForgeError, reason);
    assertEquals(error.code, "unsupported");
    assertEquals([...Deno.readDirSync(folder.path)].map(({ name }) => name), ["model"]);
  });
}

/** Families of which llama.cpp's converter made a file with the same numbers. */
const CONVERTED = [
  "gemma",
  "gemma2_std",
  "gemma3_std",
  "glm4",
  "granite",
  "llama",
  "mistral_std",
  "mixtral",
  "olmo2",
  "olmo3",
  "qwen2",
  "qwen3",
  "qwen3_moe",
  "seed_oss",
  "smollm3",
  "starcoder2",
];

function bytesOf({ file, offset, bytes }: TensorInfo): Uint8Array {
  using input = InputFile.open(file);
  const data = new Uint8Array(bytes);
  input.readAt(offset, data);
  return data;
}

for (const family of CONVERTED) {
  Deno.test({
    name: `tiny ${family} written as GGUF is what llama.cpp's converter writes`,
    ignore: !sharedAvailable("models", "tiny"),
    fn: async () => {
      using folder = new TempFolder();
      const shared = sharedPath("models", "tiny", family);
      Deno.mkdirSync(folder.at("model"));
      for (const file of ["config.json", "model.safetensors"]) {
        Deno.copyFileSync(join(shared, file), folder.at("model", file));
      }
      Deno.writeTextFileSync(folder.at("model", "tokenizer.json"), JSON.stringify(tokenizer));
      await quantize(folder.at("model"), folder.at("model.gguf"), { type: "F32" });
      const own = readGguf(folder.at("model.gguf"));
      const other = readGguf(join(shared, `${family}-f32.gguf`));
      assertEquals([...own.tensors.keys()].sort(), [...other.tensors.keys()].sort());
      for (const [name, tensor] of other.tensors) {
        assertEquals(own.tensors.get(name)?.shape, tensor.shape, name);
        if (name === "rope_freqs.weight") continue; // differs in the last digit
        assertEquals(bytesOf(own.tensors.get(name)!), bytesOf(tensor), name);
      }
      for (const [key, value] of other.metadata) {
        if (/^(general|tokenizer)\.(?!architecture)/.test(key)) continue;
        assertEquals(own.metadata.get(key), value, key);
      }
    },
  });
}

Deno.test("a quantised file gives the logits of quantising while loading", async () => {
  using folder = new TempFolder();
  const demo = join(ROOT, "models", "demo");
  const { types } = await quantize(demo, folder.at("demo.gguf"), { type: "Q8_0" });
  assertEquals(types, { Q8_0: 29, F32: 9 });
  await using own = await load(demo, { ...REFERENCE, quantize: "Q8_0" });
  await using written = await load(folder.at("demo.gguf"), REFERENCE);
  const text = "Once upon a time";
  assertEquals(await written.logits(text), await own.logits(text));
  assertEquals(readGguf(folder.at("demo.gguf")).metadata.get("general.name"), "demo");
  const template = (path: string) => openCheckpoint(path).chatTemplate;
  assertEquals(template(folder.at("demo.gguf")), template(demo));
});

Deno.test("a file of floats becomes the same file as the folder it was made from", async () => {
  using folder = new TempFolder();
  const demo = join(ROOT, "models", "demo");
  await quantize(demo, folder.at("demo"), { type: "F16" });
  for (const type of ["Q4_K_M", "Q2_K"] as const) {
    await quantize(demo, folder.at("one.gguf"), { type, overwrite: true });
    await quantize(folder.at("demo"), folder.at("two.gguf"), { type, overwrite: true });
    const [one, two] = [readGguf(folder.at("one.gguf")), readGguf(folder.at("two.gguf"))];
    assertEquals(two.metadata, one.metadata);
    for (const [name, tensor] of one.tensors) {
      assertEquals(bytesOf(two.tensors.get(name)!), bytesOf(tensor), name);
    }
  }
  const again = () => quantize(folder.at("one.gguf"), folder.at("three.gguf"), { type: "Q8_0" });
  await assertRejects(again, ForgeError, "is quantised to IQ4_NL already; give a model in F32");
});

Deno.test("files are replaced only on request, and unfinished ones removed", async () => {
  using folder = new TempFolder();
  const demo = join(ROOT, "models", "demo");
  const path = folder.write("demo.gguf", "old");
  await assertRejects(() => quantize(demo, path, { type: "Q8_0" }), ForgeError, "exists already");
  const stop = new AbortController();
  const stopped = quantize(demo, path, {
    type: "Q8_0",
    overwrite: true,
    signal: stop.signal,
    onProgress: () => stop.abort(),
  });
  const error = await assertRejects(() => stopped, ForgeError, "stopped");
  assertEquals(error.code, "cancelled");
  assertEquals(Deno.readTextFileSync(path), "old");
  assertEquals([...Deno.readDirSync(folder.path)].length, 1);
  const own = () => quantize(path, path, { type: "Q8_0", overwrite: true });
  await quantize(demo, path, { type: "F16", overwrite: true });
  await assertRejects(own, ForgeError, "is a file that is read");
  const missing = () => quantize(demo, folder.at("no", "x.gguf"), { type: "Q8_0" });
  await assertRejects(missing, ForgeError, "cannot write");
  await assertRejects(() => quantize(demo, path, { type: "Q9" as never }), ForgeError, "Q4_K_M");
});

Deno.test({
  name: "a SentencePiece tokenizer keeps its tokens",
  ignore: !sharedAvailable("models", "stories260K"),
  fn: async () => {
    using folder = new TempFolder();
    const path = sharedPath("models", "stories260K");
    await quantize(path, folder.at("model.gguf"), { type: "F16" });
    const own = openTokenizer(openCheckpoint(path));
    const written = openTokenizer(openCheckpoint(folder.at("model.gguf")));
    for (
      const text of ["Once upon a time, there was a girl.", "  two\n\nlines ", "Straße 北京 🚀"]
    ) {
      const ids = own.encode(text);
      assertEquals(written.encode(text), ids, text);
      assertEquals(written.decode(ids), own.decode(ids), text);
    }
    assert(written.addBos);
    assertEquals(written.eosIds, own.eosIds);
  },
});
