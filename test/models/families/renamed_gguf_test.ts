/**
 * Writes the tiny folders of DeepSeek 2 and Gemma 4 as GGUF files, in the names and layouts of
 * llama.cpp's converter, and compares them with transformers in float32.
 */
import type { GgufField } from "../../../src/formats/gguf/writer.ts";
import type { LoadOptions } from "../../../src/mod.ts";
import { sharedAvailable, sharedPath } from "../../support/shared.ts";
import { assertMatchesReference, readJson, type Reference } from "../reference_check.ts";
import { type FloatTensor, splitKeysAndValues, TinyGguf } from "./tiny_gguf.ts";

interface Renamed {
  readonly name: string;
  readonly family: string;
  readonly architecture: string;
  readonly settings: Readonly<Record<string, GgufField>>;
  /** Creates the conversion of one file, which keeps state while it gathers experts. */
  readonly convert: () => (tensor: FloatTensor) => readonly FloatTensor[];
}

/** GGUF's names of a layer's parts and of the other tensors. */
const NAMES: readonly (readonly [huggingFace: string, gguf: string])[] = [
  ["self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"],
  ["self_attn.kv_a_layernorm", "attn_kv_a_norm"],
  ["self_attn.kv_b_proj", "attn_kv_b"],
  ["mlp.gate.", "ffn_gate_inp."],
  ["mlp.shared_experts.gate_proj", "ffn_gate_shexp"],
  ["mlp.shared_experts.up_proj", "ffn_up_shexp"],
  ["mlp.shared_experts.down_proj", "ffn_down_shexp"],
  ["pre_feedforward_layernorm", "ffn_norm"],
  ["layer_scalar", "layer_output_scale.weight"],
  ["per_layer_input_gate", "inp_gate"],
  ["post_per_layer_input_norm", "post_norm"],
  ["model.embed_tokens_per_layer", "per_layer_token_embd"],
  ["model.per_layer_model_projection", "per_layer_model_proj"],
  ["model.per_layer_projection_norm", "per_layer_proj_norm"],
];

function renamed(tensor: FloatTensor): FloatTensor {
  // This name is a prefix of other names.
  const own = tensor.name.replace(/(layers\.\d+\.)per_layer_projection\./, "$1proj.");
  const [from, to] = NAMES.find(([from]) => own.includes(from)) ?? ["", ""];
  return { ...tensor, name: own.replace(from, to) };
}

/** Gathers the experts of each layer into one tensor. */
function stackExperts(nExperts: number): (tensor: FloatTensor) => readonly FloatTensor[] {
  const gathered = new Map<string, FloatTensor[]>();
  return (tensor) => {
    const [, layer, number, part] =
      /^(.*)\.mlp\.experts\.(\d+)\.(\w+)_proj\.weight$/.exec(tensor.name) ?? [];
    if (layer === undefined) return [tensor];
    const name = `${layer}.ffn_${part}_exps.weight`;
    const experts = gathered.get(name) ?? [];
    experts[Number(number)] = tensor;
    gathered.set(name, experts);
    if (Object.keys(experts).length < nExperts) return [];
    const size = tensor.values.length;
    const values = new Float32Array(nExperts * size);
    experts.forEach((expert, i) => values.set(expert.values, i * size));
    return [{ name, shape: [nExperts, ...tensor.shape], values }];
  };
}

const HEADS = 4, PLAIN = 16, VALUE = 16, RANK = 32;

const DEEPSEEK: Readonly<Record<string, GgufField>> = {
  "attention.head_count_kv": ["u32", HEADS],
  "attention.kv_lora_rank": ["u32", RANK],
  "attention.layer_norm_rms_epsilon": ["f32", 1e-6],
  "rope.dimension_count": ["u32", 8],
  "rope.freq_base": ["f32", 10_000],
  expert_count: ["u32", 4],
  expert_used_count: ["u32", 2],
  expert_shared_count: ["u32", 1],
  expert_feed_forward_length: ["u32", 48],
  leading_dense_block_count: ["u32", 1],
  expert_weights_scale: ["f32", 1],
};

/** Renames the norm before the MLP, which other families use for the norm after attention. */
function deepseekNames(tensor: FloatTensor): FloatTensor {
  return { ...tensor, name: tensor.name.replace("post_attention_layernorm", "ffn_norm") };
}

const FILES: readonly Renamed[] = [
  {
    name: "deepseek_v2",
    family: "deepseek_v2",
    architecture: "deepseek2",
    settings: {
      ...DEEPSEEK,
      "attention.key_length": ["u32", 24],
      "attention.value_length": ["u32", VALUE],
    },
    convert: () => {
      const stack = stackExperts(4);
      return (tensor) => stack(tensor).map(renamed).map(deepseekNames);
    },
  },
  {
    name: "deepseek_v2 with keys and values apart",
    family: "deepseek_v2",
    architecture: "deepseek2",
    settings: {
      ...DEEPSEEK,
      "attention.head_count_kv": ["u32", 1],
      "attention.key_length": ["u32", RANK + 8],
      "attention.value_length": ["u32", RANK],
      "attention.key_length_mla": ["u32", 24],
      "attention.value_length_mla": ["u32", VALUE],
    },
    convert: () => {
      const stack = stackExperts(4);
      return (tensor) =>
        stack(tensor).map(renamed).map(deepseekNames).flatMap((tensor) =>
          splitKeysAndValues(tensor, { heads: HEADS, plain: PLAIN, value: VALUE, rank: RANK })
        );
    },
  },
  {
    name: "gemma4_text",
    family: "gemma4_text",
    architecture: "gemma4",
    settings: {
      block_count: ["u32", 6],
      embedding_length_per_layer_input: ["u32", 16],
      "attention.layer_norm_rms_epsilon": ["f32", 1e-6],
      "attention.shared_kv_layers": ["u32", 2],
      "attention.sliding_window_pattern": [
        "array",
        "bool",
        [true, true, false, true, true, false],
      ],
      "attention.key_length": ["u32", 32],
      "attention.value_length": ["u32", 32],
      "attention.key_length_swa": ["u32", 16],
      "attention.value_length_swa": ["u32", 16],
      "rope.dimension_count": ["u32", 32],
      "rope.dimension_count_swa": ["u32", 16],
      "rope.freq_base": ["f32", 1_000_000],
      "rope.freq_base_swa": ["f32", 10_000],
      // The tiny model has no cap; without the key, the cap would be 30.
      final_logit_softcapping: ["f32", 1e6],
    },
    convert: () => (tensor) => {
      // A quarter of the pairs is rotated; huge divisors make the other angles almost 0.
      const values = Float32Array.from({ length: 16 }, (_, i) => i < 4 ? 1 : 1e30);
      const divisors = { name: "rope_freqs.weight", shape: [16], values };
      const own = renamed(tensor);
      return tensor.name === "model.norm.weight" ? [own, divisors] : [own];
    },
  },
];

const DEVICES: readonly { options: LoadOptions; tolerance: number }[] = [
  { options: { device: "reference" }, tolerance: 1e-4 },
  { options: { device: "cpu" }, tolerance: 5e-3 },
];

for (const { name, family, architecture, settings, convert } of FILES) {
  for (const { options, tolerance } of DEVICES) {
    Deno.test({
      name: `tiny ${name} (generated GGUF) agrees on ${options.device}`,
      ignore: !sharedAvailable("models", "tiny"),
      fn: async () => {
        using file = new TinyGguf(family, architecture, settings, convert());
        const path = sharedPath("models", "tiny", family, "reference.json");
        await assertMatchesReference(file.path, options, readJson<Reference>(path), {
          logits: tolerance,
          logLikelihood: 2 * tolerance,
        });
      },
    });
  }
}
