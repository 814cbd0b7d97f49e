/** Compares embeddings with those of transformers, which embedding_vectors.py stores. */
import { assert, assertEquals } from "@std/assert";
import { load, type LoadOptions, type Pooling } from "../../src/mod.ts";
import vectors from "./embedding_vectors.json" with { type: "json" };

/** Folder names of the models with stored vectors. */
export const EMBEDDED: readonly string[] = Object.keys(vectors.models);

/**
 * Fails if a model's embeddings differ from the stored vectors.
 *
 * @param path a folder or GGUF file of one of {@linkcode EMBEDDED}
 * @param tolerance maximum relative error of a vector
 */
export async function assertEmbeds(
  path: string,
  options: LoadOptions,
  tolerance: number,
): Promise<void> {
  const [, expected] = Object.entries(vectors.models)
    .find(([name]) => path.split("/").includes(name))!;
  const tokens = Int32Array.from(vectors.tokens);
  await using model = await load(path, options);
  for (const [pooling, vector] of Object.entries(expected) as [Pooling, number[]][]) {
    const [embedding] = await model.embed([tokens], { pooling, normalize: false });
    const found = embedding!.vector;
    assertEquals(found.length, vector.length);
    const error = Math.hypot(...found.map((value, i) => value - vector[i]!)) /
      Math.hypot(...vector);
    assert(error < tolerance, `${path} on ${options.device}, ${pooling}: off by ${error}`);
  }
}
