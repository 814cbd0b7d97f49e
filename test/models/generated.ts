/** Models whose weights are made here: what transformers computed with them, and the weights. */
import { join } from "@std/path";
import { wantedTensors } from "../../src/bench/synthetic/checkpoint.ts";
import type { JsonObject } from "../../src/formats/json.ts";
import { readJson } from "./reference_check.ts";
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

/** Every fourth of the logits after a prompt, of models with the tensors that forge asks for. */
export const generated = readJson<Generated>(join(FOLDER, "generated.json"));

/** The same of models with the tensors that published folders have, by `published.py`. */
export const published = readJson<Published>(join(FOLDER, "published.json"));

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

function filled(name: string, shape: readonly number[]): FloatTensor {
  const [factor, offset] = spread(name, shape);
  const count = shape.reduce((product, size) => product * size, 1);
  const values = uniform(name, count).map((value) => value * factor + offset);
  return { name, shape, values: Float32Array.from(values) };
}

/** The tensors of a model of `generated`, as forge asks for them. */
export function generatedTensors(name: string, config: JsonObject): FloatTensor[] {
  return wantedTensors({ name, config, type: "F32" }).map(({ name, shape }) => filled(name, shape));
}

/** Names of which one pattern stands for several, as `layers.{0,1}.mlp` does. */
function unfolded(pattern: string): string[] {
  const [, start, numbers, end] = /^(.*?)\{([\d,]+)\}(.*)$/.exec(pattern) ?? [];
  if (numbers === undefined) return [pattern];
  return numbers.split(",").flatMap((number) => unfolded(`${start}${number}${end}`));
}

/** The tensors of a model of `published`, as its folder holds them. */
export function publishedTensors(name: string): FloatTensor[] {
  return Object.entries(published.models[name]!.tensors)
    .flatMap(([pattern, shape]) => unfolded(pattern).map((name) => filled(name, shape)));
}
