/**
 * One random Llama in every weight type. The reference matches the float32 logits of the
 * dequantised weights; other devices have at most the error of llama.cpp.
 */
import { assertEquals } from "@std/assert";
import { load, type LoadOptions } from "../../../src/mod.ts";
import { devices } from "../../support/devices.ts";
import { sharedAvailable, sharedPath } from "../../support/shared.ts";
import { assertClose, readJson, type Reference } from "../reference_check.ts";

interface QuantReference extends Reference {
  readonly file: string;
  /** Relative error of llama.cpp's logits. */
  readonly llama_cpp_relative_error: number;
}

const ignore = !sharedAvailable("models", "quant256");
const models = ignore ? {} : readJson<{ models: Record<string, QuantReference> }>(
  sharedPath("models", "quant256", "reference.json"),
).models;

async function check(reference: QuantReference, options: LoadOptions, tolerance: number) {
  await using model = await load(sharedPath("models", "quant256", reference.file), options);
  const logits = await model.logits(Int32Array.from(reference.prompt_ids));
  assertClose(logits, reference.logits_last, tolerance);
}

Deno.test({
  name: "quant256 has a model for each of 17 types",
  ignore,
  fn: () => assertEquals(Object.keys(models).length, 17),
});

for (const [type, reference] of Object.entries(models)) {
  Deno.test(`quant256 ${type} is exact on reference`, async () => {
    await check(reference, { device: "reference" }, 1e-4);
  });
  for (const { name } of devices.filter(({ kind }) => kind === "cpu")) {
    Deno.test(`quant256 ${type} is as accurate on ${name} as in llama.cpp`, async () => {
      const error = reference.llama_cpp_relative_error;
      if (type !== "BF16") return check(reference, { device: name }, error);
      // llama.cpp rounds activations to BF16 too, but not the same ones.
      await check(reference, { device: name }, 1.5 * error);
      await check(reference, { device: name, products: "f32" }, 0.5 * error);
    });
  }
}
