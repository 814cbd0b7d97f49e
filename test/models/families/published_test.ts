/** Compares folders in the spellings of published models with transformers. */
import { assertEquals } from "@std/assert";
import { modelFacts } from "../../../src/cli/model/model_facts.ts";
import { float32Tensor } from "../../../src/formats/tensor_data.ts";
import { load, openCheckpoint } from "../../../src/mod.ts";
import { writeModelFolder } from "../../support/safetensors_writer.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { writeRandomLlama } from "../../support/tiny_llama.ts";
import { published, publishedTensors } from "./generated.ts";
import { assertClose, readJson } from "../reference_check.ts";

const { prompt_ids, models } = published;

for (const [name, { config, logits }] of Object.entries(models)) {
  Deno.test(`a folder of ${name} agrees with transformers`, async () => {
    using folder = new TempFolder();
    // No text is encoded here; any tokenizer will do.
    writeRandomLlama(folder.at("tokens"));
    const tokenizer = readJson(folder.at("tokens", "tokenizer.json"));
    const tensors = publishedTensors(name)
      .map(({ name, shape, values }) => float32Tensor(name, shape, Float32Array.from(values)));
    const path = folder.at("model");
    writeModelFolder(path, { "config.json": config, "tokenizer.json": tokenizer }, tensors);
    for (
      const { device, tolerance } of [
        { device: "reference", tolerance: 1e-5 },
        { device: "cpu", tolerance: 5e-3 },
      ]
    ) {
      await using model = await load(path, { device, kvType: "F32" });
      const last = await model.logits(Int32Array.from(prompt_ids));
      assertClose(last.filter((_, i) => i % 4 === 0), logits, tolerance);
    }
    assertEquals(modelFacts(openCheckpoint(path)).problem, null);
  });
}
