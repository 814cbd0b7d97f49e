/** Embeddings against transformers. */
import { sharedAvailable, sharedPath } from "../support/shared.ts";
import { assertEmbeds, EMBEDDED } from "./embedding_check.ts";

for (const name of EMBEDDED) {
  Deno.test({
    name: `the embeddings of ${name} are those of transformers`,
    ignore: !sharedAvailable("models", "tiny", name),
    fn: async () => {
      for (const device of ["reference", "cpu"]) {
        await assertEmbeds(sharedPath("models", "tiny", name), { device, kvType: "F32" }, 1e-4);
      }
    },
  });
}
