/**
 * Families without test data of their own, against what transformers computed with the same weights: a
 * function of their names, shapes and places.
 */
import { float32Tensor } from "../../src/formats/tensor_data.ts";
import { load } from "../../src/mod.ts";
import { writeModelFolder } from "../support/safetensors_writer.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { writeRandomLlama } from "../support/tiny_llama.ts";
import { generated, generatedTensors } from "./generated.ts";
import { assertClose, readJson } from "./reference_check.ts";

const { prompt_ids, models } = generated;

for (const [name, { config, logits }] of Object.entries(models)) {
  for (
    const { device, tolerance } of [
      { device: "reference", tolerance: 1e-5 },
      { device: "cpu", tolerance: 5e-3 },
    ]
  ) {
    Deno.test(`${name} with weights made here agrees with transformers on ${device}`, async () => {
      using folder = new TempFolder();
      // What prompts are made of is not looked at.
      writeRandomLlama(folder.at("tokens"));
      const tokenizer = readJson(folder.at("tokens", "tokenizer.json"));
      const tensors = generatedTensors(name, config)
        .map(({ name, shape, values }) => float32Tensor(name, shape, values));
      writeModelFolder(
        folder.at("model"),
        { "config.json": config, "tokenizer.json": tokenizer },
        tensors,
      );
      await using model = await load(folder.at("model"), { device, kvType: "F32" });
      const last = await model.logits(Int32Array.from(prompt_ids));
      assertClose(last.filter((_, i) => i % 4 === 0), logits, tolerance);
    });
  }
}
