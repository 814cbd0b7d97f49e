/** Compares EAGLE-3 heads with a plain computation of their description, and of the model's layers. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import type { GgufField } from "../../../src/formats/gguf/writer.ts";
import type { JsonObject } from "../../../src/formats/json.ts";
import { float32Tensor, type TensorData } from "../../../src/formats/tensor_data.ts";
import { ForgeError, type GenerateOptions, load } from "../../../src/mod.ts";
import { encodeGguf } from "../../support/parts.ts";
import { Random } from "../../support/random.ts";
import { writeModelFolder } from "../../support/safetensors_writer.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { writeRandomLlama } from "../../support/tiny_llama.ts";
import { relativeError } from "../reference_check.ts";
import { draftAfterPrompt, PROMPT, withRunner } from "./draft_head.ts";

const HIDDEN = 64, HEADS = 4, KV_HEADS = 2, DIM = 16, MLP = 96, VOCABULARY = 97, DRAFTED = 40;
const LAYERS = 2, EPS = 1e-5;
/** The tokens that the head drafts: every second one. */
const TOKENS = Array.from({ length: DRAFTED }, (_, id) => 2 * id + 1);

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

type Vector = Float64Array<ArrayBuffer>;
type Tensors = ReadonlyMap<string, Float32Array>;

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

interface Head {
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

function writeHead(path: string, head: Head = {}): Tensors {
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

/** Writes a folder in the layout of the library speculators, which nests the settings of the layer. */
function writeSpeculator(path: string, { config }: Head): Tensors {
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
function writeGgufHead(path: string, head: Head): Tensors {
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

const times = (weight: Float32Array, x: ArrayLike<number>): Vector => {
  const cols = x.length;
  return Float64Array.from({ length: weight.length / cols }, (_, row) => {
    let sum = 0;
    for (let i = 0; i < cols; i++) sum += weight[row * cols + i]! * x[i]!;
    return sum;
  });
};

const normed = (x: Vector, weight: Float32Array): Vector => {
  const mean = x.reduce((sum, value) => sum + value * value, 0) / x.length;
  return x.map((value, i) => value / Math.sqrt(mean + EPS) * weight[i]!);
};

const plus = (a: Vector, b: Vector): Vector => a.map((value, i) => value + b[i]!);

function rotated(x: Vector, position: number): Vector {
  return x.map((value, i) => {
    const pair = i % DIM % (DIM / 2), angle = position * 10000 ** (-2 * pair / DIM);
    const isFirst = i % DIM < DIM / 2;
    const other = isFirst ? -x[i + DIM / 2]! : x[i - DIM / 2]!;
    return value * Math.cos(angle) + other * Math.sin(angle);
  });
}

/** One layer on all positions: `inputs` of attention, and the stream that it adds to. */
function layer(
  weights: Tensors,
  prefix: string,
  inputs: readonly Vector[],
  stream: readonly Vector[],
): Vector[] {
  const of = (name: string) => weights.get(`${prefix}${name}.weight`)!;
  const heads = (name: string) => inputs.map((x) => times(of(`self_attn.${name}_proj`), x));
  const [q, k] = [heads("q"), heads("k")].map((rows) => rows.map(rotated));
  const v = heads("v");
  return stream.map((h, position) => {
    const mixed = new Float64Array(HEADS * DIM);
    for (let head = 0; head < HEADS; head++) {
      const kv = Math.floor(head / (HEADS / KV_HEADS)) * DIM;
      const scores = Array.from({ length: position + 1 }, (_, p) => {
        let sum = 0;
        for (let i = 0; i < DIM; i++) sum += q![position]![head * DIM + i]! * k![p]![kv + i]!;
        return Math.exp(sum / Math.sqrt(DIM));
      });
      const total = scores.reduce((sum, score) => sum + score, 0);
      for (let i = 0; i < DIM; i++) {
        mixed[head * DIM + i] = scores.reduce((sum, s, p) => sum + s / total * v[p]![kv + i]!, 0);
      }
    }
    const attended = plus(h, times(of("self_attn.o_proj"), mixed));
    const x = normed(attended, of("post_attention_layernorm"));
    const up = times(of("mlp.up_proj"), x);
    const gated = times(of("mlp.gate_proj"), x).map((g, i) => g / (1 + Math.exp(-g)) * up[i]!);
    return plus(attended, times(of("mlp.down_proj"), gated));
  });
}

/** Writes a model, and returns its tensors. */
function writeModel(path: string): Tensors {
  const tensors = new Map<string, Float32Array>();
  writeRandomLlama(path, {
    change: (all) => {
      for (const { name, data } of all) {
        tensors.set(name, new Float32Array((data as Uint8Array<ArrayBuffer>).slice().buffer));
      }
      return all;
    },
  });
  return tensors;
}

const FORMS: readonly [
  name: string,
  write: (path: string, head: Head) => Tensors,
  config: JsonObject,
][] = [
  ["folder of EAGLE", writeHead, {}],
  ["folder of NVIDIA", writeHead, {
    eagle_config: { eagle_aux_hidden_state_layer_ids: [-1, 0, 1], norm_before_fc: true },
  }],
  ["folder of speculators", writeSpeculator, { norm_before_residual: true }],
  ["GGUF file", writeGgufHead, { norm_before_fc: true }],
  ["GGUF file, residual after the norm", writeGgufHead, { norm_before_residual: true }],
];

for (const [name, write, config] of FORMS) {
  Deno.test(`an EAGLE-3 head in a ${name} computes what its description says`, async () => {
    using folder = new TempFolder();
    const model = writeModel(folder.at("model"));
    const head = write(folder.at("head"), { config });
    const isNormedFirst = "norm_before_residual" in config;
    const prompt = PROMPT.map((token) => token % VOCABULARY);
    const tops = await withRunner(
      folder.at("model"),
      (runner) => draftAfterPrompt(runner, prompt),
      folder.at("head"),
    );

    const embedding = model.get("model.embed_tokens.weight")!;
    const embed = (token: number) =>
      Float64Array.from(embedding.subarray(token * HIDDEN, (token + 1) * HIDDEN));
    let stream = prompt.map(embed);
    const captured = [stream];
    for (let i = 0; i < LAYERS; i++) {
      const prefix = `model.layers.${i}.`;
      const norm = model.get(`${prefix}input_layernorm.weight`)!;
      stream = layer(model, prefix, stream.map((h) => normed(h, norm)), stream);
      captured.push(stream);
    }
    const of = (name: string) => head.get(`${name}.weight`)!;
    const tokens = [...prompt];
    const before = prompt.map((_, i) => {
      if (i === 0) return new Float64Array(HIDDEN);
      const all = Float64Array.from(captured.flatMap((states) => [...states[i - 1]!]));
      return times(of("fc"), head.has("input_norm.weight") ? normed(all, of("input_norm")) : all);
    });
    for (const [i, top] of tops.entries()) {
      const hidden = before.map((state) => normed(state, of("midlayer.hidden_norm")));
      const inputs = tokens.map((token, position) =>
        Float64Array.from([
          ...normed(embed(token), of("midlayer.input_layernorm")),
          ...hidden[position]!,
        ])
      );
      const last = layer(head, "midlayer.", inputs, isNormedFirst ? hidden : before).at(-1)!;
      const logits = times(of("lm_head"), normed(last, of("norm")));
      const total = Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit), 0));
      assertEquals(top[0]!.token, TOKENS[logits.indexOf(Math.max(...logits))], `draft ${i}`);
      const error = relativeError(
        top.map(({ logprob }) => logprob),
        top.map(({ token }) => logits[TOKENS.indexOf(token)]! - total),
      );
      assert(error <= 1e-4, `draft ${i}: relative error ${error}`);
      tokens.push(top[0]!.token);
      before.push(last);
    }
  });
}

const SCHEMA = { type: "object", properties: { a: { type: "integer" } }, required: ["a"] };
const REQUESTS: readonly GenerateOptions[] = [
  { temperature: 0, seed: 2, maxTokens: 50, logprobs: 3 },
  { temperature: 1, seed: 3, maxTokens: 50, stop: ["a", "q!"], logitBias: { 40: 3, 41: 4 } },
  { temperature: 1.5, seed: 4, maxTokens: 60, jsonSchema: SCHEMA },
  { temperature: 0.9, seed: 5, maxTokens: 60, regex: "[a-z ]{20,40}[0-9]+", logprobs: 1 },
  { temperature: 1, seed: 6, maxTokens: 40, repeatPenalty: 1.2, frequencyPenalty: 0.3 },
];

Deno.test("an EAGLE-3 head changes no answer", async () => {
  using folder = new TempFolder();
  writeModel(folder.at("model"));
  writeHead(folder.at("head"));
  const answers = async (draftModel?: string) => {
    const speculate = draftModel === undefined ? "off" : 3;
    const options = { device: "cpu", threads: 2, speculate, draftModel } as const;
    await using model = await load(folder.at("model"), options);
    const all = await Promise.all(REQUESTS.map((request) => model.complete("Fox?", request)));
    const drafted = all.map(({ timings }) => timings.drafted);
    return { drafted, results: all.map(({ timings: _, ...answer }) => answer) };
  };
  const { drafted, results } = await answers(folder.at("head"));
  assertEquals(results, (await answers()).results);
  assert(drafted.every((count) => count > 10), `${drafted} drafted`);
});

Deno.test("EAGLE-3 heads that do not fit the model are rejected", async () => {
  using folder = new TempFolder();
  writeModel(folder.at("model"));
  const refused = async (head: Head, message: string) => {
    writeHead(folder.at("head"), head);
    await assertRejects(
      () => load(folder.at("model"), { device: "reference", draftModel: folder.at("head") }),
      ForgeError,
      message,
    );
  };
  await refused(
    { config: { eagle_config: {} } },
    "reads the inputs of layers 2, 1, -1; the model has 2",
  );
  await refused({ offsets: TOKENS.map(() => 90) }, "maps token 7 to 97; valid is 0 to 96");
  await refused({ config: { draft_vocab_size: 41 } }, '"d2t" has the shape [40]');
  await refused({ config: { hidden_size: 32 } }, "fc.weight");
  await refused({ config: { num_hidden_layers: 2 } }, "has 2 layers; forge supports 1");
  await refused({ config: { fc_norm: true } }, 'sets "fc_norm", which forge does not support');
  await refused({ without: /lm_head/ }, "has a d2t, but no output matrix");
  await refused({ without: /d2t/ }, "has 40 tokens and no d2t; the model has 97");
});
