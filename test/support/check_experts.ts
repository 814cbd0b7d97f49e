/**
 * Compares models with F16 experts on a device (the argument) with the reference device. Run in a
 * separate process.
 */
import { load, type LoadOptions } from "../../src/mod.ts";
import { readSafetensors } from "../../src/formats/safetensors.ts";
import { float32Tensor, type TensorData } from "../../src/formats/tensor_data.ts";
import { assertClose, readJson, type Reference } from "../models/reference_check.ts";
import { writeModelFolder } from "./safetensors_writer.ts";
import { sharedPath } from "./shared.ts";
import { TempFolder } from "./temp_folder.ts";

const [device = ""] = Deno.args;

/**
 * Tokens of a prompt: enough to be computed as a prompt. With other tokens, two experts of a model
 * are so close that rounding decides which of them a token gets.
 */
const FIRST = 4, TOKENS = 20;
const TOLERANCE = 5e-3;

/** The logits after a prompt, and the log-likelihoods of its tokens. */
async function results(path: string, options: LoadOptions, prompt: Int32Array) {
  await using model = await load(path, { ...options, kvType: "F32" });
  return { logits: await model.logits(prompt), scores: await model.score(prompt) };
}

async function check(family: string, path: string): Promise<void> {
  const { prompt_ids } = readJson<Reference>(
    sharedPath("models", "tiny", family, "reference.json"),
  );
  const prompt = Int32Array.from(prompt_ids.slice(FIRST, FIRST + TOKENS));
  const actual = await results(path, { device }, prompt);
  const expected = await results(path, { device: "reference" }, prompt);
  assertClose(actual.logits, expected.logits, TOLERANCE);
  assertClose(actual.scores, expected.scores, TOLERANCE);
}

/** The tensors of a folder in F32, matrices as F16. */
function halfTensors(folder: string): TensorData[] {
  const path = `${folder}/model.safetensors`;
  const file = Deno.readFileSync(path);
  return [...readSafetensors(path).tensors.values()].map(({ name, shape, offset, bytes }) => {
    const values = new Float32Array(file.slice(offset, offset + bytes).buffer);
    if (shape.length < 2) return float32Tensor(name, shape, values);
    const halves = Float16Array.from(values);
    return { name, type: "F16", shape, data: new Uint8Array(halves.buffer) };
  });
}

for (const family of ["mixtral", "qwen3_moe", "gpt_oss"]) {
  const source = sharedPath("models", "tiny", family);
  const files = ["config.json", "tokenizer.json", "tokenizer_config.json"].map((name) =>
    [name, Deno.readTextFileSync(`${source}/${name}`)] as const
  );
  using folder = new TempFolder();
  writeModelFolder(folder.path, Object.fromEntries(files), halfTensors(source));
  await check(family, folder.path);
}
