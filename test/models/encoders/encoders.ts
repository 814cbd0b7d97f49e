/** The encoders and rerankers of encoders.json, with the results of transformers. */
import { join } from "@std/path";
import type { JsonObject } from "../../../src/formats/json.ts";
import { float32Tensor } from "../../../src/formats/tensor_data.ts";
import { writeModelFolder } from "../../support/safetensors_writer.ts";
import { filledTensors } from "../families/generated.ts";
import { readJson } from "../reference_check.ts";

/** Vectors of a text by pooling, before normalisation. */
export interface Vectors {
  readonly tokens: readonly number[];
  readonly mean: readonly number[];
  readonly cls: readonly number[];
  readonly last: readonly number[];
}

/** Score of a document. */
export interface Score {
  readonly tokens: number;
  readonly logit: number;
}

interface Encoders {
  readonly query: string;
  readonly documents: readonly string[];
  readonly models: Readonly<
    Record<string, {
      readonly kind: "embed" | "rerank" | "prompt" | "answer";
      readonly config: JsonObject;
      readonly tokenizer: JsonObject;
      /** Shapes by name, as in `published.json`. */
      readonly tensors: Readonly<Record<string, readonly number[]>>;
      /** Results for each document: {@linkcode Vectors}, or {@linkcode Score}. */
      readonly results: readonly unknown[];
    }>
  >;
}

/** Written by encoders.py. */
export const encoders = readJson<Encoders>(join(import.meta.dirname ?? ".", "encoders.json"));

/** Writes a model of encoders.json to a folder, with some settings changed. */
export function writeEncoder(path: string, name: string, settings: JsonObject = {}): void {
  const { config, tokenizer, tensors } = encoders.models[name]!;
  writeModelFolder(
    path,
    { "config.json": { ...config, ...settings }, "tokenizer.json": tokenizer },
    filledTensors(tensors).map(({ name, shape, values }) => float32Tensor(name, shape, values)),
  );
}
