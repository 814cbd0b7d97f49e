/**
 * Writes GGUF files with the weights of `generated.ts`, in the names and layouts of llama.cpp's
 * converter, and compares their logits with those of transformers. Covers families for which the
 * shared models have no converted file.
 */
import { assertEquals, assertRejects } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import type { GgufField } from "../../../src/formats/gguf/writer.ts";
import { float32Tensor } from "../../../src/formats/tensor_data.ts";
import { syntheticTokenizer } from "../../../src/bench/synthetic/tokenizer.ts";
import { load } from "../../../src/mod.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { draftAfterPrompt, withRunner, writeFolder } from "./draft_head.ts";
import {
  filledTensors,
  generated,
  generatedTensors,
  published,
  publishedTensors,
} from "./generated.ts";
import { assertClose } from "../reference_check.ts";
import { type FloatTensor, splitKeysAndValues } from "./tiny_gguf.ts";
import { encodeGguf } from "../../support/parts.ts";

interface Converted {
  /** A model of `published.json`, or of `generated.json`. */
  readonly model: string;
  /** Describes the variant of a model that is converted in several ways. */
  readonly form?: string;
  readonly architecture: string;
  readonly settings: Readonly<Record<string, GgufField>>;
  /** Converts a tensor except for its name. Experts are stacked separately. */
  readonly convert?: (tensor: FloatTensor) => readonly FloatTensor[];
  /** Tensors of a folder whose head drafts the same tokens. */
  readonly draftsAs?: () => readonly FloatTensor[];
}

/** Parts of tensor names; the first match applies. */
const NAMES: readonly (readonly [huggingFace: string, gguf: string])[] = [
  ["post_self_attn_layernorm", "post_attention_norm"],
  ["post_mlp_layernorm", "post_ffw_norm"],
  ["self_attn.q_norm", "attn_q_norm"],
  ["self_attn.k_norm", "attn_k_norm"],
  ["self_attn.q_a_proj", "attn_q_a"],
  ["self_attn.q_a_layernorm", "attn_q_a_norm"],
  ["self_attn.q_b_proj", "attn_q_b"],
  ["self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"],
  ["self_attn.kv_a_layernorm", "attn_kv_a_norm"],
  ["mlp.gate.e_score_correction_bias", "exp_probs_b.bias"],
  ["mlp.shared_expert_gate.", "ffn_gate_inp_shexp."],
  ["mlp.shared_expert.gate_proj", "ffn_gate_shexp"],
  ["mlp.shared_expert.up_proj", "ffn_up_shexp"],
  ["mlp.shared_expert.down_proj", "ffn_down_shexp"],
  ["mlp.gate_up_proj", "ffn_up"],
  ["block_sparse_moe.router.layer", "ffn_gate_inp"],
  ["block_sparse_moe.output_linear", "ffn_down_exps"],
  ["shared_mlp.output_linear", "ffn_down_shexp"],
  ["backbone.embeddings.", "token_embd."],
  ["backbone.norm_f.", "output_norm."],
  ["backbone.layers.", "blk."],
  [".mixer.q_proj", ".attn_q"],
  [".mixer.k_proj", ".attn_k"],
  [".mixer.v_proj", ".attn_v"],
  [".mixer.o_proj", ".attn_output"],
  [".mixer.up_proj", ".ffn_up"],
  [".mixer.down_proj", ".ffn_down"],
  [".mixer.gate.e_score_correction_bias", ".exp_probs_b.bias"],
  [".mixer.gate.", ".ffn_gate_inp."],
  [".mixer.shared_experts.up_proj", ".ffn_up_shexp"],
  [".mixer.shared_experts.down_proj", ".ffn_down_shexp"],
  [".mixer.fc1_latent_proj", ".ffn_latent_down"],
  [".mixer.fc2_latent_proj", ".ffn_latent_up"],
  [".mixer.", ".mamba."],
  [".mamba.in_proj", ".ssm_in"],
  [".mamba.conv1d", ".ssm_conv1d"],
  [".mamba.A_log", ".ssm_a"],
  [".mamba.dt_bias", ".ssm_dt.bias"],
  [".mamba.D", ".ssm_d"],
  [".mamba.norm", ".ssm_norm"],
  [".mamba.out_proj", ".ssm_out"],
  ["model.final_layernorm.", "output_norm."],
  ["linear_attn.in_proj_ba", "ssm_ba"],
  ["linear_attn.conv1d", "ssm_conv1d"],
  ["linear_attn.A_log", "ssm_a"],
  ["linear_attn.dt_bias", "ssm_dt.bias"],
  ["linear_attn.norm", "ssm_norm"],
  ["linear_attn.out_proj", "ssm_out"],
  ["model.embed_tokens.", "token_embd."],
  ["model.embedding_norm.", "token_embd_norm."],
  ["model.norm.", "output_norm."],
  ["lm_head.", "output."],
  ["model.layers.", "blk."],
  ["input_layernorm", "attn_norm"],
  // llama.cpp's converter leaves out the suffix.
  ["pre_ff_layernorm.weight", "ffn_norm"],
  ["operator_norm", "attn_norm"],
  ["post_attention_layernorm", "ffn_norm"],
  ["self_attn.query_layernorm", "attn_q_norm"],
  ["self_attn.key_layernorm", "attn_k_norm"],
  ["self_attn.q_layernorm", "attn_q_norm"],
  ["self_attn.k_layernorm", "attn_k_norm"],
  ["self_attn.q_proj", "attn_q"],
  ["self_attn.k_proj", "attn_k"],
  ["self_attn.v_proj", "attn_v"],
  ["self_attn.o_proj", "attn_output"],
  ["self_attn.out_proj", "attn_output"],
  [".conv.conv.", ".shortconv.conv."],
  [".conv.in_proj.", ".shortconv.in_proj."],
  [".conv.out_proj.", ".shortconv.out_proj."],
  ["mlp.moe_statics.e_score_correction_bias", "exp_probs_b.bias"],
  ["feed_forward.expert_bias", "exp_probs_b.bias"],
  ["mlp.gate.", "ffn_gate_inp."],
  ["feed_forward.gate.", "ffn_gate_inp."],
  ["feed_forward.router.", "ffn_gate_inp."],
  ["mlp.shared_experts.gate_proj", "ffn_gate_shexp"],
  ["mlp.shared_experts.up_proj", "ffn_up_shexp"],
  ["mlp.shared_experts.down_proj", "ffn_down_shexp"],
  [".attention_layernorm", ".attn_norm"],
  [".feedforward_layernorm", ".ffn_norm"],
  ["feed_forward.shared_expert.gate_proj", "ffn_gate_shexp"],
  ["feed_forward.shared_expert.up_proj", "ffn_up_shexp"],
  ["feed_forward.shared_expert.down_proj", "ffn_down_shexp"],
  ["mlp.gate_proj", "ffn_gate"],
  ["mlp.up_proj", "ffn_up"],
  ["mlp.down_proj", "ffn_down"],
  ["feed_forward.gate_proj", "ffn_gate"],
  ["feed_forward.up_proj", "ffn_up"],
  ["feed_forward.down_proj", "ffn_down"],
  ["feed_forward.w1", "ffn_gate"],
  ["feed_forward.w3", "ffn_up"],
  ["feed_forward.w2", "ffn_down"],
  [".norm.weight", ".attn_norm.weight"],
];

function renamed(tensor: FloatTensor): FloatTensor {
  const name = NAMES.reduce((name, [from, to]) => name.replace(from, to), tensor.name);
  return { ...tensor, name };
}

const EXPERT_PARTS: Readonly<Record<string, string>> = { w1: "gate", w3: "up", w2: "down" };

/** Gathers the experts of each layer into one tensor. */
function stackExperts(tensors: readonly FloatTensor[]): FloatTensor[] {
  const stacks = new Map<string, FloatTensor[]>();
  const result: FloatTensor[] = [];
  for (const tensor of tensors) {
    const [, layer, part] =
      /^(.*)\.(?:mlp|feed_forward|mixer)\.experts\.\d+\.(\w+?)(?:_proj)?\.weight$/
        .exec(tensor.name) ?? [];
    if (layer === undefined || part === undefined) {
      result.push(tensor);
      continue;
    }
    const name = `${layer}.ffn_${EXPERT_PARTS[part] ?? part}_exps.weight`;
    stacks.set(name, [...stacks.get(name) ?? [], tensor]);
  }
  for (const [name, experts] of stacks) {
    const values = Float32Array.from(experts.flatMap((expert) => [...expert.values]));
    result.push({ name, shape: [experts.length, ...experts[0]!.shape], values });
  }
  return result;
}

/** Reorders the rows of each head: row `row` is taken from row `from(row)`. */
function reordered(
  tensor: FloatTensor,
  headDim: number,
  from: (row: number) => number,
): FloatTensor {
  const cols = tensor.shape[1] ?? 1;
  const values = tensor.values.map((_, i) => {
    const row = Math.floor(i / cols), inHead = row % headDim;
    return tensor.values[(row - inHead + from(inHead)) * cols + i % cols]!;
  });
  return { ...tensor, values };
}

/** Reorders the rows of each head from halves (Hugging Face) to pairs of neighbours. */
function interleaved(tensor: FloatTensor, headDim: number): FloatTensor {
  const half = headDim / 2;
  return reordered(tensor, headDim, (row) => (row % 2) * half + Math.floor(row / 2));
}

/** Reorders the rotated rows of each head from pairs of neighbours (Hugging Face) to halves. */
function halved(tensor: FloatTensor, headDim: number, rotated: number): FloatTensor {
  const half = rotated / 2;
  return reordered(tensor, headDim, (row) => {
    return row >= rotated ? row : row < half ? 2 * row : 2 * (row - half) + 1;
  });
}

/** Splits the dimension before the last, which holds gate and up, into two tensors. */
function splitGateUp(tensor: FloatTensor, [gate, up]: readonly [string, string]): FloatTensor[] {
  const [rows = 0, cols = 0] = tensor.shape.slice(-2);
  const block = rows / 2 * cols;
  const shape = [...tensor.shape.slice(0, -2), rows / 2, cols];
  return [gate, up].map((name, part) => ({
    name: tensor.name.replace(/(block_sparse_moe|shared_mlp)\.input_linear/, name),
    shape,
    values: tensor.values.filter((_, i) => Math.floor(i / block) % 2 === part),
  }));
}

/** Splits `[nExperts, cols, rows]` by rows into tensors `[nExperts, rows / names, cols]`. */
function transposedRows(tensor: FloatTensor, names: readonly string[]): FloatTensor[] {
  const [nExperts = 0, cols = 0, allRows = 0] = tensor.shape;
  const rows = allRows / names.length;
  return names.map((name, part) => ({
    name: tensor.name.replace(/feed_forward\.experts\.\w+$/, `${name}.weight`),
    shape: [nExperts, rows, cols],
    values: Float32Array.from({ length: nExperts * rows * cols }, (_, i) => {
      const expert = Math.floor(i / (rows * cols)), row = Math.floor(i / cols) % rows;
      return tensor.values[(expert * cols + i % cols) * allRows + part * rows + row]!;
    }),
  }));
}

const HEAD_DIM = 8;

const RMS: Readonly<Record<string, GgufField>> = {
  "attention.layer_norm_rms_epsilon": ["f32", 1e-5],
  "attention.key_length": ["u32", HEAD_DIM],
  "attention.value_length": ["u32", HEAD_DIM],
  "rope.dimension_count": ["u32", HEAD_DIM],
};

const EXPERTS = (count: number, used: number): Readonly<Record<string, GgufField>> => ({
  expert_count: ["u32", count],
  expert_used_count: ["u32", used],
  expert_feed_forward_length: ["u32", 16],
});

/** Removes the dimension of size 1 from the weight of a convolution. */
function squeezed(tensor: FloatTensor): FloatTensor[] {
  return [{ ...tensor, shape: tensor.shape.filter((size) => size !== 1) }];
}

const FILES: readonly Converted[] = [
  {
    model: "hunyuan_v1_dense",
    architecture: "hunyuan-dense",
    settings: { ...RMS, "rope.freq_base": ["f32", 10_000 * 50 ** (HEAD_DIM / (HEAD_DIM - 2))] },
  },
  {
    model: "lfm2",
    architecture: "lfm2",
    settings: {
      ...RMS,
      block_count: ["u32", 4],
      feed_forward_length: ["u32", 32],
      "attention.head_count_kv": ["array", "u32", [0, 0, 2, 0]],
      "shortconv.l_cache": ["u32", 3],
      "rope.freq_base": ["f32", 1_000_000],
    },
    convert: squeezed,
  },
  {
    model: "lfm2_moe",
    architecture: "lfm2moe",
    settings: {
      ...RMS,
      ...EXPERTS(5, 2),
      "attention.head_count_kv": ["array", "u32", [0, 2, 0]],
      "shortconv.l_cache": ["u32", 3],
      "rope.freq_base": ["f32", 1_000_000],
      leading_dense_block_count: ["u32", 1],
      expert_weights_scale: ["f32", 1.5],
      expert_gating_func: ["u32", 2],
    },
    convert: squeezed,
  },
  {
    model: "ernie4_5_moe",
    architecture: "ernie4_5-moe",
    settings: {
      ...RMS,
      ...EXPERTS(6, 2),
      block_count: ["u32", 4],
      expert_shared_count: ["u32", 2],
      leading_dense_block_count: ["u32", 1],
      interleave_moe_layer_step: ["u32", 1],
      "rope.freq_base": ["f32", 500_000],
    },
    convert: (tensor) => tensor.name.includes("e_score") ? squeezed(tensor) : [tensor],
  },
  {
    model: "llama4_text",
    architecture: "llama4",
    settings: {
      ...RMS,
      ...EXPERTS(4, 1),
      block_count: ["u32", 4],
      interleave_moe_layer_step: ["u32", 2],
      "rope.freq_base": ["f32", 500_000],
    },
    convert: (tensor) => {
      if (tensor.name.endsWith("experts.gate_up_proj")) {
        return transposedRows(tensor, ["ffn_gate_exps", "ffn_up_exps"]);
      }
      return tensor.name.endsWith("experts.down_proj")
        ? transposedRows(tensor, ["ffn_down_exps"])
        : [tensor];
    },
  },
  {
    model: "arcee",
    architecture: "arcee",
    settings: RMS,
    convert: (tensor) => [/[qk]_proj/.test(tensor.name) ? interleaved(tensor, HEAD_DIM) : tensor],
  },
  {
    model: "nemotron",
    architecture: "nemotron",
    settings: {
      ...RMS,
      "attention.layer_norm_epsilon": ["f32", 1e-5],
      "rope.dimension_count": ["u32", HEAD_DIM / 2],
    },
    convert: (tensor) => {
      if (!/norm\.weight$/.test(tensor.name)) return [tensor];
      return [{ ...tensor, values: tensor.values.map((value) => value + 1) }];
    },
  },
];

/** A setting of llama.cpp with a number for each layer of `apertus` in `published.json`. */
function xieluSetting(name: string): readonly [string, GgufField] {
  const numbers = publishedTensors("apertus")
    .filter((tensor) => tensor.name.endsWith(`.act_fn.${name}`))
    .map(({ values }) => values[0]!);
  assertEquals(numbers.length, 3);
  return [`xielu.${name}`, ["array", "f32", numbers]];
}

/** Sizes of `qwen3_next` in `published.json`. */
const DELTA_NET = { keyHeads: 2, keyRows: 8, valueRows: 16 };

/**
 * Regroups the rows of a projection, which Hugging Face orders by key head: queries, keys and
 * values of all heads go to one matrix, gates to another.
 */
function splitByKind(tensor: FloatTensor): FloatTensor[] {
  const cols = tensor.shape[1]!;
  const { keyHeads, keyRows, valueRows } = DELTA_NET;
  const step = 2 * (keyRows + valueRows);
  const rowsOf = (first: number, count: number) =>
    Array.from({ length: keyHeads }, (_, head) => {
      const start = (head * step + first) * cols;
      return [...tensor.values.subarray(start, start + count * cols)];
    }).flat();
  const make = (name: string, values: number[]) => ({
    name: tensor.name.replace("linear_attn.in_proj_qkvz", name),
    shape: [values.length / cols, cols],
    values: Float32Array.from(values),
  });
  return [
    make("attn_qkv", [
      ...rowsOf(0, keyRows),
      ...rowsOf(keyRows, keyRows),
      ...rowsOf(2 * keyRows, valueRows),
    ]),
    make("attn_gate", rowsOf(2 * keyRows + valueRows, valueRows)),
  ];
}

const QWEN3_NEXT: Readonly<Record<string, GgufField>> = {
  ...RMS,
  ...EXPERTS(4, 2),
  "attention.layer_norm_rms_epsilon": ["f32", 1e-6],
  "attention.key_length": ["u32", 16],
  "attention.value_length": ["u32", 16],
  "rope.dimension_count": ["u32", 4],
  expert_feed_forward_length: ["u32", 20],
  expert_shared_feed_forward_length: ["u32", 24],
  "ssm.conv_kernel": ["u32", 4],
  "ssm.state_size": ["u32", 8],
  "ssm.group_count": ["u32", 2],
  "ssm.time_step_rank": ["u32", 4],
  "ssm.inner_size": ["u32", 32],
  full_attention_interval: ["u32", 4],
};

function asQwen3Next(tensor: FloatTensor): FloatTensor[] {
  const { name, values } = tensor;
  if (name.includes("in_proj_qkvz")) return splitByKind(tensor);
  if (name.includes("conv1d")) return squeezed(tensor);
  if (name.endsWith("A_log")) {
    return [{
      ...tensor,
      values: values.map((value) => -Math.exp(value)),
    }];
  }
  // The converter adds RMSNorm's 1 to the weights, except in linear attention.
  const isPlain = name.endsWith("norm.weight") && !name.includes("linear_attn");
  const own = isPlain ? { ...tensor, values: values.map((value) => value + 1) } : tensor;
  return [{
    ...own,
    name: name.replace("post_attention_layernorm", "post_attention_norm"),
  }];
}

/** GLM-4.7-Flash, without the key of normalised weights. */
const GLM_FLASH: Readonly<Record<string, GgufField>> = {
  "attention.head_count_kv": ["u32", 1],
  "attention.layer_norm_rms_epsilon": ["f32", 1e-5],
  "attention.q_lora_rank": ["u32", 24],
  "attention.kv_lora_rank": ["u32", 16],
  "attention.key_length": ["u32", 20],
  "attention.value_length": ["u32", 16],
  "attention.key_length_mla": ["u32", 12],
  "attention.value_length_mla": ["u32", 8],
  "rope.dimension_count": ["u32", 4],
  "rope.freq_base": ["f32", 10_000],
  expert_count: ["u32", 4],
  expert_used_count: ["u32", 2],
  expert_feed_forward_length: ["u32", 16],
  expert_shared_count: ["u32", 1],
  expert_group_count: ["u32", 1],
  expert_group_used_count: ["u32", 1],
  expert_weights_scale: ["f32", 1.8],
  expert_gating_func: ["u32", 2],
  leading_dense_block_count: ["u32", 1],
};

function asGlmFlash(tensor: FloatTensor): FloatTensor[] {
  const name = tensor.name.replace("self_attn.kv_b_proj", "attn_kv_b");
  return splitKeysAndValues({ ...tensor, name }, { heads: 4, plain: 8, value: 8, rank: 16 });
}

/** Tensors around the layer for multi-token prediction, by their names in folders and in GGUF. */
const PREDICTOR = ([
  ["enorm", "enorm", [32]],
  ["hnorm", "hnorm", [32]],
  ["eh_proj", "eh_proj", [32, 64]],
  ["shared_head.norm", "shared_head_norm", [32]],
] as const).map(([huggingFace, gguf, shape]) => {
  const [tensor] = filledTensors({ [`model.layers.3.${huggingFace}.weight`]: shape });
  return { folder: tensor!, gguf: { ...tensor!, name: `blk.3.nextn.${gguf}.weight` } };
});

/** The layer for multi-token prediction: a copy of the last layer. */
function asPredictor(tensor: FloatTensor): FloatTensor {
  return { ...tensor, name: tensor.name.replace("layers.2.", "layers.3.") };
}

/** Adds a layer for multi-token prediction after the last layer. */
function withPredictor(tensor: FloatTensor): FloatTensor[] {
  if (!tensor.name.startsWith("model.layers.2.")) return asGlmFlash(tensor);
  const extra = tensor.name.includes("input_layernorm") ? PREDICTOR.map(({ gguf }) => gguf) : [];
  return [...asGlmFlash(tensor), ...asGlmFlash(asPredictor(tensor)), ...extra];
}

/** Tensors around the layer of Qwen3-Next. The converter adds 1 to the weights of its norms. */
const QWEN_PREDICTOR = ([
  ["pre_fc_norm_embedding", "enorm", [32]],
  ["pre_fc_norm_hidden", "hnorm", [32]],
  ["fc", "eh_proj", [32, 64]],
  ["norm", "shared_head_norm", [32]],
] as const).map(([huggingFace, gguf, shape]) => {
  const [tensor] = filledTensors({ [`mtp.${huggingFace}.weight`]: shape });
  const values = shape.length === 1 ? tensor!.values.map((value) => value + 1) : tensor!.values;
  return { folder: tensor!, gguf: { ...tensor!, name: `blk.4.nextn.${gguf}.weight`, values } };
});

/** Adds a layer for multi-token prediction: a copy of the last layer. */
function withQwenPredictor(tensor: FloatTensor): FloatTensor[] {
  const { name } = tensor;
  if (!name.startsWith("model.layers.3.")) return asQwen3Next(tensor);
  const copy = { ...tensor, name: name.replace("layers.3.", "layers.4.") };
  const extra = name.includes("input_layernorm") ? QWEN_PREDICTOR.map(({ gguf }) => gguf) : [];
  return [...asQwen3Next(tensor), ...asQwen3Next(copy), ...extra];
}

const GRANITE: Readonly<Record<string, GgufField>> = {
  ...RMS,
  "attention.layer_norm_rms_epsilon": ["f32", 1e-6],
  "attention.scale": ["f32", 0.3],
  embedding_scale: ["f32", 2],
  residual_scale: ["f32", 0.5],
  logit_scale: ["f32", 2],
};

const ERNIE_MOE: Readonly<Record<string, GgufField>> = {
  ...RMS,
  ...EXPERTS(4, 2),
  expert_shared_count: ["u32", 2],
  leading_dense_block_count: ["u32", 1],
  interleave_moe_layer_step: ["u32", 1],
  "rope.freq_base": ["f32", 500_000],
};

/** Settings of the Mamba-2 layers of `published.json`. */
const SSM = (groups: number): Readonly<Record<string, GgufField>> => ({
  "ssm.conv_kernel": ["u32", 4],
  "ssm.state_size": ["u32", 16],
  "ssm.group_count": ["u32", groups],
  "ssm.time_step_rank": ["u32", 4],
  "ssm.inner_size": ["u32", 64],
});

/** Converts a tensor of a Mamba-2 layer. */
function asMamba2(tensor: FloatTensor, groups: number): FloatTensor[] {
  const { name, shape, values } = tensor;
  if (name.endsWith("conv1d.weight")) return squeezed(tensor);
  if (name.endsWith(".D")) return [{ ...tensor, shape: [...shape, 1] }];
  if (name.endsWith("A_log")) {
    return [{ name, shape: [...shape, 1], values: values.map((value) => -Math.exp(value)) }];
  }
  if (/(mamba|mixer)\.norm/.test(name)) return [{ ...tensor, shape: [groups, shape[0]! / groups] }];
  return [tensor];
}

/** Converts a tensor of Granite 4, whose Mamba-2 layers have `groups`. */
function asGraniteHybrid(tensor: FloatTensor, groups: number): FloatTensor[] {
  const hasExperts = groups > 1;
  if (tensor.name.includes("block_sparse_moe.input_linear")) {
    return splitGateUp(tensor, ["ffn_gate_exps", "ffn_up_exps"]);
  }
  if (tensor.name.includes("shared_mlp.input_linear")) {
    const suffix = hasExperts ? "_shexp" : "";
    return splitGateUp(tensor, [`ffn_gate${suffix}`, `ffn_up${suffix}`]);
  }
  if (tensor.name.includes("shared_mlp.output_linear") && !hasExperts) {
    return [{ ...tensor, name: tensor.name.replace("shared_mlp.output_linear", "ffn_down") }];
  }
  if (/self_attn\.[qk]_proj/.test(tensor.name)) return [interleaved(tensor, HEAD_DIM)];
  return asMamba2(tensor, groups);
}

/**
 * Multiplies the weights of Falcon-H1 by the factors of `published.json`, as the converter does.
 */
function asFalconH1(tensor: FloatTensor): FloatTensor[] {
  const { name, values } = tensor;
  const ofRow = (row: number) =>
    1.5 * (row < 64 ? 0.8 : row < 128 ? 1.1 : row < 160 ? 0.6 : row < 192 ? 1.3 : 0.7);
  const factors: readonly (readonly [pattern: RegExp, factor: number])[] = [
    [/down_proj/, 1.4],
    [/gate_proj/, 0.6],
    [/k_proj/, 0.5 * 1.2],
    [/[qv]_proj/, 1.2],
    [/o_proj/, 0.9],
    [/out_proj/, 0.4],
    [/lm_head/, 0.7],
    [/embed_tokens/, 1.3],
  ];
  const factor = factors.find(([pattern]) => pattern.test(name))?.[1] ?? 1;
  const scaled = values.map((value, i) =>
    value * (name.includes("in_proj") ? ofRow(Math.floor(i / 32)) : factor)
  );
  return asMamba2({ ...tensor, values: scaled }, 2);
}

const NEMOTRON_H: Readonly<Record<string, GgufField>> = {
  ...RMS,
  ...SSM(2),
  "rope.scaling.finetuned": ["bool", false],
};

const NEMOTRON_H_MOE: Readonly<Record<string, GgufField>> = {
  ...NEMOTRON_H,
  ...EXPERTS(4, 2),
  block_count: ["u32", 5],
  "attention.head_count_kv": ["array", "u32", [0, 0, 2, 0, 0]],
  feed_forward_length: ["array", "u32", [0, 16, 0, 16, 0]],
  expert_shared_feed_forward_length: ["u32", 24],
  expert_shared_count: ["u32", 1],
  expert_weights_scale: ["f32", 1.5],
  expert_group_count: ["u32", 2],
  expert_group_used_count: ["u32", 1],
};

/** Files that the converter writes for the folders of `published.json`. */
const PUBLISHED: readonly Converted[] = [
  {
    model: "qwen2_moe",
    architecture: "qwen2moe",
    settings: {
      ...RMS,
      ...EXPERTS(4, 2),
      "attention.layer_norm_rms_epsilon": ["f32", 1e-6],
      expert_feed_forward_length: ["u32", 20],
      expert_shared_feed_forward_length: ["u32", 24],
    },
  },
  {
    model: "qwen3_next",
    architecture: "qwen3next",
    settings: { ...QWEN3_NEXT, block_count: ["u32", 4] },
    convert: asQwen3Next,
  },
  {
    model: "qwen3_next",
    form: "with a layer that predicts further tokens",
    architecture: "qwen3next",
    settings: { ...QWEN3_NEXT, block_count: ["u32", 5], nextn_predict_layers: ["u32", 1] },
    convert: withQwenPredictor,
    draftsAs: () => {
      const model = publishedTensors("qwen3_next");
      const last = model.filter(({ name }) => name.startsWith("model.layers.3."))
        .map((tensor) => ({
          ...tensor,
          name: tensor.name.replace("model.layers.3", "mtp.layers.0"),
        }));
      return [...model, ...last, ...QWEN_PREDICTOR.map(({ folder }) => folder)];
    },
  },
  { model: "ernie4_5_moe", architecture: "ernie4_5-moe", settings: ERNIE_MOE },
  { model: "ernie4_5_moe with biases", architecture: "ernie4_5-moe", settings: ERNIE_MOE },
  {
    model: "apertus",
    architecture: "apertus",
    settings: {
      ...RMS,
      "rope.freq_base": ["f32", 12_000_000],
      ...Object.fromEntries(["alpha_p", "alpha_n", "beta", "eps"].map(xieluSetting)),
    },
    convert: (tensor) => {
      if (tensor.name.includes(".act_fn.")) return [];
      if (tensor.name !== "model.norm.weight") return [tensor];
      // Of Llama 3's scaling by 8 from 8,192 tokens on.
      const values = Float32Array.of(1, 1, 8, 8);
      return [tensor, { name: "rope_freqs.weight", shape: [4], values }];
    },
  },
  {
    model: "ernie4_5 with biases",
    architecture: "ernie4_5",
    settings: { ...RMS, "rope.freq_base": ["f32", 500_000] },
  },
  {
    model: "cohere with norms of heads",
    architecture: "command-r",
    settings: {
      ...RMS,
      "attention.layer_norm_epsilon": ["f32", 1e-5],
      "rope.freq_base": ["f32", 500_000],
      "rope.scaling.type": ["string", "none"],
      logit_scale: ["f32", 0.0625],
    },
  },
  {
    model: "granitemoeshared",
    architecture: "granitemoe",
    settings: {
      ...GRANITE,
      expert_count: ["u32", 4],
      expert_used_count: ["u32", 2],
      expert_shared_feed_forward_length: ["u32", 24],
    },
    convert: (tensor) => {
      if (tensor.name.includes("block_sparse_moe.input_linear")) {
        return splitGateUp(tensor, ["ffn_gate_exps", "ffn_up_exps"]);
      }
      if (tensor.name.includes("shared_mlp.input_linear")) {
        return splitGateUp(tensor, ["ffn_gate_shexp", "ffn_up_shexp"]);
      }
      return [/[qk]_proj/.test(tensor.name) ? interleaved(tensor, HEAD_DIM) : tensor];
    },
  },
  {
    model: "granitemoehybrid as published",
    architecture: "granitehybrid",
    settings: {
      ...GRANITE,
      ...SSM(1),
      "attention.head_count_kv": ["array", "u32", [0, 2, 0]],
      expert_shared_feed_forward_length: ["u32", 24],
    },
    convert: (tensor) => asGraniteHybrid(tensor, 1),
  },
  {
    model: "falcon_h1",
    architecture: "falcon-h1",
    settings: { ...RMS, ...SSM(2) },
    convert: asFalconH1,
  },
  {
    model: "falcon_h1 with a norm after the gate",
    architecture: "falcon-h1",
    settings: { ...RMS, ...SSM(2) },
    // The name of the norm has its suffix.
    convert: (tensor) =>
      asFalconH1({ ...tensor, name: tensor.name.replace("pre_ff_layernorm", "ffn_norm") }),
  },
  {
    model: "nemotron_h as published",
    architecture: "nemotron_h",
    settings: {
      ...NEMOTRON_H,
      block_count: ["u32", 4],
      "attention.head_count_kv": ["array", "u32", [0, 0, 2, 0]],
      feed_forward_length: ["array", "u32", [0, 48, 0, 0]],
    },
    convert: (tensor) => asMamba2(tensor, 2),
  },
  {
    model: "nemotron_h with experts",
    architecture: "nemotron_h_moe",
    settings: { ...NEMOTRON_H_MOE, expert_weights_norm: ["bool", true] },
    convert: (tensor) => asMamba2(tensor, 2),
  },
  {
    model: "nemotron_h with experts of latent vectors",
    architecture: "nemotron_h_moe",
    settings: {
      ...NEMOTRON_H_MOE,
      expert_weights_norm: ["bool", false],
      moe_latent_size: ["u32", 20],
    },
    convert: (tensor) => asMamba2(tensor, 2),
  },
  {
    model: "glm4",
    architecture: "glm4",
    settings: {
      ...RMS,
      "attention.layer_norm_rms_epsilon": ["f32", 1.5625e-7],
      "rope.dimension_count": ["u32", 4],
    },
  },
  {
    model: "glm4",
    form: "of a multimodal model",
    architecture: "glm4",
    settings: {
      ...RMS,
      "attention.layer_norm_rms_epsilon": ["f32", 1.5625e-7],
      "rope.dimension_count": ["u32", 4],
      "rope.dimension_sections": ["array", "i32", [1, 1, 0, 0]],
    },
    convert: (tensor) => [/[qk]_proj/.test(tensor.name) ? halved(tensor, HEAD_DIM, 4) : tensor],
  },
  {
    model: "glm4_moe_lite",
    form: "with a layer that predicts further tokens",
    architecture: "deepseek2",
    settings: {
      ...GLM_FLASH,
      expert_weights_norm: ["bool", true],
      block_count: ["u32", 4],
      nextn_predict_layers: ["u32", 1],
    },
    convert: withPredictor,
    draftsAs: () => {
      const model = publishedTensors("glm4_moe_lite");
      const last = model.filter(({ name }) => name.startsWith("model.layers.2."));
      return [...model, ...last.map(asPredictor), ...PREDICTOR.map(({ folder }) => folder)];
    },
  },
  {
    model: "glm4_moe_lite, weights of experts as they are",
    architecture: "deepseek2",
    settings: GLM_FLASH,
    convert: asGlmFlash,
  },
  {
    model: "llama with YaRN's attention factor",
    architecture: "llama",
    settings: {
      ...RMS,
      "attention.layer_norm_rms_epsilon": ["f32", 1e-6],
      "rope.scaling.type": ["string", "yarn"],
      "rope.scaling.factor": ["f32", 4],
      "rope.scaling.original_context_length": ["u32", 16],
      "rope.scaling.yarn_attn_factor": ["f32", 1.7],
    },
    convert: (tensor) => [/[qk]_proj/.test(tensor.name) ? interleaved(tensor, HEAD_DIM) : tensor],
  },
];

function asItIs(tensor: FloatTensor): FloatTensor[] {
  return [tensor];
}

/** Settings that the generated models share. */
const SETTINGS: Readonly<Record<string, GgufField>> = {
  block_count: ["u32", 3],
  context_length: ["u32", 64],
  embedding_length: ["u32", 32],
  feed_forward_length: ["u32", 48],
  "attention.head_count": ["u32", 4],
  "attention.head_count_kv": ["u32", 2],
  vocab_size: ["u32", 128],
};

interface Source {
  readonly logits: readonly number[];
  readonly tensors: () => readonly FloatTensor[];
}

/** Returns the bytes of a GGUF file of a model. */
function encoded(
  { architecture, convert = asItIs }: Converted,
  source: Source,
  settings: Readonly<Record<string, GgufField>>,
) {
  const tensors = stackExperts(source.tensors()).flatMap(convert).map(renamed)
    .map(({ name, shape, values }) => float32Tensor(name, shape, Float32Array.from(values)));
  const named = Object.entries(settings)
    .map(([key, field]) => [key.startsWith("xielu.") ? key : `${architecture}.${key}`, field]);
  const metadata = {
    "general.architecture": ["string", architecture] as const,
    ...Object.fromEntries(named),
    ...syntheticTokenizer(128),
  };
  return encodeGguf({ metadata, tensors });
}

function check(file: Converted, source: Source) {
  const { model, form, convert, draftsAs } = file;
  const settings = { ...SETTINGS, ...file.settings };
  const what = form === undefined ? model : `${model} ${form}`;
  const nLayers = settings.block_count?.[1];
  const lists = Object.entries(settings)
    .filter(([, field]) => field[0] === "array" && field[2].length === nLayers);
  for (const [key, field] of lists) {
    Deno.test(`${what} with one layer too few in ${key} is refused`, async () => {
      if (field[0] !== "array") return;
      using folder = new TempFolder();
      const fewer = Array.prototype.slice.call(field[2], 0, -1);
      const short = { ...settings, [key]: ["array", field[1], fewer] as GgufField };
      const path = folder.write("model.gguf", encoded(file, source, short));
      const opening = () => load(path, { device: "reference" });
      await assertRejects(opening, ForgeError, `${key} is "[`);
    });
  }
  Deno.test(`${what} as a generated GGUF file agrees with transformers`, async () => {
    using folder = new TempFolder();
    const path = folder.write("model.gguf", encoded(file, source, settings));
    // Heads whose matrices of keys and of values are apart divide, too.
    for (const tensorParallel of convert === asGlmFlash ? [1, 2] : [1]) {
      const options = { device: "reference", kvType: "F32", tensorParallel } as const;
      await using loaded = await load(path, options);
      const last = await loaded.logits(Int32Array.from(generated.prompt_ids));
      assertClose(last.filter((_, i) => i % 4 === 0), source.logits, 1e-5);
    }
    if (draftsAs === undefined) return;
    writeFolder(folder.at("folder"), published.models[model]!.config, draftsAs());
    const [actual, expected] = await Promise.all(
      [path, folder.at("folder")].map((path) =>
        withRunner(path, (runner) => draftAfterPrompt(runner))
      ),
    );
    for (const [i, top] of actual!.entries()) {
      assertEquals(top.map(({ token }) => token), expected![i]!.map(({ token }) => token));
      const logprobs = (of: typeof top) => of.map(({ logprob }) => logprob);
      assertClose(logprobs(top), logprobs(expected![i]!), 1e-5);
    }
  });
}

for (const file of FILES) {
  const { config, logits } = generated.models[file.model]!;
  check(file, { logits, tensors: () => generatedTensors(file.model, config) });
}
for (const file of PUBLISHED) {
  const { logits } = published.models[file.model]!;
  check(file, { logits, tensors: () => publishedTensors(file.model) });
}
