/**
 * Compares families that the shared models lack with transformers. The weights are a function of
 * tensor names, shapes and element positions.
 */
import { assert, assertEquals } from "@std/assert";
import { load } from "../../../src/mod.ts";
import { generated, writeGenerated } from "./generated.ts";
import { assertClose } from "../reference_check.ts";

const { prompt_ids, models } = generated;

for (const [name, { logits }] of Object.entries(models)) {
  for (
    const { device, tolerance } of [
      { device: "reference", tolerance: 1e-5 },
      { device: "cpu", tolerance: 5e-3 },
    ]
  ) {
    Deno.test(`${name} with generated weights agrees with transformers on ${device}`, async () => {
      using folder = writeGenerated(name);
      await using model = await load(folder.at("model"), { device, kvType: "F32" });
      const last = await model.logits(Int32Array.from(prompt_ids));
      assertClose(last.filter((_, i) => i % 4 === 0), logits, tolerance);
    });
  }

  Deno.test(`${name} gives the same token after decoding as after a prompt`, async () => {
    using folder = writeGenerated(name);
    const options = { device: "cpu", kvType: "F32" } as const;
    const prompt = Int32Array.from(prompt_ids);
    await using speaker = await load(folder.at("model"), options);
    const { tokenIds } = await speaker.complete(prompt, { temperature: 0, maxTokens: 8 });
    assert(tokenIds.length > 1, "more than one token");
    // A new model has no cached tokens.
    await using reader = await load(folder.at("model"), options);
    const last = await reader.logits(Int32Array.from([...prompt, ...tokenIds.slice(0, -1)]));
    assertEquals(last.indexOf(Math.max(...last)), tokenIds.at(-1));
  });
}
