/** Runs the head for multi-token prediction of a model on the reference device. */
import { assert } from "@std/assert";
import type { TokenLogprob } from "../../../src/backend.ts";
import { openBackend } from "../../../src/engine/load/open_backend.ts";
import { type Chunk, Runner, UNSAMPLED } from "../../../src/engine/runner.ts";
import { ForgeError } from "../../../src/errors.ts";
import { openCheckpoint } from "../../../src/formats/checkpoint.ts";
import type { JsonObject } from "../../../src/formats/json.ts";
import { float32Tensor } from "../../../src/formats/tensor_data.ts";
import { loadModel } from "../../../src/models/registry.ts";
import { writeModelFolder } from "../../support/safetensors_writer.ts";
import { filledTensors } from "./generated.ts";
import type { FloatTensor } from "./tiny_gguf.ts";

export const PROMPT = [7, 30, 2, 99, 30, 2, 51, 8, 120, 64, 3];

/** Number of tokens that {@linkcode draftAfterPrompt} drafts. */
const DRAFTS = 3;

/** Writes a model without a tokenizer. */
export function writeFolder(
  path: string,
  config: JsonObject,
  tensors: readonly FloatTensor[],
): void {
  const data = tensors.map(({ name, shape, values }) =>
    float32Tensor(name, shape, Float32Array.from(values))
  );
  writeModelFolder(path, { "config.json": config }, data);
}

/**
 * Returns a layer for multi-token prediction in DeepSeek-V3's layout: one of the shapes of the
 * last.
 */
export function draftLayer(
  model: readonly FloatTensor[],
  { num_hidden_layers, hidden_size }: JsonObject,
): FloatTensor[] {
  const nLayers = Number(num_hidden_layers), hidden = Number(hidden_size);
  const last = `model.layers.${nLayers - 1}.`, own = `model.layers.${nLayers}.`;
  const shapes = model.filter(({ name }) => name.startsWith(last))
    .map(({ name, shape }) => [name.replace(last, own), shape] as const);
  return filledTensors({
    ...Object.fromEntries(shapes),
    [`${own}enorm.weight`]: [hidden],
    [`${own}hnorm.weight`]: [hidden],
    [`${own}eh_proj.weight`]: [hidden, 2 * hidden],
    [`${own}shared_head.norm.weight`]: [hidden],
  });
}

/** Runs `use` with a runner of a model with its head, or another one, with F32 caches. */
export async function withRunner<T>(
  path: string,
  use: (runner: Runner) => Promise<T>,
  head?: string,
): Promise<T> {
  const backend = openBackend("reference", 1);
  try {
    const draftHead = head === undefined ? undefined : openCheckpoint(head);
    const { lm } = loadModel(backend, openCheckpoint(path), { drafts: true, draftHead });
    return await use(await Runner.open(backend, lm, { contextLength: 64, kvType: "F32" }));
  } finally {
    backend.close();
  }
}

/** Drafts tokens after a prompt, greedily; returns the log-probabilities of the best of each. */
export async function draftAfterPrompt(
  runner: Runner,
  prompt: readonly number[] = PROMPT,
): Promise<TokenLogprob[][]> {
  using table = runner.newSequence();
  const known = prompt.slice(0, -1);
  const chunk = (tokens: readonly number[], start: number): Chunk => {
    return { table, tokens, start, outputs: [{ ...UNSAMPLED, forcedToken: undefined, row: 0 }] };
  };
  // Two chunks: the head needs the state before the second one.
  await runner.run([chunk(known.slice(0, 4), 0)]);
  await runner.run([chunk(known.slice(4), 4)]);
  const tops: TokenLogprob[][] = [];
  let token = prompt.at(-1)!;
  for (let i = 0; i < DRAFTS; i++) {
    const { outputs: [output], ...rest } = chunk([token], known.length + i);
    const [[result] = []] = await runner.draft(
      [{ ...rest, outputs: [{ ...output!, nTop: 20 }] }],
      1,
    );
    assert(result !== undefined && !(result instanceof ForgeError));
    const tokenOf = (id: number) => runner.draftTokens?.[id] ?? id;
    tops.push(result.top.map(({ token, logprob }) => ({ token: tokenOf(token), logprob })));
    token = tokenOf(result.token);
  }
  return tops;
}
