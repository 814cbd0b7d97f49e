/**
 * Compares models of `published.json` on a device with transformers: `check_published.ts DEVICE
 * NAME...`. Run in a separate process.
 */
import { float32Tensor } from "../../src/formats/tensor_data.ts";
import { load } from "../../src/mod.ts";
import { published, publishedTensors } from "../models/families/generated.ts";
import { assertClose, readJson } from "../models/reference_check.ts";
import { writeModelFolder } from "./safetensors_writer.ts";
import { TempFolder } from "./temp_folder.ts";
import { writeRandomLlama } from "./tiny_llama.ts";

const [device = "", ...names] = Deno.args;
for (const name of names) {
  const { config, logits } = published.models[name]!;
  using folder = new TempFolder();
  // No text is encoded here; any tokenizer will do.
  writeRandomLlama(folder.at("tokens"));
  const tokenizer = readJson(folder.at("tokens", "tokenizer.json"));
  const tensors = publishedTensors(name)
    .map(({ name, shape, values }) => float32Tensor(name, shape, Float32Array.from(values)));
  writeModelFolder(
    folder.at("model"),
    { "config.json": config, "tokenizer.json": tokenizer },
    tensors,
  );
  await using model = await load(folder.at("model"), { device, kvType: "F32" });
  const last = await model.logits(Int32Array.from(published.prompt_ids));
  assertClose(last.filter((_, i) => i % 4 === 0), logits, 1e-4);
  console.log(name);
}
