import { assertEquals } from "@std/assert";
import type { Weight, WeightData } from "../../../src/backend.ts";
import type { TensorType } from "../../../src/formats/tensor_info.ts";
import { decoderConfig } from "../../../src/models/config/decoder_config.ts";
import {
  latentDims,
  latentKvShape,
  loadLatentAttention,
} from "../../../src/models/parts/latent_attention.ts";
import { WeightLoader } from "../../../src/models/weights/weight_loader.ts";
import { ConfigReader } from "../../../src/models/config/config_reader.ts";
import { FakeBackend, fakeCheckpoint } from "./fakes.ts";

const config = {
  model_type: "deepseek_v3",
  vocab_size: 8,
  hidden_size: 32,
  intermediate_size: 32,
  num_hidden_layers: 1,
  num_attention_heads: 1,
  num_key_value_heads: 1,
  head_dim: 4,
  max_position_embeddings: 64,
  rms_norm_eps: 1e-6,
  q_lora_rank: null,
  kv_lora_rank: 32,
  qk_nope_head_dim: 2,
  qk_rope_head_dim: 4,
  v_head_dim: 3,
};

/** An uploaded weight and its type. */
class UploadBackend extends FakeBackend {
  readonly uploads: { readonly type: TensorType; readonly bytes: Uint8Array<ArrayBuffer> }[] = [];

  override uploadWeight(type: TensorType, rows: number, cols: number, data: WeightData): Weight {
    const bytes = typeof data === "function" ? data() : data;
    this.uploads.push({ type, bytes });
    return { ...super.uploadWeight(type, rows, cols, bytes), rows, cols };
  }
}

/** Loads a layer of one head with the given key matrix and returns the uploads. */
function load(type: TensorType, values: readonly number[]) {
  const name = "model.layers.0.self_attn.kv_b_proj.weight";
  const backend = new UploadBackend({ [name]: values });
  const layer = (part: string, ...shape: number[]) =>
    [`model.layers.0.self_attn.${part}.weight`, shape] as const;
  const checkpoint = fakeCheckpoint({
    config,
    tensors: {
      ...Object.fromEntries([
        layer("q_proj", 6, 32),
        layer("kv_a_proj_with_mqa", 36, 32),
        layer("kv_a_layernorm", 32),
        layer("o_proj", 32, 3),
      ]),
      [name]: { type, shape: [5, 32] },
    },
  });
  const reader = new ConfigReader(checkpoint);
  const dims = latentDims(reader);
  const rope = { invFreq: new Float32Array(2), scale: 1, layout: "interleaved" } as const;
  const weights = WeightLoader.for(backend, checkpoint).layer(0);
  loadLatentAttention(weights, decoderConfig(reader), 0, { dims, rope, scale: 1 });
  return { backend, shape: latentKvShape(dims) };
}

const values = Array.from({ length: 64 }, (_, i) => i - 20);
/** Transposes a matrix. */
const turned = Array.from({ length: 64 }, (_, at) => values[at % 2 * 32 + (at >> 1)]!);

/** The numbers of an upload. */
function numbers({ type, bytes }: { type: TensorType; bytes: Uint8Array<ArrayBuffer> }): number[] {
  if (type === "F32") return [...new Float32Array(bytes.buffer)];
  if (type === "F16") return [...new Float16Array(bytes.buffer)];
  const bits = Uint32Array.from(new Uint16Array(bytes.buffer), (half) => half << 16);
  return [...new Float32Array(bits.buffer)];
}

Deno.test("the matrices of keys are transposed, in their float type or in F16", () => {
  const stored = { F32: "F32", F16: "F16", BF16: "BF16", Q8_0: "F16" } as const;
  for (const [type, expected] of Object.entries(stored)) {
    const { uploads } = load(type as TensorType, values).backend;
    assertEquals(uploads.map(({ type }) => type), [expected]);
    assertEquals(numbers(uploads[0]!), turned, type);
  }
});

Deno.test("the rows of keys and of values are mapped apart, each once", () => {
  const { mapped } = load("Q8_0", values).backend;
  const slices = mapped.flatMap(({ parts }) => parts).filter(({ nRows }) => nRows !== undefined);
  assertEquals(slices.map(({ firstRow, nRows }) => [firstRow, nRows]), [[0, 2], [2, 3]]);
});

Deno.test("the cache holds the latent vector and the rotated part of the key", () => {
  const { shape } = load("F32", values);
  assertEquals(shape, { nKvHeads: 1, kHeadDim: 36, vHeadDim: 32, valuesInKeys: true });
});
