/** Embeddings against transformers, whose numbers embedding_vectors.py writes down. */
import { assert, assertEquals } from "@std/assert";
import { load, type Pooling } from "../../src/mod.ts";
import { sharedAvailable, sharedPath } from "../support/shared.ts";
import vectors from "./embedding_vectors.json" with { type: "json" };

const tokens = Int32Array.from(vectors.tokens);

/** How far the numbers are from those of another program, as a part of the vector's length. */
function relativeError(found: Float32Array, expected: readonly number[]): number {
  assertEquals(found.length, expected.length);
  const length = (values: Iterable<number>) => Math.hypot(...values);
  return length(found.map((value, i) => value - expected[i]!)) / length(expected);
}

for (const [name, expected] of Object.entries(vectors.models)) {
  Deno.test({
    name: `the embeddings of ${name} are those of transformers`,
    ignore: !sharedAvailable("models", "tiny", name),
    fn: async () => {
      for (const device of ["reference", "cpu"]) {
        const path = sharedPath("models", "tiny", name);
        await using model = await load(path, { device, kvType: "F32" });
        for (const [pooling, vector] of Object.entries(expected) as [Pooling, number[]][]) {
          const [embedding] = await model.embed([tokens], { pooling, normalize: false });
          const error = relativeError(embedding!.vector, vector);
          assert(error < 1e-4, `${device}, ${pooling}: off by ${error}`);
        }
      }
    },
  });
}
