/**
 * Families without test data of their own, against what transformers computed with the same weights: a
 * function of their names, shapes and places.
 */
import { join } from "@std/path";
import { wantedTensors } from "../../src/bench/synthetic_checkpoint.ts";
import { float32Tensor } from "../../src/formats/tensor_data.ts";
import type { JsonObject } from "../../src/formats/json.ts";
import { load } from "../../src/mod.ts";
import { writeModelFolder } from "../support/safetensors_writer.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { writeRandomLlama } from "../support/tiny_llama.ts";
import { assertClose, readJson } from "./reference_check.ts";

interface Generated {
  readonly prompt_ids: readonly number[];
  readonly models: Readonly<
    Record<string, { readonly config: JsonObject; readonly logits: readonly number[] }>
  >;
}

const { prompt_ids, models } = readJson<Generated>(
  join(import.meta.dirname ?? ".", "generated.json"),
);

/** FNV-1a. */
function hash(text: string): number {
  let value = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) {
    value = Math.imul(value ^ text.charCodeAt(i), 0x01000193);
  }
  return value;
}

/** Uniform numbers from -1 to 1, by the last steps of MurmurHash3 on a counter. */
function uniform(name: string, count: number): Float64Array {
  const start = hash(name);
  return Float64Array.from({ length: count }, (_, i) => {
    let x = Math.imul(i, 0x9e3779b9) + start | 0;
    x = Math.imul(x ^ x >>> 16, 0x85ebca6b);
    x = Math.imul(x ^ x >>> 13, 0xc2b2ae35);
    return ((x ^ x >>> 16) >>> 8) / 2 ** 23 - 1;
  });
}

/** Factor and offset of a tensor's numbers. */
function spread(name: string, shape: readonly number[]): readonly [number, number] {
  if (name.includes("layer_scalar")) return [0.1, 0.9];
  if (shape.length > 1) return [1.8 / Math.sqrt(shape.at(-1)!), 0];
  return [0.2, /norm|scale/.test(name) ? 1 : 0];
}

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
      const tensors = wantedTensors({ name, config, type: "F32" }).map(({ name, shape }) => {
        const [factor, offset] = spread(name, shape);
        const count = shape.reduce((product, size) => product * size, 1);
        const values = uniform(name, count).map((value) => value * factor + offset);
        return float32Tensor(name, shape, values);
      });
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
