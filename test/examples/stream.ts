/** Writes an answer as it is generated. `deno run -P=forge test/examples/stream.ts` */
import { load } from "../../src/mod.ts";

const demo = `${import.meta.dirname}/../../models/demo`;
await using model = await load(demo);

const encoder = new TextEncoder();
for await (const piece of model.generate("Tell me a story about a fox.", { seed: 1 })) {
  await Deno.stdout.write(encoder.encode(piece.text));
  if (piece.end !== undefined) console.log(`\n[${piece.end.finishReason}]`);
}
