/** Tests reading the pooling from GGUF metadata and from sentence-transformers files. */
import { assertEquals, assertThrows } from "@std/assert";
import { dirname, join } from "@std/path";
import { embeddingRecipe } from "../../../../src/engine/embedding/pooling.ts";
import { type Checkpoint, ForgeError } from "../../../../src/mod.ts";
import { TempFolder } from "../../../support/temp_folder.ts";

function checkpoint(part: Partial<Checkpoint>): Checkpoint {
  return { modelType: "qwen3", path: "m.gguf", metadata: undefined, ...part } as Checkpoint;
}

function ggufRecipe(value?: number | string) {
  const entries: [string, number | string][] = value === undefined
    ? []
    : [["qwen3.pooling_type", value]];
  return embeddingRecipe(checkpoint({ metadata: new Map(entries) }));
}

function folderRecipe(files: Readonly<Record<string, unknown>>) {
  using folder = new TempFolder();
  for (const [name, value] of Object.entries(files)) {
    const path = join(folder.path, name);
    Deno.mkdirSync(dirname(path), { recursive: true });
    Deno.writeTextFileSync(path, JSON.stringify(value));
  }
  return embeddingRecipe(checkpoint({ path: folder.path }));
}

function module(name: string, path = "") {
  return { type: `sentence_transformers.models.${name}`, path };
}

function refusal(work: () => unknown): [string, string] {
  const error = assertThrows(work, ForgeError);
  return [error.code, error.message.replace(/^"[^"]*?([^/"]*)"/, "$1")];
}

const WAYS = "which forge does not compute; it pools by last, mean, cls, and normalises";

Deno.test("GGUF encodes the pooling as a number", () => {
  assertEquals(ggufRecipe(), { pooling: undefined, normalize: undefined });
  const poolings = [0, 1, 2, 3].map((type) => ggufRecipe(type).pooling);
  assertEquals(poolings, [undefined, "mean", "cls", "last"]);
  assertEquals(refusal(() => ggufRecipe(4)), [
    "unsupported",
    "m.gguf is a reranker: it scores texts (forge rerank)",
  ]);
  for (const value of [5, -1, 1.5, "last"]) {
    assertEquals(refusal(() => ggufRecipe(value)), [
      "unsupported",
      `m.gguf asks for pooling_type ${value}, ${WAYS}`,
    ]);
  }
});

Deno.test("a dense module needs sizes, and an activation that forge computes", () => {
  const dense = (config: Readonly<Record<string, unknown>>) =>
    folderRecipe({
      "modules.json": [module("Transformer"), module("Pooling", "p"), module("Dense", "d")],
      "p/config.json": { pooling_mode: "mean" },
      "d/config.json": { in_features: 4, out_features: 2, ...config },
    });
  const read = (config: Readonly<Record<string, unknown>>) => dense(config).dense?.[0];
  const plain = { path: "d", inputs: 4, outputs: 2, bias: true, activation: "tanh" };
  assertEquals(read({}), plain);
  assertEquals(read({ bias: false }), { ...plain, bias: false });
  const activations = [
    ["torch.nn.modules.linear.Identity", "identity"],
    ["torch.nn.modules.activation.Tanh", "tanh"],
    ["torch.nn.modules.activation.GELU", "gelu"],
    ["torch.nn.ReLU", "relu"],
    ["torch.nn.SiLU", "silu"],
  ] as const;
  for (const [activation_function, activation] of activations) {
    assertEquals(read({ activation_function }), { ...plain, activation });
  }
  assertEquals(refusal(() => read({ activation_function: "torch.nn.Softsign" })), [
    "unsupported",
    `config.json asks for the activation "torch.nn.Softsign", ${WAYS}`,
  ]);
  for (const key of ["in_features", "out_features"]) {
    for (const size of [0, -1, 1.5, "4", null]) {
      const expected = ["bad_model", "config.json lacks in_features or out_features"];
      assertEquals(refusal(() => read({ [key]: size })), expected);
    }
  }
});

Deno.test("a list of modules that are none is refused", () => {
  for (const module of [null, 5, "Pooling", {}, { type: 5 }, { type: "models.Other" }]) {
    const [code, message] = refusal(() => folderRecipe({ "modules.json": [module] }));
    const type = (module as { type?: unknown } | null)?.type;
    assertEquals([code, message], [
      "unsupported",
      `modules.json asks for the module "${type}", ${WAYS}`,
    ]);
  }
});

Deno.test("sentence-transformers modules are read in both spellings", () => {
  assertEquals(folderRecipe({}), { pooling: undefined, normalize: undefined });
  const modules = [module("Transformer"), module("Pooling", "1_Pooling"), module("Normalize")];
  const lastToken = { pooling_mode_cls_token: false, pooling_mode_lasttoken: true };
  assertEquals(folderRecipe({ "modules.json": modules, "1_Pooling/config.json": lastToken }), {
    pooling: "last",
    normalize: true,
  });
  const files = {
    "modules.json": [
      { type: "sentence_transformers.base.modules.transformer.Transformer", path: "" },
      { type: "sentence_transformers.sentence_transformer.modules.pooling.Pooling", path: "p" },
    ],
    "p/config.json": { embedding_dimension: 64, pooling_mode: "mean" },
  };
  assertEquals(folderRecipe(files), { pooling: "mean", normalize: false });
  assertEquals(folderRecipe({ "1_Pooling/config.json": { pooling_mode_cls_token: true } }), {
    pooling: "cls",
    normalize: undefined,
  });
});

Deno.test("each name of a pooling mode has its pooling", () => {
  const expected = { lasttoken: "last", mean_tokens: "mean", cls_token: "cls" } as const;
  for (const [name, pooling] of Object.entries(expected)) {
    const config = { [`pooling_mode_${name}`]: true, pooling_mode_max_tokens: false };
    assertEquals(folderRecipe({ "1_Pooling/config.json": config }).pooling, pooling);
    const newer = { pooling_mode: name.replace("_tokens", "").replace("_token", "") };
    assertEquals(folderRecipe({ "1_Pooling/config.json": newer }).pooling, pooling);
  }
});

Deno.test("unsupported pooling is rejected by name", () => {
  const modules = [module("Transformer"), module("Pooling", "1_Pooling")];
  const withPooling = (config: unknown) =>
    refusal(() => folderRecipe({ "modules.json": modules, "1_Pooling/config.json": config }));
  const both = { pooling_mode_cls_token: true, pooling_mode_mean_tokens: true };
  assertEquals(withPooling(both), [
    "unsupported",
    `config.json asks for pooling_mode_cls_token and pooling_mode_mean_tokens, ${WAYS}`,
  ]);
  for (const mode of ["max", "constructor"]) {
    assertEquals(withPooling({ pooling_mode: mode }), [
      "unsupported",
      `config.json asks for ${mode}, ${WAYS}`,
    ]);
  }
  assertEquals(
    refusal(() => folderRecipe({ "modules.json": [...modules, module("LSTM", "2_LSTM")] })),
    [
      "unsupported",
      `modules.json asks for the module "sentence_transformers.models.LSTM", ${WAYS}`,
    ],
  );
  assertEquals(refusal(() => folderRecipe({ "modules.json": {} })), [
    "bad_model",
    "modules.json holds an object, not a JSON array",
  ]);
});

Deno.test("modules outside the model's folder are not read", () => {
  for (const place of ["..", "../other", "/etc", "a/b", "", undefined, 7]) {
    const module = { type: "sentence_transformers.models.Pooling", path: place };
    const [code] = refusal(() => folderRecipe({ "modules.json": [module] }));
    assertEquals(code, "bad_model");
  }
});
