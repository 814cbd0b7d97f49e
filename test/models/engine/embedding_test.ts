/** Compares embeddings with those of transformers. */
import { sharedAvailable, sharedPath } from "../../support/shared.ts";
import { assertEmbeds, EMBEDDED } from "../reference_check.ts";

for (const name of EMBEDDED) {
  Deno.test({
    name: `the embeddings of ${name} agree with transformers`,
    ignore: !sharedAvailable("models", "tiny", name),
    fn: async () => {
      for (const device of ["reference", "cpu"]) {
        await assertEmbeds(sharedPath("models", "tiny", name), { device, kvType: "F32" }, 1e-4);
      }
    },
  });
}

Deno.test({
  name: "a GGUF file gives the embeddings of the folder it was converted from",
  ignore: !sharedAvailable("models", "tiny", "qwen3"),
  fn: async () => {
    for (const name of ["qwen2", "qwen3"]) {
      const path = sharedPath("models", "tiny", name, `${name}-f32.gguf`);
      await assertEmbeds(path, { device: "cpu", kvType: "F32" }, 1e-4);
    }
  },
});
