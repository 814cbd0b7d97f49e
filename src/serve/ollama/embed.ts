/** `POST /api/embed` and its predecessor `POST /api/embeddings`: return the embeddings of texts. */
import type { JsonObject } from "../../formats/json.ts";
import { checkKeys, floatsOf, isGiven, readBoolean, readString } from "../../requests/values.ts";
import { embedInput, listResponse } from "../openai/embeddings.ts";
import type { Service } from "../service.ts";

const FIELDS = ["model", "input", "truncate", "dimensions", "options", "keep_alive"];
const OLD_FIELDS = ["model", "prompt", "options", "keep_alive"];

export async function embed(
  service: Service,
  request: Request,
  body: JsonObject,
): Promise<Response> {
  const start = performance.now();
  checkKeys(body, FIELDS);
  // As in Ollama, texts that are too long are cut by default.
  const truncate = !isGiven(body.truncate) || readBoolean(body.truncate, "truncate");
  const embedded = await embedInput(service, request, body, truncate);
  const facts = {
    model: service.name,
    total_duration: Math.round((performance.now() - start) * 1e6),
    load_duration: Math.round(service.loadMs * 1e6),
    prompt_eval_count: embedded.reduce((sum, { tokens }) => sum + tokens, 0),
  };
  const items = embedded.map(({ vector }) => () => JSON.stringify(floatsOf(vector)));
  return listResponse(facts, "embeddings", items);
}

/** Returns the embedding of one text, in the older form. */
export async function embedOne(
  service: Service,
  request: Request,
  body: JsonObject,
): Promise<Response> {
  checkKeys(body, OLD_FIELDS);
  const input = readString(body.prompt, "prompt");
  const [embedded] = await embedInput(service, request, { input }, true);
  return Response.json({ embedding: floatsOf(embedded!.vector) });
}
