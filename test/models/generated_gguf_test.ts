/**
 * GGUF files as llama.cpp's converter names and arranges the tensors of families that no file of its making is at
 * hand for, with the weights of `generated.ts`: against what transformers computed with them.
 */
import { encodeGguf, type GgufField } from "../../src/formats/gguf_writer.ts";
import { float32Tensor } from "../../src/formats/tensor_data.ts";
import { syntheticTokenizer } from "../../src/bench/synthetic_tokenizer.ts";
import { load } from "../../src/mod.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { generated, generatedTensors } from "./generated.ts";
import { assertClose } from "./reference_check.ts";
import type { FloatTensor } from "./tiny_gguf.ts";

interface Converted {
  /** In `generated.json`. */
  readonly model: string;
  readonly architecture: string;
  readonly settings: Readonly<Record<string, GgufField>>;
  /** What becomes of a tensor but for its name; experts are gathered by themselves. */
  readonly convert?: (tensor: FloatTensor) => readonly FloatTensor[];
}

/** Parts of names, in the order in which they are looked for. */
const NAMES: readonly (readonly [huggingFace: string, gguf: string])[] = [
  ["model.embed_tokens.", "token_embd."],
  ["model.embedding_norm.", "token_embd_norm."],
  ["model.norm.", "output_norm."],
  ["lm_head.", "output."],
  ["model.layers.", "blk."],
  ["input_layernorm", "attn_norm"],
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
    const [, layer, part] = /^(.*)\.(?:mlp|feed_forward)\.experts\.\d+\.(\w+?)(?:_proj)?\.weight$/
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

/** Rows of a head in pairs of neighbours, where Hugging Face has the halves one behind the other. */
function interleaved(tensor: FloatTensor, headDim: number): FloatTensor {
  const cols = tensor.shape[1]!, half = headDim / 2;
  const values = tensor.values.map((_, i) => {
    const row = Math.floor(i / cols), inHead = row % headDim;
    const from = row - inHead + (inHead % 2) * half + Math.floor(inHead / 2);
    return tensor.values[from * cols + i % cols]!;
  });
  return { ...tensor, values };
}

/** `[nExperts, cols, rows]` as tensors of some of the rows, `[nExperts, rows, cols]`. */
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

/** The matrix of a convolution without the dimension of one. */
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

function asItIs(tensor: FloatTensor): FloatTensor[] {
  return [tensor];
}

/** What the generated models share. */
const SETTINGS: Readonly<Record<string, GgufField>> = {
  block_count: ["u32", 3],
  context_length: ["u32", 64],
  embedding_length: ["u32", 32],
  feed_forward_length: ["u32", 48],
  "attention.head_count": ["u32", 4],
  "attention.head_count_kv": ["u32", 2],
  vocab_size: ["u32", 128],
};

for (const { model: name, architecture, settings, convert = asItIs } of FILES) {
  Deno.test(`${name} as a GGUF file made here agrees with transformers`, async () => {
    using folder = new TempFolder();
    const { config, logits } = generated.models[name]!;
    const tensors = stackExperts(generatedTensors(name, config)).flatMap(convert).map(renamed)
      .map(({ name, shape, values }) => float32Tensor(name, shape, values));
    const named = Object.entries({ ...SETTINGS, ...settings })
      .map(([key, field]) => [`${architecture}.${key}`, field]);
    const metadata = {
      "general.architecture": ["string", architecture] as const,
      ...Object.fromEntries(named),
      ...syntheticTokenizer(128),
    };
    const path = folder.write("model.gguf", encodeGguf({ metadata, tensors }));
    await using model = await load(path, { device: "reference", kvType: "F32" });
    const last = await model.logits(Int32Array.from(generated.prompt_ids));
    assertClose(last.filter((_, i) => i % 4 === 0), logits, 1e-5);
  });
}
