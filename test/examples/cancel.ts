/** Stops an answer with an AbortSignal and keeps the text generated so far. */
import { load } from "../../src/mod.ts";

const demo = `${import.meta.dirname}/../../models/demo`;
await using model = await load(demo);

const controller = new AbortController();
let text = "";
for await (const piece of model.generate("Tell me a story.", { signal: controller.signal })) {
  text += piece.text;
  if (text.length > 40) controller.abort();
  if (piece.end !== undefined) console.log(`${text}\n[${piece.end.finishReason}]`);
}
