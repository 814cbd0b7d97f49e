/** Writes EAGLE-3 heads with random weights for the model of `writeRandomLlama`. */
import type { GgufField } from "../../src/formats/gguf/writer.ts";
import type { JsonObject } from "../../src/formats/json.ts";
import { float32Tensor, type TensorData } from "../../src/formats/tensor_data.ts";
import { encodeGguf } from "./parts.ts";
import { Random } from "./random.ts";
import { writeModelFolder } from "./safetensors_writer.ts";

/** The shape of the model and of the head. */
export const HIDDEN = 64, HEADS = 4, KV_HEADS = 2, DIM = 16, VOCABULARY = 97, EPS = 1e-5;
const MLP = 96, DRAFTED = 40;

/** The tokens that the head drafts: every second one. */
export const TOKENS = Array.from({ length: DRAFTED }, (_, id) => 2 * id + 1);

const CONFIG: JsonObject = {
  architectures: ["LlamaForCausalLMEagle3"],
  model_type: "llama",
  hidden_size: HIDDEN,
  intermediate_size: MLP,
  num_hidden_layers: 1,
  num_attention_heads: HEADS,
  num_key_value_heads: KV_HEADS,
  head_dim: DIM,
  max_position_embeddings: 256,
  rms_norm_eps: EPS,
  rope_theta: 10000,
  vocab_size: VOCABULARY,
  draft_vocab_size: DRAFTED,
  // The outputs of the layers -1, 0 and 1 are the embedding and those of both layers.
  eagle_config: { eagle_aux_hidden_state_layer_ids: [-1, 0, 1] },
};

/** Numbers of tensors by their names in folders. */
export type Tensors = ReadonlyMap<string, Float32Array>;

const SHAPES: Readonly<Record<string, readonly number[]>> = {
  "fc.weight": [HIDDEN, 3 * HIDDEN],
  "norm.weight": [HIDDEN],
  "lm_head.weight": [DRAFTED, HIDDEN],
  "midlayer.input_layernorm.weight": [HIDDEN],
  "midlayer.hidden_norm.weight": [HIDDEN],
  "midlayer.post_attention_layernorm.weight": [HIDDEN],
  "midlayer.self_attn.q_proj.weight": [HEADS * DIM, 2 * HIDDEN],
  "midlayer.self_attn.k_proj.weight": [KV_HEADS * DIM, 2 * HIDDEN],
  "midlayer.self_attn.v_proj.weight": [KV_HEADS * DIM, 2 * HIDDEN],
  "midlayer.self_attn.o_proj.weight": [HIDDEN, HEADS * DIM],
  "midlayer.mlp.gate_proj.weight": [MLP, HIDDEN],
  "midlayer.mlp.up_proj.weight": [MLP, HIDDEN],
  "midlayer.mlp.down_proj.weight": [HIDDEN, MLP],
};

/** Settings of a head. */
export interface Head {
  readonly config?: JsonObject;
  /** Renames the layer, as some folders do. @default "midlayer." */
  readonly layer?: string;
  /** @default that of {@linkcode TOKENS} */
  readonly offsets?: readonly number[];
  /** Tensors to leave out. @default none */
  readonly without?: RegExp;
}

/** Returns random tensors of a head. */
function headTensors({ config, without }: Head = {}): Tensors {
  const settings = { ...config, ...config?.eagle_config as JsonObject | undefined };
  const isFusionNormed = settings.norm_before_fc === true;
  const shapes = { ...SHAPES, ...(isFusionNormed ? { "input_norm.weight": [3 * HIDDEN] } : {}) };
  return new Map(
    Object.entries(shapes).filter(([name]) => !without?.test(name)).map(([name, shape]) => {
      const count = shape.reduce((product, size) => product * size, 1);
      const values = shape.length === 1
        ? new Random(name, 1).normals(count, 0.2).map((value) => 1 + value)
        : new Random(name, 1).normals(count, 1.5 / Math.sqrt(shape[1]!));
      return [name, Float32Array.from(values)];
    }),
  );
}

const shapeOf = (name: string, { length }: Float32Array) => SHAPES[name] ?? [length];

/** Writes a folder; returns the tensors but the map of tokens. */
export function writeHead(path: string, head: Head = {}): Tensors {
  const { config, layer = "midlayer.", offsets, without } = head;
  const tensors = headTensors(head);
  const data: TensorData[] = [...tensors].map(([name, values]) =>
    float32Tensor(
      name.replace("midlayer.", layer),
      shapeOf(name, values),
      Float32Array.from(values),
    )
  );
  if (!without?.test("d2t")) {
    const d2t = BigInt64Array.from(offsets ?? TOKENS.map((token, id) => token - id), BigInt);
    data.push({ name: "d2t", type: "I64", shape: [DRAFTED], data: new Uint8Array(d2t.buffer) });
    data.push({ name: "t2d", type: "BOOL", shape: [VOCABULARY], data: new Uint8Array(VOCABULARY) });
  }
  writeModelFolder(path, { "config.json": { ...CONFIG, ...config } }, data);
  return tensors;
}

/**
 * Writes a folder in the layout of the library speculators, which nests the settings of the layer.
 */
export function writeSpeculator(path: string, { config }: Head): Tensors {
  const { hidden_size, intermediate_size, num_hidden_layers, ...rest } = CONFIG;
  return writeHead(path, {
    layer: "layers.0.",
    config: {
      architectures: ["Eagle3Speculator"],
      model_type: "speculator_model",
      transformer_layer_config: {
        ...rest,
        architectures: ["LlamaForCausalLM"],
        hidden_size: hidden_size!,
        intermediate_size: intermediate_size!,
        num_hidden_layers: num_hidden_layers!,
      },
      hidden_size: 1,
      eagle_config: null,
      eagle_aux_hidden_state_layer_ids: [0, 1, 2],
      ...config,
    },
  });
}

const GGUF_NAMES: Readonly<Record<string, string>> = {
  "fc.weight": "fc.weight",
  "input_norm.weight": "enc.output_norm.weight",
  "norm.weight": "output_norm.weight",
  "lm_head.weight": "output.weight",
  "midlayer.input_layernorm.weight": "blk.0.attn_norm.weight",
  "midlayer.hidden_norm.weight": "blk.0.attn_norm_2.weight",
  "midlayer.post_attention_layernorm.weight": "blk.0.ffn_norm.weight",
  "midlayer.self_attn.q_proj.weight": "blk.0.attn_q.weight",
  "midlayer.self_attn.k_proj.weight": "blk.0.attn_k.weight",
  "midlayer.self_attn.v_proj.weight": "blk.0.attn_v.weight",
  "midlayer.self_attn.o_proj.weight": "blk.0.attn_output.weight",
  "midlayer.mlp.gate_proj.weight": "blk.0.ffn_gate.weight",
  "midlayer.mlp.up_proj.weight": "blk.0.ffn_up.weight",
  "midlayer.mlp.down_proj.weight": "blk.0.ffn_down.weight",
};

/** Reorders the rows of each head, so that rotated pairs are neighbours. */
function interleaved(values: Float32Array, cols: number): Float32Array<ArrayBuffer> {
  return Float32Array.from(values, (_, i) => {
    const row = Math.floor(i / cols), inHead = row % DIM;
    const from = row - inHead + (inHead % 2) * (DIM / 2) + Math.floor(inHead / 2);
    return values[from * cols + i % cols]!;
  });
}

/** Writes a head as llama.cpp's converter does: tokens as ids of the model, heads in pairs. */
export function writeGgufHead(path: string, head: Head): Tensors {
  const tensors = headTensors(head);
  const settings: Readonly<Record<string, GgufField>> = {
    block_count: ["u32", 1],
    context_length: ["u32", 256],
    embedding_length: ["u32", HIDDEN],
    feed_forward_length: ["u32", MLP],
    "attention.head_count": ["u32", HEADS],
    "attention.head_count_kv": ["u32", KV_HEADS],
    "attention.layer_norm_rms_epsilon": ["f32", EPS],
    "attention.key_length": ["u32", DIM],
    "rope.freq_base": ["f32", 10000],
    target_layers: ["array", "i32", [0, 1, 2]],
    target_hidden_size: ["u32", HIDDEN],
    norm_before_residual: ["bool", head.config?.norm_before_residual === true],
    norm_before_fc: ["bool", head.config?.norm_before_fc === true],
  };
  const data: TensorData[] = [...tensors].map(([name, values]) => {
    const own = /[qk]_proj/.test(name)
      ? interleaved(values, 2 * HIDDEN)
      : Float32Array.from(values);
    return float32Tensor(GGUF_NAMES[name]!, shapeOf(name, values), own);
  });
  const d2t = new Uint8Array(BigInt64Array.from(TOKENS, BigInt).buffer);
  data.push({ name: "d2t", type: "I64", shape: [DRAFTED], data: d2t });
  const metadata: Record<string, GgufField> = { "general.architecture": ["string", "eagle3"] };
  for (const [key, field] of Object.entries(settings)) metadata[`eagle3.${key}`] = field;
  Deno.writeFileSync(path, encodeGguf({ metadata, tensors: data }));
  return tensors;
}
