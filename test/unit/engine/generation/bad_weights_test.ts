/** Tests that NaN and infinite weights are reported by tensor name and produce no text. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { ForgeError, load } from "../../../../src/mod.ts";
import { TempFolder } from "../../../support/temp_folder.ts";
import type { TensorData } from "../../../../src/formats/tensor_data.ts";
import { BOS, writeRandomLlama } from "../../../support/tiny_llama.ts";

/** Replaces one number of a row of an F32 tensor. */
function poisoned(tensors: TensorData[], name: string, row: number, value: number): TensorData[] {
  return tensors.map((tensor) => {
    if (tensor.name !== name) return tensor;
    assert(tensor.data instanceof Uint8Array);
    const values = new Float32Array(tensor.data.slice().buffer);
    values[row * tensor.shape.at(-1)!] = value;
    return { ...tensor, data: new Uint8Array(values.buffer) };
  });
}

async function assertNamesWeight(name: string, row: number, value: number, device: string) {
  using folder = new TempFolder();
  writeRandomLlama(folder.path, {
    change: (tensors) => poisoned(tensors, name, row, value),
  });
  await using model = await load(folder.path, { device });
  const prompt = Int32Array.of(BOS, 10, 11);
  for (
    const use of [
      () => model.complete(prompt, { temperature: 0 }),
      () => model.complete(prompt, { seed: 1 }),
      () => model.logits(prompt),
      () => model.score(prompt),
    ]
  ) {
    const error = await assertRejects(use, ForgeError);
    assertEquals(error.code, "bad_model");
    assert(
      error.message.includes(`"${name}`) && error.message.endsWith(` holds ${value}`),
      error.message,
    );
  }
  // The failure leaves no state: a second call reports the same error.
  await assertRejects(() => model.logits(prompt), ForgeError, " holds ");
}

for (const device of ["reference", "cpu"]) {
  Deno.test(`a NaN weight is named on ${device}`, async () => {
    await assertNamesWeight("model.layers.1.mlp.down_proj.weight", 5, NaN, device);
    await assertNamesWeight("model.layers.0.self_attn.k_proj.weight", 3, NaN, device);
    await assertNamesWeight("model.norm.weight", 0, NaN, device);
  });

  Deno.test(`a single NaN logit is an error on ${device}`, async () => {
    for (const row of [0, 50, 96]) await assertNamesWeight("lm_head.weight", row, NaN, device);
  });

  Deno.test(`an infinite weight is named on ${device}`, async () => {
    await assertNamesWeight("model.layers.0.mlp.gate_proj.weight", 7, Infinity, device);
  });

  Deno.test(`a NaN row that no token uses changes no result on ${device}`, async () => {
    using folder = new TempFolder();
    writeRandomLlama(folder.path, {
      change: (tensors) => poisoned(tensors, "model.embed_tokens.weight", 60, NaN),
    });
    await using model = await load(folder.path, { device });
    const logits = await model.logits(Int32Array.of(BOS, 10));
    assert(logits.every(Number.isFinite));
    await assertRejects(() => model.logits(Int32Array.of(BOS, 60)), ForgeError, "embed_tokens");
  });

  Deno.test(`a float32 overflow is an error that names no weight on ${device}`, async () => {
    using folder = new TempFolder();
    const huge = (tensor: TensorData): TensorData => {
      if (!/mlp\.(gate|up)_proj/.test(tensor.name)) return tensor;
      assert(tensor.data instanceof Uint8Array);
      const values = new Float32Array(tensor.data.slice().buffer);
      return { ...tensor, data: new Uint8Array(values.map((value) => value * 1e30).buffer) };
    };
    writeRandomLlama(folder.path, { change: (tensors) => tensors.map(huge) });
    await using model = await load(folder.path, { device });
    const error = await assertRejects(() => model.logits(Int32Array.of(BOS)), ForgeError);
    assertEquals(error.code, "bad_model");
    assert(error.message.includes("its weights hold NaN or overflow float32"), error.message);
  });
}
