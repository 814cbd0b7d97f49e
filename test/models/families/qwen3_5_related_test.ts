/**
 * Architectures related to Qwen3.5: the tensors of tiny Qwen3.5, rewritten to the layout of another
 * architecture, are the same model and must match transformers' results.
 */
import { float32Tensor } from "../../../src/formats/tensor_data.ts";
import { writeModelFolder } from "../../support/safetensors_writer.ts";
import { sharedAvailable, sharedPath } from "../../support/shared.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { assertMatchesReference, readJson, type Reference } from "../reference_check.ts";
import { type FloatTensor, readTensors } from "./tiny_gguf.ts";
import type { Config } from "../tiny_variant.ts";

const FAMILY = "qwen3_5_text";
const HIDDEN = 64, K_HEADS = 2, PER_KEY = 2, DIM = 16;
const INTERMEDIATE = 128;

type Layer = ReadonlyMap<string, FloatTensor>;

function values(layer: Layer, name: string): Float32Array {
  return layer.get(name)!.values;
}

function matrix(name: string, parts: readonly Float32Array[], cols = HIDDEN): FloatTensor {
  const joined = Float32Array.from(parts.flatMap((part) => Array.from(part)));
  return { name, shape: [joined.length / cols, cols], values: joined };
}

/** Interleaves matrices: for each key head, the given number of rows of each matrix in order. */
function interleaved(
  name: string,
  parts: readonly (readonly [matrix: Float32Array, rows: number])[],
): FloatTensor {
  const groups = Array.from(
    { length: K_HEADS },
    (_, head) =>
      parts.map(([all, rows]) => all.subarray(head * rows * HIDDEN, (head + 1) * rows * HIDDEN)),
  );
  return matrix(name, groups.flat());
}

/** Rewrites a layer to the layout of Qwen3-Next, which groups rows by key head. */
function asQwen3Next(layer: Layer): FloatTensor[] {
  const qkv = layer.get("linear_attn.in_proj_qkv.weight")?.values;
  if (qkv === undefined) return [...layer.values()];
  const size = K_HEADS * DIM * HIDDEN;
  const [q, k, v] = [qkv.subarray(0, size), qkv.subarray(size, 2 * size), qkv.subarray(2 * size)];
  const z = values(layer, "linear_attn.in_proj_z.weight");
  return [
    ...[...layer.values()].filter(({ name }) => !/in_proj/.test(name)),
    interleaved("linear_attn.in_proj_qkvz.weight", [
      [q, DIM],
      [k, DIM],
      [v, PER_KEY * DIM],
      [z, PER_KEY * DIM],
    ]),
    interleaved("linear_attn.in_proj_ba.weight", [
      [values(layer, "linear_attn.in_proj_b.weight"), PER_KEY],
      [values(layer, "linear_attn.in_proj_a.weight"), PER_KEY],
    ]),
  ];
}

/**
 * Replaces the MLP by experts with the same sum: two routed experts equal to the MLP, one of which
 * is chosen with weight 1/2, and a shared expert equal to the MLP with gate 1/2.
 */
function withExperts(layer: Layer, apart: boolean): FloatTensor[] {
  const [gate, up, down] = ["gate", "up", "down"].map((part) =>
    values(layer, `mlp.${part}_proj.weight`)
  ) as [Float32Array, Float32Array, Float32Array];
  const half = down.map((value) => value / 2);
  const experts: FloatTensor[] = [];
  for (const expert of apart ? [0, 1] : []) {
    const at = `mlp.experts.${expert}`;
    experts.push(matrix(`${at}.gate_proj.weight`, [gate]), matrix(`${at}.up_proj.weight`, [up]));
    experts.push(matrix(`${at}.down_proj.weight`, [half], INTERMEDIATE));
  }
  if (!apart) {
    const gateUp = matrix("mlp.experts.gate_up_proj", [gate, up, gate, up]);
    const downs = matrix("mlp.experts.down_proj", [half, half], INTERMEDIATE);
    experts.push({ ...gateUp, shape: [2, 2 * INTERMEDIATE, HIDDEN] });
    experts.push({ ...downs, shape: [2, HIDDEN, INTERMEDIATE] });
  }
  const router = Float32Array.from({ length: 2 * HIDDEN }, (_, i) => Math.sin(i));
  return [
    ...[...layer.values()].filter(({ name }) => !/^mlp/.test(name)),
    ...experts,
    matrix("mlp.gate.weight", [router]),
    matrix("mlp.shared_expert.gate_proj.weight", [gate]),
    matrix("mlp.shared_expert.up_proj.weight", [up]),
    matrix("mlp.shared_expert.down_proj.weight", [down], INTERMEDIATE),
    matrix("mlp.shared_expert_gate.weight", [new Float32Array(HIDDEN)]),
  ];
}

const EXPERTS: Config = {
  num_experts: 2,
  num_experts_per_tok: 1,
  moe_intermediate_size: INTERMEDIATE,
  shared_expert_intermediate_size: INTERMEDIATE,
};

interface Related {
  readonly name: string;
  readonly config: Config;
  readonly rewrite: (layer: Layer) => FloatTensor[];
}

const RELATED: readonly Related[] = [
  {
    name: "qwen3_next without experts",
    config: { model_type: "qwen3_next", ...EXPERTS, mlp_only_layers: [0, 1, 2, 3] },
    rewrite: asQwen3Next,
  },
  {
    name: "qwen3_next with experts in the last layer, each apart",
    config: { model_type: "qwen3_next", ...EXPERTS, mlp_only_layers: [0, 1, 2] },
    rewrite: (layer) =>
      asQwen3Next(
        layer.has("self_attn.q_proj.weight")
          ? new Map(withExperts(layer, true).map((tensor) => [tensor.name, tensor]))
          : layer,
      ),
  },
  {
    name: "qwen3_5_moe_text with experts in one tensor",
    config: { model_type: "qwen3_5_moe_text", ...EXPERTS, intermediate_size: undefined },
    rewrite: (layer) => withExperts(layer, false),
  },
];

/** Writes the folder of a related architecture. */
function writeKin(folder: string, { config, rewrite }: Related): void {
  const read = (name: string) => readJson<Config>(sharedPath("models", "tiny", FAMILY, name));
  const tensors = readTensors(sharedPath("models", "tiny", FAMILY, "model.safetensors"));
  const layers = new Map<string, Map<string, FloatTensor>>();
  const all: FloatTensor[] = [];
  for (const tensor of tensors) {
    const [, prefix, name] = /^(model\.layers\.\d+\.)(.*)$/.exec(tensor.name) ?? [];
    if (prefix === undefined || name === undefined) all.push(tensor);
    else {
      const layer = layers.get(prefix) ?? new Map<string, FloatTensor>();
      layers.set(prefix, layer.set(name, { ...tensor, name }));
    }
  }
  for (const [prefix, layer] of layers) {
    for (const tensor of rewrite(layer)) all.push({ ...tensor, name: prefix + tensor.name });
  }
  const files = {
    "config.json": { ...read("config.json"), ...config },
    "tokenizer.json": read("tokenizer.json"),
    "tokenizer_config.json": read("tokenizer_config.json"),
  };
  const written = all.map(({ name, shape, values }) =>
    float32Tensor(name, shape, Float32Array.from(values))
  );
  writeModelFolder(folder, files, written);
}

for (const related of RELATED) {
  for (const device of ["reference", "cpu"]) {
    Deno.test({
      name: `tiny ${related.name} agrees on ${device}`,
      ignore: !sharedAvailable("models", "tiny"),
      fn: async () => {
        using folder = new TempFolder();
        writeKin(folder.path, related);
        const path = sharedPath("models", "tiny", FAMILY, "reference.json");
        const options = { device, kvType: "F32" } as const;
        await assertMatchesReference(folder.path, options, readJson<Reference>(path), {
          logits: 1e-3,
          logLikelihood: 2e-3,
        });
      },
    });
  }
}
