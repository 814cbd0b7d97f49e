/**
 * Low-rank adapters against peft (adapters.json), from folders and as GGUF files, on models of both
 * formats.
 */
import { assertEquals, assertRejects } from "@std/assert";
import { join } from "@std/path";
import type { GgufField } from "../../../src/formats/gguf/writer.ts";
import type { JsonObject } from "../../../src/formats/json.ts";
import { float32Tensor } from "../../../src/formats/tensor_data.ts";
import { syntheticTokenizer } from "../../../src/bench/synthetic/tokenizer.ts";
import { ForgeError, load, type LoadOptions, type Model } from "../../../src/mod.ts";
import { encodeGguf } from "../../support/parts.ts";
import { encodeSafetensors, writeModelFolder } from "../../support/safetensors_writer.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { writeRandomLlama } from "../../support/tiny_llama.ts";
import { filledTensors } from "../families/generated.ts";
import type { FloatTensor } from "../families/tiny_gguf.ts";
import { assertClose, readJson } from "../reference_check.ts";

type Shapes = Readonly<Record<string, readonly number[]>>;

interface AdaptedModel {
  readonly config: JsonObject;
  readonly tensors: Shapes;
  readonly adapters: Readonly<
    Record<string, { readonly config: JsonObject; readonly tensors: Shapes }>
  >;
  /** Every fourth of the logits after the prompt, by the adapters in use, joined by "+". */
  readonly logits: Readonly<Record<string, readonly number[]>>;
}

/** Written by adapters.py. */
const { prompt, models } = readJson<{
  readonly prompt: readonly number[];
  readonly models: Readonly<Record<string, AdaptedModel>>;
}>(join(import.meta.dirname ?? ".", "adapters.json"));

/** Tolerance of the GGUF tests as of the folders: all weights are F32. */
const TOLERANCE = 1e-4;

const DEVICES: readonly LoadOptions[] = [
  { device: "reference" },
  { device: "cpu", kvType: "F32", products: "f32" },
];

const stored = (tensors: readonly FloatTensor[]) =>
  tensors.map(({ name, shape, values }) => float32Tensor(name, shape, values));

function writeModel(folder: TempFolder, name: string): string {
  const { config, tensors } = models[name]!;
  const path = join(folder.path, name);
  // Prompts are token ids; any tokenizer will do.
  writeRandomLlama(folder.at("tokens"));
  const tokenizer = readJson(folder.at("tokens", "tokenizer.json"));
  writeModelFolder(
    path,
    { "config.json": config, "tokenizer.json": tokenizer },
    stored(filledTensors(tensors)),
  );
  return path;
}

/** Writes an adapter as peft does, with changed settings and tensors. */
function writeAdapter(
  folder: TempFolder,
  model: string,
  name: string,
  settings: JsonObject = {},
  change: (tensors: FloatTensor[]) => readonly FloatTensor[] = (tensors) => tensors,
): string {
  const { config, tensors } = models[model]!.adapters[name]!;
  const path = join(folder.path, `${model}-${name}`);
  Deno.mkdirSync(path, { recursive: true });
  Deno.writeTextFileSync(
    join(path, "adapter_config.json"),
    JSON.stringify({ ...config, ...settings }),
  );
  Deno.writeFileSync(
    join(path, "adapter_model.safetensors"),
    encodeSafetensors({ tensors: stored(change(filledTensors(tensors))) }),
  );
  return path;
}

/** The adapters of one model, with their names. */
function writeAdapters(folder: TempFolder, model: string) {
  return Object.keys(models[model]!.adapters).map((name) => ({
    name,
    path: writeAdapter(folder, model, name),
  }));
}

/** Compares the logits of every choice of adapters. */
async function assertLogits(model: Model, { logits }: AdaptedModel): Promise<void> {
  for (const [choice, expected] of Object.entries(logits)) {
    const lora = choice === "none" ? [] : choice.split("+").map((name) => ({ name }));
    const actual = await model.logits(Int32Array.from(prompt), { lora });
    assertClose(actual.filter((_, i) => i % 4 === 0), expected, TOLERANCE);
  }
}

for (const options of DEVICES) {
  for (const [name, adapted] of Object.entries(models)) {
    Deno.test(`adapters of ${name} agree with peft (${options.device})`, async () => {
      using folder = new TempFolder();
      const path = writeModel(folder, name);
      await using model = await load(path, { ...options, lora: writeAdapters(folder, name) });
      await assertLogits(model, adapted);
    });
  }
}
