/** Compares EAGLE-3 heads with a plain computation of their description, and of the model's layers. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import type { JsonObject } from "../../../src/formats/json.ts";
import { float32Tensor, type TensorData } from "../../../src/formats/tensor_data.ts";
import { ForgeError, type GenerateOptions, load } from "../../../src/mod.ts";
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
}

function writeHead(path: string, { config, layer = "midlayer.", offsets }: Head = {}): Tensors {
  const tensors = new Map(
    Object.entries(SHAPES).map(([name, shape]) => {
      const count = shape.reduce((product, size) => product * size, 1);
      const values = shape.length === 1
        ? new Random(name, 1).normals(count, 0.2).map((value) => 1 + value)
        : new Random(name, 1).normals(count, 1.5 / Math.sqrt(shape[1]!));
      return [name, Float32Array.from(values)];
    }),
  );
  const d2t = BigInt64Array.from(offsets ?? TOKENS.map((token, id) => token - id), BigInt);
  const data: TensorData[] = [...tensors].map(([name, values]) =>
    float32Tensor(name.replace("midlayer.", layer), SHAPES[name]!, Float32Array.from(values))
  );
  data.push({ name: "d2t", type: "I64", shape: [DRAFTED], data: new Uint8Array(d2t.buffer) });
  data.push({ name: "t2d", type: "BOOL", shape: [VOCABULARY], data: new Uint8Array(VOCABULARY) });
  writeModelFolder(path, { "config.json": { ...CONFIG, ...config } }, data);
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

for (const [name, isNormedFirst] of [["midlayer.", false], ["layers.0.", true]] as const) {
  Deno.test(`an EAGLE-3 head (${name}) computes what its description says`, async () => {
    using folder = new TempFolder();
    const model = writeModel(folder.at("model"));
    const config = { norm_before_residual: isNormedFirst };
    const head = writeHead(folder.at("head"), { layer: name, config });
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
    const before = prompt.map((_, i) =>
      i === 0
        ? new Float64Array(HIDDEN)
        : times(of("fc"), captured.flatMap((states) => [...states[i - 1]!]))
    );
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
  await refused({ config: { draft_vocab_size: 41 } }, "lm_head.weight");
  await refused({ config: { hidden_size: 32 } }, "fc.weight");
});
