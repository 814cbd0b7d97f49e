/**
 * Compares the head for multi-token prediction with its published description: the input of its
 * layer is computed here, and the layer by a model of one layer of the same family, which other
 * tests compare with transformers.
 */
import { assert, assertEquals } from "@std/assert";
import { openBackend } from "../../../src/engine/load/open_backend.ts";
import { type Runner, UNSAMPLED } from "../../../src/engine/runner.ts";
import { openCheckpoint } from "../../../src/formats/checkpoint.ts";
import type { JsonObject } from "../../../src/formats/json.ts";
import { loadModel } from "../../../src/models/registry.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { writeRandomLlama } from "../../support/tiny_llama.ts";
import { relativeError } from "../reference_check.ts";
import { draftAfterPrompt, PROMPT, withRunner, writeFolder } from "./draft_head.ts";
import {
  filledTensors,
  generated,
  generatedTensors,
  published,
  publishedTensors,
} from "./generated.ts";

/**
 * Names around the layer: of the norms of embedding and hidden state, the projection, the last
 * norm.
 */
interface Names {
  readonly frame: string;
  readonly layer: string;
  readonly embeddingNorm: string;
  readonly hiddenNorm: string;
  readonly projection: string;
  /** @default the model's */
  readonly finalNorm?: string;
}

const deepseekNames = (nLayers: number): Names => ({
  frame: `model.layers.${nLayers}.`,
  layer: `model.layers.${nLayers}.`,
  embeddingNorm: "enorm",
  hiddenNorm: "hnorm",
  projection: "eh_proj",
  finalNorm: "shared_head.norm",
});

const QWEN_NAMES: Names = {
  frame: "mtp.",
  layer: "mtp.layers.0.",
  embeddingNorm: "pre_fc_norm_embedding",
  hiddenNorm: "pre_fc_norm_hidden",
  projection: "fc",
  finalNorm: "norm",
};

const ERNIE_NAMES: Names = {
  frame: "model.mtp_",
  layer: "model.mtp_block.0.",
  embeddingNorm: "emb_norm.0",
  hiddenNorm: "hidden_norm.0",
  projection: "linear_proj.0",
};

interface Case {
  readonly name: string;
  readonly source: "generated" | "published";
  readonly names: (nLayers: number) => Names;
  /** Settings of a model whose only layer is of the head's kind. */
  readonly oneLayer: JsonObject;
  /** Added to the weights of norms. */
  readonly normOffset: number;
  /** Layer of the model with the tensors of the head's. @default the last */
  readonly like?: number;
}

const deepseek: Omit<Case, "name" | "oneLayer"> = {
  source: "generated",
  names: deepseekNames,
  normOffset: 0,
};
const qwen: Omit<Case, "name"> = {
  source: "published",
  names: () => QWEN_NAMES,
  oneLayer: { layer_types: ["full_attention"] },
  normOffset: 1,
};

const CASES: readonly Case[] = [
  { ...deepseek, name: "deepseek_v3", oneLayer: { first_k_dense_replace: 0 } },
  { ...deepseek, name: "glm4_moe", oneLayer: { first_k_dense_replace: 0 } },
  { ...deepseek, name: "glm4_moe_lite", oneLayer: { mlp_layer_types: ["sparse"] } },
  { ...qwen, name: "qwen3_next" },
  { ...qwen, name: "qwen3_5_moe_text" },
  {
    ...deepseek,
    name: "ernie4_5_moe",
    names: () => ERNIE_NAMES,
    oneLayer: { moe_layer_start_index: 1 },
    like: 0,
  },
];

/** Returns the hidden states of all tokens after the last norm, and the logits after the last. */
async function compute(runner: Runner, tokens: readonly number[]) {
  using table = runner.newSequence();
  const outputs = tokens.map((_, row) => ({ ...UNSAMPLED, row }));
  const [hidden = []] = await runner.embed([{ table, tokens, start: 0, outputs }]);
  await runner.run([{ table, tokens, start: 0, outputs: outputs.slice(-1) }]);
  return { hidden, logits: runner.readLogits(0) };
}

function normalised(x: ArrayLike<number>, weight: Float32Array, offset: number, eps: number) {
  let squares = 0;
  for (let i = 0; i < x.length; i++) squares += x[i]! ** 2;
  const scale = 1 / Math.sqrt(squares / x.length + eps);
  return Float64Array.from(x, (value, i) => value * scale * (weight[i]! + offset));
}

function logSoftmax(logits: Float32Array): Float64Array {
  const largest = Math.max(...logits);
  const total = logits.reduce((sum, logit) => sum + Math.exp(logit - largest), 0);
  return Float64Array.from(logits, (logit) => logit - largest - Math.log(total));
}

for (const { name, source, names, oneLayer, normOffset, like } of CASES) {
  Deno.test(`the draft head of ${name} computes what its description says`, async () => {
    const { config } = (source === "generated" ? generated : published).models[name]!;
    const model = source === "generated" ? generatedTensors(name, config) : publishedTensors(name);
    const nLayers = Number(config.num_hidden_layers), hidden = Number(config.hidden_size);
    const { frame, layer, embeddingNorm, hiddenNorm, projection, finalNorm } = names(nLayers);
    const last = `model.layers.${like ?? nLayers - 1}.`;
    const shapes = Object.fromEntries(
      model.filter(({ name }) => name.startsWith(last))
        .map(({ name, shape }) => [name.replace(last, layer), shape]),
    );
    const own = filledTensors({
      ...shapes,
      [`${frame}${embeddingNorm}.weight`]: [hidden],
      [`${frame}${hiddenNorm}.weight`]: [hidden],
      [`${frame}${projection}.weight`]: [hidden, 2 * hidden],
      ...(finalNorm === undefined ? {} : { [`${frame}${finalNorm}.weight`]: [hidden] }),
    });
    const valuesOf = (name: string) =>
      [...model, ...own].find((tensor) => tensor.name === name)!.values;
    using folder = new TempFolder();
    writeFolder(folder.path, config, [...model, ...own]);
    const { tops, states } = await withRunner(folder.path, async (runner) => ({
      tops: await draftAfterPrompt(runner),
      states: (await compute(runner, PROMPT)).hidden,
    }));

    const embedding = valuesOf("model.embed_tokens.weight");
    const weight = valuesOf(`${frame}${projection}.weight`);
    const eps = Number(config.rms_norm_eps);
    const norm = (x: ArrayLike<number>, name: string) =>
      normalised(x, valuesOf(`${frame}${name}.weight`), normOffset, eps);
    const inputs: Float32Array[] = [];
    const append = (token: number, before: ArrayLike<number>) => {
      const row = embedding.subarray(token * hidden, (token + 1) * hidden);
      const both = [...norm(row, embeddingNorm), ...norm(before, hiddenNorm)];
      inputs.push(
        Float32Array.from(
          { length: hidden },
          (_, i) => both.reduce((sum, value, j) => sum + value * weight[i * 2 * hidden + j]!, 0),
        ),
      );
    };
    PROMPT.forEach((token, i) => append(token, states[i - 1] ?? new Float32Array(hidden)));
    for (const [i, top] of tops.entries()) {
      const rows = new Float32Array(embedding.length);
      inputs.forEach((row, position) => rows.set(row, position * hidden));
      const tensors = [
        {
          name: "model.embed_tokens.weight",
          shape: [embedding.length / hidden, hidden],
          values: rows,
        },
        {
          name: "model.norm.weight",
          shape: [hidden],
          values: valuesOf(finalNorm ? `${frame}${finalNorm}.weight` : "model.norm.weight"),
        },
        ...model.filter(({ name }) => name === "lm_head.weight"),
        ...own.filter(({ name }) => Object.hasOwn(shapes, name))
          .map((tensor) => ({ ...tensor, name: tensor.name.replace(layer, "model.layers.0.") })),
      ];
      using alone = new TempFolder();
      const ids = inputs.map((_, position) => position);
      writeFolder(alone.path, { ...config, ...oneLayer, num_hidden_layers: 1 }, tensors);
      const { hidden: after, logits } = await withRunner(
        alone.path,
        (runner) => compute(runner, ids),
      );
      const expected = logSoftmax(logits);
      assertEquals(top[0]!.token, expected.indexOf(Math.max(...expected)), `draft ${i}`);
      const error = relativeError(
        top.map(({ logprob }) => logprob),
        top.map(({ token }) => expected[token]!),
      );
      assert(error <= 1e-4, `draft ${i}: relative error ${error}`);
      append(top[0]!.token, after.at(-1)!);
    }
  });
}

Deno.test("a folder without all tensors of a draft head has none", () => {
  using folder = new TempFolder();
  for (const missing of ["enorm", "hnorm", "eh_proj"]) {
    writeRandomLlama(folder.path, {
      predictor: true,
      change: (tensors) => tensors.filter(({ name }) => !name.includes(missing)),
    });
    const backend = openBackend("reference", 1);
    const { lm } = loadModel(backend, openCheckpoint(folder.path), { drafts: true });
    assertEquals(lm.draft, undefined);
    backend.close();
  }
});
