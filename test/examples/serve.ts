/** Serves a model over HTTP and calls it as a client of OpenAI's API does. */
import { load } from "../../src/mod.ts";
import { createHandler } from "../../src/serve/mod.ts";

const demo = `${import.meta.dirname}/../../models/demo`;
await using model = await load(demo);

const handler = createHandler(model, { names: ["teller"], defaults: { maxTokens: 16 } });
await using server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen: () => {} }, handler);

const response = await fetch(`http://127.0.0.1:${server.addr.port}/v1/chat/completions`, {
  method: "POST",
  body: JSON.stringify({
    model: "teller",
    messages: [{ role: "user", content: "Tell me a story." }],
    seed: 1,
  }),
});
const { choices: [choice], usage } = await response.json();
console.log(choice.message.content);
console.log(`[${choice.finish_reason} after ${usage.completion_tokens} tokens]`);
