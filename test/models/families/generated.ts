/** Models with generated weights, and the logits that transformers computed with them. */
import { join } from "@std/path";
import { wantedTensors } from "../../../src/bench/synthetic/checkpoint.ts";
import type { JsonObject } from "../../../src/formats/json.ts";
import { float32Tensor } from "../../../src/formats/tensor_data.ts";
import { writeModelFolder } from "../../support/safetensors_writer.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { writeRandomLlama } from "../../support/tiny_llama.ts";
import { readJson } from "../reference_check.ts";
import type { FloatTensor } from "./tiny_gguf.ts";

interface Generated {
  readonly prompt_ids: readonly number[];
  readonly models: Readonly<
    Record<string, { readonly config: JsonObject; readonly logits: readonly number[] }>
  >;
}

interface Published extends Generated {
  readonly models: Readonly<
    Record<string, {
      readonly config: JsonObject;
      /** Shapes by name; `{0,1}` stands for either number. */
      readonly tensors: Readonly<Record<string, readonly number[]>>;
      readonly logits: readonly number[];
    }>
  >;
}

const FOLDER = import.meta.dirname ?? ".";

/** Models with the tensors that forge requests: every fourth of the logits after a prompt. */
export const generated = readJson<Generated>(join(FOLDER, "generated.json"));

/** Models with the tensors of published folders, by `published.py`: the same logits. */
export const published = readJson<Published>(join(FOLDER, "published.json"));

/** FNV-1a. */
function hash(text: string): number {
  let value = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) {
    value = Math.imul(value ^ text.charCodeAt(i), 0x01000193);
  }
  return value;
}

/** Returns uniform numbers from -1 to 1: MurmurHash3's finalizer applied to a counter. */
function uniform(name: string, count: number): Float64Array {
  const start = hash(name);
  return Float64Array.from({ length: count }, (_, i) => {
    let x = Math.imul(i, 0x9e3779b9) + start | 0;
    x = Math.imul(x ^ x >>> 16, 0x85ebca6b);
    x = Math.imul(x ^ x >>> 13, 0xc2b2ae35);
    return ((x ^ x >>> 16) >>> 8) / 2 ** 23 - 1;
  });
}

/** Returns the factor and offset applied to a tensor's numbers. */
function spread(name: string, shape: readonly number[]): readonly [number, number] {
  if (name.includes("layer_scalar")) return [0.1, 0.9];
  if (shape.length > 1) return [1.8 / Math.sqrt(shape.at(-1)!), 0];
  return [0.2, /norm|scale/.test(name) ? 1 : 0];
}

function filled(name: string, shape: readonly number[]): FloatTensor {
  const [factor, offset] = spread(name, shape);
  const count = shape.reduce((product, size) => product * size, 1);
  const values = uniform(name, count).map((value) => value * factor + offset);
  return { name, shape, values: Float32Array.from(values) };
}

/** Returns the tensors of a model of `generated`, as forge requests them. */
export function generatedTensors(name: string, config: JsonObject): FloatTensor[] {
  return wantedTensors({ name, config, type: "F32" }).map(({ name, shape }) => filled(name, shape));
}

/** Writes a model with generated weights to the folder "model" of a new folder. */
export function writeGenerated(
  name: string,
  config: JsonObject = generated.models[name]!.config,
): TempFolder {
  const folder = new TempFolder();
  // Prompts are token ids; any tokenizer will do.
  writeRandomLlama(folder.at("tokens"));
  const tokenizer = readJson(folder.at("tokens", "tokenizer.json"));
  const tensors = generatedTensors(name, config)
    .map(({ name, shape, values }) => float32Tensor(name, shape, values));
  const files = { "config.json": config, "tokenizer.json": tokenizer };
  writeModelFolder(folder.at("model"), files, tensors);
  return folder;
}

/** Expands a pattern such as `layers.{0,1}.mlp` to the names it stands for. */
function unfolded(pattern: string): string[] {
  const [, start, numbers, end] = /^(.*?)\{([\d,]+)\}(.*)$/.exec(pattern) ?? [];
  if (numbers === undefined) return [pattern];
  return numbers.split(",").flatMap((number) => unfolded(`${start}${number}${end}`));
}

/** Returns the tensors of a model of `published`, as its folder holds them. */
export function publishedTensors(name: string): FloatTensor[] {
  return filledTensors(published.models[name]!.tensors);
}

/**
 * Returns tensors with generated numbers. @param shapes shapes by name; `{0,1}` stands for either
 * number
 */
export function filledTensors(shapes: Readonly<Record<string, readonly number[]>>): FloatTensor[] {
  return Object.entries(shapes)
    .flatMap(([pattern, shape]) => unfolded(pattern).map((name) => filled(name, shape)));
}
