/** Tests embedding: independence of other texts, pooling, truncation and rejected input. */
import { assert, assertAlmostEquals, assertEquals, assertRejects } from "@std/assert";
import { join } from "@std/path";
import { type EmbedOptions, ForgeError, load, type Model } from "../../../../src/mod.ts";
import { TempFolder } from "../../../support/temp_folder.ts";
import { writeRandomHybrid } from "../../../support/tiny_hybrid.ts";
import { type TinyLlamaOptions, writeRandomLlama } from "../../../support/tiny_llama.ts";

async function withModel<T>(
  fn: (model: Model, folder: string) => Promise<T>,
  written: TinyLlamaOptions = {},
  write: typeof writeRandomLlama = writeRandomLlama,
): Promise<T> {
  using folder = new TempFolder();
  write(folder.path, { contextLength: 2048, ...written });
  await using model = await load(folder.path, { device: "cpu", threads: 2, parallel: 4 });
  return await fn(model, folder.path);
}

const LONG = "How far is it from here to the sea? ".repeat(20);
const TEXTS = ["A fox.", LONG, "The sea is far.", "A fox, and another one.", LONG + "!", "x"];

async function vectorOf(model: Model, text: string, options?: EmbedOptions): Promise<Float32Array> {
  return (await model.embed([text], options))[0]!.vector;
}

for (const write of [writeRandomLlama, writeRandomHybrid]) {
  Deno.test(`a vector depends only on its text (${write.name})`, async () => {
    await withModel(
      async (model) => {
        for (const pooling of ["last", "mean", "cls"] as const) {
          const together = await model.embed(TEXTS, { pooling });
          assertEquals(
            together.map(({ tokens }) => tokens),
            TEXTS.map((text) => model.tokenizer.encode(text).length),
          );
          for (const [i, text] of TEXTS.entries()) {
            assertEquals(together[i]!.vector, await vectorOf(model, text, { pooling }));
          }
        }
      },
      {},
      write,
    );
  });
}

Deno.test("embedding and generation share a model without changing results", async () => {
  await withModel(async (model) => {
    const options = { maxTokens: 40, seed: 3, raw: true };
    const text = (await model.complete("Once", options)).text;
    const alone = await model.embed(TEXTS);
    const [beside, ...answers] = await Promise.all([
      model.embed(TEXTS),
      ...Array.from({ length: 6 }, () => model.complete("Once", options)),
    ]);
    assertEquals(beside, alone);
    assertEquals(answers.map((answer) => answer.text), Array(6).fill(text));
  });
});

Deno.test("pooling takes the last, the mean or the first state", async () => {
  await withModel(async (model) => {
    const tokens = model.tokenizer.encode(LONG);
    const raw = { normalize: false } as const;
    const lasts = await model.embed(
      Array.from(tokens, (_, i) => tokens.slice(0, i + 1)),
      { ...raw, pooling: "last" },
    );
    const [mean] = await model.embed([tokens], { ...raw, pooling: "mean" });
    const [first] = await model.embed([tokens], { ...raw, pooling: "cls" });
    assertEquals(first!.vector, lasts[0]!.vector);
    mean!.vector.forEach((value, i) => {
      const sum = lasts.reduce((sum, { vector }) => sum + vector[i]!, 0);
      assertAlmostEquals(value, sum / tokens.length, 1e-5);
    });
  });
});

Deno.test("vectors are truncated, then normalised unless disabled", async () => {
  await withModel(async (model) => {
    const lengthOf = (vector: Float32Array) => Math.hypot(...vector);
    const raw = await vectorOf(model, "A fox.", { normalize: false });
    assert(lengthOf(raw) > 1.1);
    const whole = await vectorOf(model, "A fox.");
    assertAlmostEquals(lengthOf(whole), 1, 1e-6);
    const cut = await vectorOf(model, "A fox.", { dimensions: 16 });
    assertAlmostEquals(lengthOf(cut), 1, 1e-6);
    const scale = lengthOf(raw.subarray(0, 16));
    cut.forEach((value, i) => assertAlmostEquals(value, raw[i]! / scale, 1e-6));
    const both = await vectorOf(model, "A fox.", { dimensions: 16, normalize: false });
    assertEquals(both, raw.slice(0, 16));
  });
});

Deno.test("a model that only generates reserves no memory for embedding", async () => {
  await withModel(async (model) => {
    await model.complete("Once", { maxTokens: 2, raw: true });
    const before = model.memory.activations;
    await model.embed(["A fox."]);
    assert(model.memory.activations > before);
  });
});

Deno.test("the model's files set its pooling", async () => {
  await withModel(async (model, folder) => {
    Deno.mkdirSync(join(folder, "1_Pooling"));
    const write = (name: string, value: unknown) =>
      Deno.writeTextFileSync(join(folder, name), JSON.stringify(value));
    write("modules.json", [
      { idx: 0, name: "0", path: "", type: "sentence_transformers.models.Transformer" },
      { idx: 1, name: "1", path: "1_Pooling", type: "sentence_transformers.models.Pooling" },
    ]);
    write("1_Pooling/config.json", {
      pooling_mode_mean_tokens: true,
      pooling_mode_cls_token: false,
    });
    assertEquals(
      await vectorOf(model, LONG),
      await vectorOf(model, LONG, { pooling: "mean", normalize: false }),
    );
    assertEquals(
      await vectorOf(model, LONG, { normalize: true, pooling: "last" }),
      await vectorOf(model, LONG, { pooling: "last", normalize: true, dimensions: 64 }),
    );
  });
});

Deno.test("a model without an output matrix embeds but does not generate", async () => {
  const whole = await withModel((model) => vectorOf(model, "A fox."));
  const change: NonNullable<TinyLlamaOptions["change"]> = (tensors) =>
    tensors.filter(({ name }) => name !== "lm_head.weight")
      .map((tensor) => ({ ...tensor, name: tensor.name.replace(/^model\./, "") }));
  await withModel(async (model, folder) => {
    assertEquals(await vectorOf(model, "A fox."), whole);
    for (
      const work of [
        () => model.complete("A fox.", { raw: true }),
        () => model.logits("A fox."),
        () => model.score(Int32Array.of(3, 4)),
      ]
    ) {
      const error = await assertRejects(work, ForgeError);
      assertEquals(error.code, "unsupported");
      assertEquals(
        error.message,
        `"${folder}" has no output matrix: it embeds or scores texts and does not generate`,
      );
    }
  }, { change, config: { architectures: ["LlamaModel"] } });
});

Deno.test("input that cannot be embedded is rejected by its index", async () => {
  await withModel(async (model) => {
    const refused = async (
      texts: readonly (string | Int32Array)[],
      options: EmbedOptions,
      code: string,
      message: string,
    ) => {
      const error = await assertRejects(() => model.embed(texts, options), ForgeError);
      assertEquals([error.code, error.message], [code, message]);
    };
    await refused(["a", new Int32Array(0)], {}, "bad_input", "text 2 has no tokens");
    await refused(
      ["a", "b".repeat(2048)],
      {},
      "bad_input",
      "text 2 has 2049 tokens; the context holds 2048",
    );
    await refused(
      [Int32Array.of(3, 97)],
      {},
      "bad_input",
      "token 1 of the text is 97; valid ids are 0 to 96",
    );
    const dimensions = "; valid is a whole number from 1 to 64";
    await refused(["a"], { dimensions: 65 }, "usage", `dimensions is 65${dimensions}`);
    await refused(["a"], { dimensions: 0 }, "usage", `dimensions is 0${dimensions}`);
    const pooling = "max" as "mean";
    await refused(
      ["a"],
      { pooling },
      "usage",
      'pooling is "max"; valid is "last", "mean", "cls"',
    );
    await refused(TEXTS, { signal: AbortSignal.abort() }, "cancelled", "stopped on request");
    assertEquals(await model.embed([]), []);
  });
});

Deno.test("a truncated text keeps the tokenizer's end tokens", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.path, { contextLength: 64, pieces: ["<end>"], controls: ["<end>"] });
  const tokenizer = JSON.parse(Deno.readTextFileSync(folder.at("tokenizer.json")));
  const id = tokenizer.model.vocab["<end>"];
  // As in Qwen3-Embedding, the tokens at the end differ from the end-of-answer token.
  tokenizer.post_processor = {
    type: "TemplateProcessing",
    single: [{ Sequence: { id: "A", type_id: 0 } }, { SpecialToken: { id: "<end>", type_id: 0 } }],
    pair: [],
    special_tokens: { "<end>": { id: "<end>", ids: [id, id], tokens: ["<end>", "<end>"] } },
  };
  folder.write("tokenizer.json", tokenizer);
  await using model = await load(folder.path, { device: "cpu", threads: 1 });
  const tokens = model.tokenizer.encode("b".repeat(100));
  assertEquals([...tokens.slice(-2)], [id, id]);
  assertEquals([...model.tokenizer.encode("b").slice(-2)], [id, id]);
  const [cut] = await model.embed(["b".repeat(100)], { truncate: true });
  const expected = tokens.slice(0, 64);
  expected.fill(id, 62);
  assertEquals(cut, (await model.embed([expected]))[0]!);
  // Ids are used unchanged, up to the context length.
  const [plain] = await model.embed([tokens], { truncate: true });
  assertEquals(plain, (await model.embed([tokens.slice(0, 64)]))[0]!);
});

Deno.test("weights that make states NaN are named", async () => {
  const change: NonNullable<TinyLlamaOptions["change"]> = (tensors) =>
    tensors.map((tensor) =>
      tensor.name === "model.norm.weight"
        ? { ...tensor, data: new Uint8Array(new Float32Array(64).fill(NaN).buffer) }
        : tensor
    );
  await withModel(async (model) => {
    const error = await assertRejects(() => model.embed(["A fox."]), ForgeError);
    assertEquals(error.code, "bad_model");
    assert(error.message.includes('tensor "model.norm.weight" holds NaN'), error.message);
  }, { change });
});

Deno.test("a signal stops embedding", async () => {
  await withModel(async (model) => {
    const controller = new AbortController();
    const work = model.embed(Array(200).fill(LONG), { signal: controller.signal });
    setTimeout(() => controller.abort(), 5);
    const error = await assertRejects(() => work, ForgeError);
    assertEquals(error.code, "cancelled");
    assertEquals((await model.embed(["A fox."])).length, 1);
  });
});
