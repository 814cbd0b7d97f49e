/**
 * Writes the folders of `tiny` that have no GGUF file as GGUF files, and compares them with
 * transformers in float32.
 */
import type { GgufField } from "../../../src/formats/gguf/writer.ts";
import type { LoadOptions } from "../../../src/mod.ts";
import { sharedAvailable, sharedPath } from "../../support/shared.ts";
import { assertMatchesReference, readJson, type Reference } from "../reference_check.ts";
import { type FloatTensor, TinyGguf } from "./tiny_gguf.ts";

interface Conversion {
  readonly family: string;
  readonly architecture: string;
  readonly settings: Readonly<Record<string, GgufField>>;
  readonly convert?: (tensor: FloatTensor) => readonly FloatTensor[];
}

const CONVERSIONS: readonly Conversion[] = [
  {
    family: "cohere2",
    architecture: "cohere2",
    settings: {
      "attention.layer_norm_epsilon": ["f32", 1e-5],
      "rope.freq_base": ["f32", 10_000],
      logit_scale: ["f32", 0.25],
    },
  },
  {
    family: "exaone4",
    architecture: "exaone4",
    settings: { "rope.freq_base": ["f32", 1_000_000] },
  },
  {
    family: "gpt_oss",
    architecture: "gpt-oss",
    settings: {
      expert_count: ["u32", 4],
      expert_used_count: ["u32", 2],
      expert_feed_forward_length: ["u32", 128],
      "rope.freq_base": ["f32", 150_000],
      "rope.scaling.type": ["string", "yarn"],
      "rope.scaling.factor": ["f32", 4],
      "rope.scaling.original_context_length": ["u32", 64],
    },
    convert: splitExperts,
  },
  {
    family: "qwen3_5_text",
    architecture: "qwen35",
    settings: {
      "attention.layer_norm_rms_epsilon": ["f32", 1e-6],
      full_attention_interval: ["u32", 4],
      "rope.dimension_count": ["u32", 4],
      "rope.freq_base": ["f32", 10_000],
      "ssm.conv_kernel": ["u32", 4],
      "ssm.group_count": ["u32", 2],
      "ssm.inner_size": ["u32", 64],
      "ssm.state_size": ["u32", 16],
      "ssm.time_step_rank": ["u32", 4],
    },
    convert: convertDeltaNet,
  },
];

/**
 * Range of a tensor that holds the value heads of linear attention: first element, and elements per
 * head.
 */
const VALUE_HEADS: Readonly<Record<string, { from: number; size: number; inRows?: true }>> = {
  in_proj_qkv: { from: 64 * 64, size: 16 * 64 },
  in_proj_z: { from: 0, size: 16 * 64 },
  in_proj_b: { from: 0, size: 64 },
  in_proj_a: { from: 0, size: 64 },
  conv1d: { from: 64 * 4, size: 16 * 4 },
  A_log: { from: 0, size: 1 },
  dt_bias: { from: 0, size: 1 },
  out_proj: { from: 0, size: 16, inRows: true },
};

/** Order of the four value heads of two key heads in files of llama.cpp's converter. */
const TILED = [0, 2, 1, 3];

/**
 * Converts gated delta nets as llama.cpp's converter does: value heads of one key head are as many
 * positions apart as there are key heads, decay rates are stored as `-exp(A_log)`, and norms
 * include the 1 that RMSNorm adds.
 */
function convertDeltaNet({ name, shape, values }: FloatTensor): readonly FloatTensor[] {
  const part = /linear_attn\.(\w+)/.exec(name)?.[1] ?? "";
  let changed = values.slice();
  if (part !== "norm" && /norm\.weight$/.test(name)) changed = changed.map((value) => value + 1);
  const heads = VALUE_HEADS[part];
  if (heads !== undefined) {
    const { from, size, inRows } = heads;
    const rowSize = TILED.length * size;
    for (let at = from; at < (inRows ? values.length : from + rowSize); at += rowSize) {
      TILED.forEach((head, i) => {
        const begin = at + head * size;
        changed.set(values.subarray(begin, begin + size), at + i * size);
      });
    }
  }
  if (part === "A_log") changed = changed.map((value) => -Math.exp(value));
  return [{ name, shape: part === "conv1d" ? [shape[0]!, shape[2]!] : shape, values: changed }];
}

/**
 * Converts the experts of gpt-oss as llama.cpp's converter does: transposes `[experts, in, out]` to
 * `[experts, out, in]`, and splits gate and up, whose columns alternate.
 */
function splitExperts(tensor: FloatTensor): readonly FloatTensor[] {
  const { name, shape: [nExperts = 0, ...rest], values } = tensor;
  const [, prefix, part, bias = ""] = /^(.*)\.mlp\.experts\.(\w+)_proj(_bias|)$/.exec(name) ?? [];
  if (part === undefined) return [tensor];
  const [inner, columns] = bias === "" ? rest as [number, number] : [1, rest[0] ?? 0];
  const take = (target: string, first: number, step: number): FloatTensor => {
    const rows = columns / step;
    const taken = Float32Array.from({ length: nExperts * rows * inner }, (_, i) => {
      const expert = Math.floor(i / (rows * inner));
      const row = Math.floor(i / inner) % rows;
      return values[(expert * inner + i % inner) * columns + first + row * step]!;
    });
    return {
      name: `${prefix}.ffn_${target}_exps.${bias === "" ? "weight" : "bias"}`,
      shape: bias === "" ? [nExperts, rows, inner] : [nExperts, rows],
      values: taken,
    };
  };
  return part === "down" ? [take("down", 0, 1)] : [take("gate", 0, 2), take("up", 1, 2)];
}

const DEVICES: readonly { options: LoadOptions; tolerance: number }[] = [
  { options: { device: "reference" }, tolerance: 1e-4 },
  { options: { device: "cpu" }, tolerance: 5e-3 },
];

const ignore = !sharedAvailable("models", "tiny");

for (const { family, architecture, settings, convert } of CONVERSIONS) {
  for (const { options, tolerance } of DEVICES) {
    Deno.test({
      name: `tiny ${family} (generated GGUF) agrees on ${options.device}`,
      ignore,
      fn: async () => {
        using file = new TinyGguf(family, architecture, settings, convert);
        const path = sharedPath("models", "tiny", family, "reference.json");
        await assertMatchesReference(file.path, options, readJson<Reference>(path), {
          logits: tolerance,
          logLikelihood: 2 * tolerance,
        });
      },
    });
  }
}
