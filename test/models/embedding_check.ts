/** Holds embeddings to those of transformers, which embedding_vectors.py writes down. */
import { assert, assertEquals } from "@std/assert";
import { load, type LoadOptions, type Pooling } from "../../src/mod.ts";
import vectors from "./embedding_vectors.json" with { type: "json" };

/** The models whose vectors are known, by their folders' names. */
export const EMBEDDED: readonly string[] = Object.keys(vectors.models);

/**
 * @param path of one of {@linkcode EMBEDDED}, in either format
 * @param tolerance how far vectors may be off, as a part of their length
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
