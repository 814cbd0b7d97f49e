/**
 * Compares EAGLE-3 heads with a plain computation of their description, and of the model's layers.
 */
import { assert, assertEquals, assertRejects } from "@std/assert";
import type { JsonObject } from "../../../src/formats/json.ts";
import { ForgeError, type GenerateOptions, load } from "../../../src/mod.ts";
import {
  DIM,
  EPS,
  type Head,
  HEADS,
  HIDDEN,
  KV_HEADS,
  type Tensors,
  TOKENS,
  VOCABULARY,
  writeGgufHead,
  writeHead,
  writeSpeculator,
} from "../../support/eagle_head.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { writeRandomHybrid } from "../../support/tiny_hybrid.ts";
import { writeRandomLlama } from "../../support/tiny_llama.ts";
import { writeRandomMamba } from "../../support/tiny_mamba.ts";
import { relativeError } from "../reference_check.ts";
import { draftAfterPrompt, PROMPT, withRunner } from "./draft_head.ts";

const LAYERS = 2;

type Vector = Float64Array<ArrayBuffer>;

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

/** Models with attention, with the gated delta rule, and with Mamba-2. */
const TARGETS = { Llama: writeModel, hybrid: writeRandomHybrid, Mamba: writeRandomMamba };

for (const [name, write] of Object.entries(TARGETS)) {
  Deno.test(`an EAGLE-3 head changes no answer, by chains and trees: ${name}`, async () => {
    using folder = new TempFolder();
    write(folder.at("model"));
    writeHead(folder.at("head"));
    const answers = async (draftModel?: string, draftTree?: number) => {
      const speculate = draftModel === undefined ? "off" : 3;
      const options = { device: "cpu", threads: 2, speculate, draftModel, draftTree } as const;
      await using model = await load(folder.at("model"), options);
      const all = await Promise.all(REQUESTS.map((request) => model.complete("Fox?", request)));
      const drafted = all.map(({ timings }) => timings.drafted);
      return { drafted, results: all.map(({ timings: _, ...answer }) => answer) };
    };
    const plain = await answers();
    const counts: number[] = [];
    for (const width of [undefined, 1, 3]) {
      const { drafted, results } = await answers(folder.at("head"), width);
      assertEquals(results, plain.results, `${width} wide`);
      assert(drafted.every((count) => count > 5), `${drafted} drafted`);
      counts.push(drafted.reduce((sum, count) => sum + count, 0));
    }
    const [, chains = 0, trees = 0] = counts;
    // A recurrent state belongs to one chain of tokens.
    assert(name === "Llama" ? trees > 1.5 * chains : trees < 1.2 * chains, `${counts} drafted`);
  });
}

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
  await refused({ offsets: TOKENS.map(() => -1) }, "maps token 0 to -1; valid is 0 to 96");
  // 32 bits of this offset are 0.
  await refused({ offsets: TOKENS.map(() => 2 ** 32) }, "maps token 0 to 4294967296");
  await refused({ config: { draft_vocab_size: 41 } }, '"d2t" has the shape [40]');
  await refused({ config: { hidden_size: 32 } }, "fc.weight");
  await refused({ config: { num_hidden_layers: 2 } }, "has 2 layers; forge supports 1");
  await refused({ config: { fc_norm: true } }, 'sets "fc_norm", which forge does not support');
  await refused({ without: /lm_head/ }, "has a d2t, but no output matrix");
  await refused({ without: /d2t/ }, "has 40 tokens and no d2t; the model has 97");
  // The first token of the model is valid.
  writeHead(folder.at("head"), { offsets: TOKENS.map(() => 0) });
  const options = { device: "reference", draftModel: folder.at("head") };
  await using _loaded = await load(folder.at("model"), options);
});
