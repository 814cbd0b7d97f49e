import type { GgufField } from "../../../src/formats/gguf/writer.ts";
import { readSafetensors } from "../../../src/formats/safetensors.ts";
import { float32Tensor } from "../../../src/formats/tensor_data.ts";
import { syntheticTokenizer } from "../../../src/bench/synthetic/tokenizer.ts";
import { sharedPath } from "../../support/shared.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { encodeGguf } from "../../support/parts.ts";

/** A tensor with its values, row-major. */
export interface FloatTensor {
  readonly name: string;
  readonly shape: readonly number[];
  readonly values: Float32Array;
}

const VOCAB_SIZE = 512;

/** GGUF's names of the parts that layers of most families have. */
const PARTS: Readonly<Record<string, string>> = {
  "input_layernorm": "attn_norm",
  "self_attn.q_proj": "attn_q",
  "self_attn.k_proj": "attn_k",
  "self_attn.v_proj": "attn_v",
  "self_attn.q_norm": "attn_q_norm",
  "self_attn.k_norm": "attn_k_norm",
  "self_attn.o_proj": "attn_output",
  "self_attn.sinks": "attn_sinks.weight",
  "post_attention_layernorm": "post_attention_norm",
  "mlp.gate_proj": "ffn_gate",
  "mlp.up_proj": "ffn_up",
  "mlp.down_proj": "ffn_down",
  "mlp.router": "ffn_gate_inp",
  "linear_attn.in_proj_qkv": "attn_qkv",
  "linear_attn.in_proj_z": "attn_gate",
  "linear_attn.in_proj_b": "ssm_beta",
  "linear_attn.in_proj_a": "ssm_alpha",
  "linear_attn.conv1d": "ssm_conv1d",
  "linear_attn.A_log": "ssm_a",
  "linear_attn.dt_bias": "ssm_dt.bias",
  "linear_attn.norm": "ssm_norm",
  "linear_attn.out_proj": "ssm_out",
  "post_feedforward_layernorm": "post_ffw_norm",
};

const ENDS: Readonly<Record<string, string>> = {
  "model.embed_tokens.weight": "token_embd.weight",
  "model.norm.weight": "output_norm.weight",
  "lm_head.weight": "output.weight",
};

/** Sizes that all models of `tiny` share, and further settings of config.json. */
const SETTINGS: Readonly<Record<string, GgufField>> = {
  block_count: ["u32", 4],
  context_length: ["u32", 256],
  embedding_length: ["u32", 64],
  feed_forward_length: ["u32", 128],
  "attention.head_count": ["u32", 4],
  "attention.head_count_kv": ["u32", 2],
  "attention.key_length": ["u32", 16],
  "attention.value_length": ["u32", 16],
  "attention.layer_norm_rms_epsilon": ["f32", 1e-5],
  "attention.sliding_window": ["u32", 8],
  "rope.dimension_count": ["u32", 16],
  vocab_size: ["u32", VOCAB_SIZE],
};

/** A folder of `tiny` written as a GGUF file: its tensors in F32 under their GGUF names. */
export class TinyGguf implements Disposable {
  readonly path: string;
  readonly #folder = new TempFolder();

  /** @param convert converts tensors that GGUF stores in another layout than the folder */
  constructor(
    family: string,
    architecture: string,
    settings: Readonly<Record<string, GgufField>>,
    convert: (tensor: FloatTensor) => readonly FloatTensor[] = (tensor) => [tensor],
  ) {
    const tensors = readTensors(sharedPath("models", "tiny", family, "model.safetensors"))
      .flatMap(convert)
      .map(({ name, shape, values }) => float32Tensor(ggufName(name), shape, values));
    const named = Object.entries({ ...SETTINGS, ...settings })
      .map(([key, field]) => [`${architecture}.${key}`, field]);
    const metadata = {
      "general.architecture": ["string", architecture] as const,
      ...Object.fromEntries(named),
      ...syntheticTokenizer(VOCAB_SIZE),
    };
    this.path = this.#folder.write("model.gguf", encodeGguf({ metadata, tensors }));
  }

  [Symbol.dispose](): void {
    this.#folder[Symbol.dispose]();
  }
}

/** Sizes of latent attention. */
export interface LatentSizes {
  readonly heads: number;
  /** Elements of a head's key that are not rotated, and of its value. */
  readonly plain: number;
  readonly value: number;
  readonly rank: number;
}

/**
 * Splits `attn_kv_b` as newer GGUF files do: into transposed matrices of keys, and matrices of
 * values.
 */
export function splitKeysAndValues(tensor: FloatTensor, sizes: LatentSizes): FloatTensor[] {
  if (!tensor.name.includes("attn_kv_b")) return [tensor];
  const { heads, plain, value, rank } = sizes;
  const step = (plain + value) * rank;
  const at = (head: number, row: number, col: number) =>
    tensor.values[head * step + row * rank + col]!;
  const make = (kind: string, [rows, cols]: readonly [number, number], read: typeof at) => {
    const values = Float32Array.from({ length: heads * rows * cols }, (_, i) => {
      return read(Math.floor(i / (rows * cols)), Math.floor(i / cols) % rows, i % cols);
    });
    return { name: tensor.name.replace("kv_b", kind), shape: [heads, rows, cols], values };
  };
  return [
    make("k_b", [rank, plain], (head, row, col) => at(head, col, row)),
    make("v_b", [value, rank], (head, row, col) => at(head, plain + row, col)),
  ];
}

/** Reads all tensors of a file as F32. */
export function readTensors(path: string): FloatTensor[] {
  const file = Deno.readFileSync(path);
  return [...readSafetensors(path).tensors.values()].map(({ name, shape, offset, bytes }) => ({
    name,
    shape,
    values: new Float32Array(file.slice(offset, offset + bytes).buffer),
  }));
}

function ggufName(name: string): string {
  const end = ENDS[name];
  if (end !== undefined) return end;
  const [, layer, part = "", suffix = ""] =
    /^model\.layers\.(\d+)\.(.*?)(\.weight|\.bias|)$/.exec(name) ?? [];
  if (layer === undefined) return name;
  return `blk.${layer}.${PARTS[part] ?? part}${suffix}`;
}
