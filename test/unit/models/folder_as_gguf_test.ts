/** Settings and rows of tensors that a GGUF file has of a folder. */
import { assertEquals, assertThrows } from "@std/assert";
import type { Weight, WeightData } from "../../../src/backend.ts";
import { ForgeError } from "../../../src/errors.ts";
import type { JsonObject } from "../../../src/formats/json.ts";
import type { TensorType } from "../../../src/formats/tensor_info.ts";
import { folderAsGguf } from "../../../src/models/folder_as_gguf.ts";
import { FakeBackend, fakeCheckpoint, type FakeTensor } from "./fakes.ts";

/** A device that keeps the numbers it is given, such as frequencies. */
class KeepingBackend extends FakeBackend {
  readonly #kept = new Map<number, Float32Array>();

  override uploadWeight(type: TensorType, rows: number, cols: number, data: WeightData) {
    const weight = super.uploadWeight(type, rows, cols, data);
    this.#kept.set(weight.handle, this.uploaded.at(-1)!);
    return weight;
  }

  override readWeight(weight: Weight, firstRow: number, nRows: number): Float32Array {
    return this.#kept.get(weight.handle) ?? super.readWeight(weight, firstRow, nRows);
  }
}

const CONFIG: JsonObject = {
  model_type: "llama",
  vocab_size: 10,
  hidden_size: 8,
  intermediate_size: 6,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  head_dim: 4,
  max_position_embeddings: 32,
  rms_norm_eps: 1e-5,
  rope_theta: 5000,
  tie_word_embeddings: false,
};

const FRAME: Readonly<Record<string, FakeTensor>> = {
  "model.embed_tokens.weight": [10, 8],
  "model.norm.weight": [8],
  "lm_head.weight": [10, 8],
};

const ATTENTION = {
  "input_layernorm.weight": [8],
  "post_attention_layernorm.weight": [8],
  "self_attn.q_proj.weight": [8, 8],
  "self_attn.k_proj.weight": [4, 8],
  "self_attn.v_proj.weight": [4, 8],
  "self_attn.o_proj.weight": [8, 8],
};

const MLP = {
  "mlp.gate_proj.weight": [6, 8],
  "mlp.up_proj.weight": [6, 8],
  "mlp.down_proj.weight": [8, 6],
};

function convert(config: JsonObject, layer: Readonly<Record<string, FakeTensor>>) {
  const nLayers = Number(config.num_hidden_layers ?? 1);
  const own = Array.from(
    { length: nLayers },
    (_, i) => Object.entries(layer).map(([name, shape]) => [`model.layers.${i}.${name}`, shape]),
  );
  const tensors = { ...FRAME, ...Object.fromEntries(own.flat()) };
  const checkpoint = fakeCheckpoint({ config: { ...CONFIG, ...config }, tensors });
  return folderAsGguf(new KeepingBackend(), checkpoint);
}

/** Describes each tensor: its shape, the weight with its rows, and what is done to them. */
function described({ tensors }: ReturnType<typeof folderAsGguf>): string[] {
  return tensors.map(({ name, shape, weight, ranges, offset, headRows }) => {
    const rows = ranges.map(([first, count]) => `${first}+${count}`).join(" ");
    const more = (offset === 0 ? "" : ` plus ${offset}`) +
      (headRows === 0 ? "" : ` by ${headRows}`);
    return `${name} [${shape}] is ${rows} of ${weight.rows} x ${weight.cols}${more}`;
  });
}

Deno.test("a folder's settings and rows have the names and places of a GGUF file", () => {
  const biases = {
    "self_attn.q_proj.bias": [8],
    "self_attn.k_proj.bias": [4],
    "self_attn.v_proj.bias": [4],
    "self_attn.o_proj.bias": [8],
  };
  const llama = convert({ attention_bias: true }, { ...ATTENTION, ...MLP, ...biases });
  const settings = Object.entries(llama.fields).map(([key, field]) => [key, ...field].join(" "));
  assertEquals(settings, [
    "llama.vocab_size u32 10",
    "llama.attention.key_length u32 4",
    "llama.attention.value_length u32 4",
    "llama.block_count u32 1",
    "llama.embedding_length u32 8",
    "llama.attention.head_count u32 2",
    "llama.attention.head_count_kv u32 1",
    "llama.feed_forward_length u32 6",
    "llama.attention.layer_norm_rms_epsilon f32 0.00001",
    "llama.context_length u32 32",
    "llama.rope.freq_base f32 5000",
    "llama.rope.dimension_count u32 4",
  ]);
  assertEquals([llama.architecture, llama.vocabSize, llama.numbers.size], ["llama", 10, 0]);
  assertEquals(described(llama), [
    "token_embd.weight [10,8] is 0+10 of 10 x 8",
    "blk.0.attn_norm.weight [8] is 0+1 of 1 x 8",
    "blk.0.attn_q.weight [8,8] is 0+8 of 16 x 8 by 4",
    "blk.0.attn_k.weight [4,8] is 8+4 of 16 x 8 by 4",
    "blk.0.attn_v.weight [4,8] is 12+4 of 16 x 8",
    "blk.0.attn_q.bias [8] is 0+1 of 1 x 8 by 4",
    "blk.0.attn_k.bias [4] is 0+1 of 1 x 4 by 4",
    "blk.0.attn_v.bias [4] is 0+1 of 1 x 4",
    "blk.0.attn_output.weight [8,8] is 0+8 of 8 x 8",
    "blk.0.attn_output.bias [8] is 0+1 of 1 x 8",
    "blk.0.ffn_norm.weight [8] is 0+1 of 1 x 8",
    "blk.0.ffn_gate.weight [6,8] is 0+6 of 12 x 8",
    "blk.0.ffn_up.weight [6,8] is 6+6 of 12 x 8",
    "blk.0.ffn_down.weight [8,6] is 0+8 of 8 x 6",
    "output_norm.weight [8] is 0+1 of 1 x 8",
    "output.weight [10,8] is 0+10 of 10 x 8",
  ]);
});

Deno.test("experts of a folder are stacked in a GGUF file, and norms may have 1 more", () => {
  const experts = [0, 1].flatMap((expert) =>
    Object.entries(MLP).map(([name, shape]) =>
      [name.replace("mlp.", `mlp.experts.${expert}.`), shape] as const
    )
  );
  const layer = {
    ...ATTENTION,
    ...Object.fromEntries(experts),
    "self_attn.q_norm.weight": [4],
    "self_attn.k_norm.weight": [4],
    "mlp.gate.weight": [2, 8],
  };
  const settings = {
    model_type: "qwen3_moe",
    num_experts: 2,
    num_experts_per_tok: 1,
    moe_intermediate_size: 6,
  };
  const of = (norm_topk_prob: boolean) => convert({ ...settings, norm_topk_prob }, layer);
  const tensors = described(of(true)).filter((tensor) => /ffn_.*(exps|inp)/.test(tensor));
  assertEquals(tensors, [
    "blk.0.ffn_gate_inp.weight [2,8] is 0+2 of 2 x 8",
    "blk.0.ffn_gate_exps.weight [2,6,8] is 0+6 12+6 of 24 x 8",
    "blk.0.ffn_up_exps.weight [2,6,8] is 6+6 18+6 of 24 x 8",
    "blk.0.ffn_down_exps.weight [2,8,6] is 0+8 8+8 of 16 x 6",
  ]);
  const message = 'of the architecture "qwen3moe", which does not have all of its settings: ' +
    "moe_route needs normalize false, not true";
  assertEquals(assertThrows(() => of(false), ForgeError, message).code, "unsupported");
  const gemma = convert({ model_type: "gemma", hidden_act: "gelu_pytorch_tanh" }, {
    ...ATTENTION,
    ...MLP,
  });
  assertEquals(described(gemma).filter((tensor) => tensor.includes("norm")), [
    "blk.0.attn_norm.weight [8] is 0+1 of 1 x 8 plus 1",
    "blk.0.ffn_norm.weight [8] is 0+1 of 1 x 8 plus 1",
    "output_norm.weight [8] is 0+1 of 1 x 8 plus 1",
  ]);
});

Deno.test("a rotation is written if a GGUF file of the architecture can have it", () => {
  const layer = { ...ATTENTION, ...MLP };
  const length = { factor: 4, original_max_position_embeddings: 8 };
  const llama3 = { rope_type: "llama3", low_freq_factor: 1, high_freq_factor: 4, ...length };
  const { numbers } = convert({ rope_parameters: { rope_theta: 5000, ...llama3 } }, layer);
  assertEquals([...numbers.keys()], ["rope_freqs.weight"]);
  assertEquals(numbers.get("rope_freqs.weight")?.length, 2);
  const yarn = { rope_theta: 5000, rope_type: "yarn", ...length };
  assertEquals(convert({ rope_parameters: yarn }, layer).numbers.size, 0);
  const unrounded = { ...yarn, beta_slow: 0.001, truncate: false };
  const message = "rope_table needs inv_freq other, not other";
  assertThrows(() => convert({ rope_parameters: unrounded }, layer), ForgeError, message);
  // Every fourth layer of SmolLM3 has no positions.
  const fourth = convert({ model_type: "smollm3", num_hidden_layers: 4 }, layer);
  assertEquals(described(fourth).filter((tensor) => tensor.endsWith(" by 4")).length, 8);
  const third = { model_type: "smollm3", num_hidden_layers: 4, no_rope_layers: [1, 1, 0, 1] };
  assertThrows(() => convert(third, layer), ForgeError, "rope_append needs rope none, not ");
});
