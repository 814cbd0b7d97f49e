/** Compares models with the results of independent programs for the same weights. */
import { assert } from "@std/assert";
import { load, type LoadOptions, type Model, type Pooling } from "../../src/mod.ts";
import embeddings from "./engine/embedding_vectors.json" with { type: "json" };

/** Results of the other program for one model and prompt. */
export interface Reference {
  readonly prompt_ids: readonly number[];
  /** The logits after the last token of the prompt. */
  readonly logits_last: readonly number[];
  /** Negative log-likelihood of each token of the prompt but the first. */
  readonly nll_per_token: readonly number[];
  /** The greedy continuation of the prompt. */
  readonly greedy?: readonly number[];
}

/** Reads a JSON file. */
export function readJson<T>(path: string): T {
  return JSON.parse(Deno.readTextFileSync(path)) as T;
}

/** `||actual - expected|| / ||expected||`; NaN or infinity if `actual` holds them. */
export function relativeError(actual: ArrayLike<number>, expected: ArrayLike<number>): number {
  assert(actual.length === expected.length, `${actual.length} numbers, not ${expected.length}`);
  let error = 0;
  let norm = 0;
  for (let i = 0; i < expected.length; i++) {
    error += (actual[i]! - expected[i]!) ** 2;
    norm += expected[i]! ** 2;
  }
  return Math.sqrt(error / norm);
}

/** Fails if the relative error of `actual` exceeds `tolerance`. */
export function assertClose(
  actual: ArrayLike<number>,
  expected: ArrayLike<number>,
  tolerance: number,
): void {
  const error = relativeError(actual, expected);
  assert(error <= tolerance, `relative error ${error.toExponential(2)}, at most ${tolerance}`);
}

/** Largest differences from a reference. */
export interface Tolerances {
  /** Relative error of the last logits. */
  readonly logits: number;
  /** Absolute error of each log-likelihood. */
  readonly logLikelihood: number;
}

/** Greedy continuations may differ if the best two log probabilities are closer than this. */
const CLOSE_RACE = 0.01;

/** Fails if a model's logits, log-likelihoods or greedy tokens differ from a reference. */
export async function assertMatchesReference(
  path: string,
  options: LoadOptions,
  reference: Reference,
  tolerances: Tolerances,
): Promise<void> {
  await using model = await load(path, options);
  const prompt = Int32Array.from(reference.prompt_ids);
  assertClose(await model.logits(prompt), reference.logits_last, tolerances.logits);

  const scores = await model.score(prompt);
  assert(scores.length === reference.nll_per_token.length);
  scores.forEach((score, i) => {
    const expected = -reference.nll_per_token[i]!;
    const error = Math.abs(score - expected);
    const message = `log-likelihood ${i} is ${score}, not ${expected}`;
    assert(error <= tolerances.logLikelihood, message);
  });

  if (reference.greedy !== undefined) await assertSameGreedy(model, prompt, reference.greedy);
}

async function assertSameGreedy(model: Model, prompt: Int32Array, expected: readonly number[]) {
  const { tokenIds, logprobs = [] } = await model.complete(prompt, {
    temperature: 0,
    maxTokens: expected.length,
    logprobs: 2,
  });
  const parting = expected.findIndex((token, i) => tokenIds[i] !== token);
  if (parting < 0) return;
  const [best, second] = logprobs[parting]?.top ?? [];
  assert(best !== undefined && second !== undefined, `the text ended at token ${parting}`);
  const gap = best.logprob - second.logprob;
  assert(
    gap < CLOSE_RACE,
    `token ${parting} is ${tokenIds[parting]}, not ${expected[parting]}, ahead by ${gap}`,
  );
}

/** Folder names of the models with stored embeddings. */
export const EMBEDDED: readonly string[] = Object.keys(embeddings.models);

/**
 * Fails if a model's embeddings differ from those that transformers computed.
 *
 * @param path a folder or GGUF file of one of {@linkcode EMBEDDED}
 * @param tolerance maximum relative error of a vector
 */
export async function assertEmbeds(
  path: string,
  options: LoadOptions,
  tolerance: number,
): Promise<void> {
  const [, expected] = Object.entries(embeddings.models)
    .find(([name]) => path.split("/").includes(name))!;
  const tokens = Int32Array.from(embeddings.tokens);
  await using model = await load(path, options);
  for (const [pooling, vector] of Object.entries(expected) as [Pooling, number[]][]) {
    const [embedding] = await model.embed([tokens], { pooling, normalize: false });
    const error = relativeError(embedding!.vector, vector);
    assert(error < tolerance, `${path} on ${options.device}, ${pooling}: off by ${error}`);
  }
}
