/** `POST /api/embed`: returns the embeddings of texts. */
import { floatsOf, isGiven, readBoolean } from "../../requests/values.ts";
import { embedInput, listResponse } from "../openai/embeddings.ts";
import type { Service } from "../service.ts";
import { readRequest } from "./endpoint.ts";

const FIELDS = ["input", "truncate", "dimensions", "options", "keep_alive"];

export async function embed(service: Service, request: Request): Promise<Response> {
  const start = performance.now();
  const body = await readRequest(service, request, FIELDS);
  // As in Ollama, texts that are too long are cut by default.
  const truncate = !isGiven(body.truncate) || readBoolean(body.truncate, "truncate");
  const embedded = await embedInput(service, request, body, truncate);
  const facts = {
    model: service.name,
    total_duration: Math.round((performance.now() - start) * 1e6),
    load_duration: 0,
    prompt_eval_count: embedded.reduce((sum, { tokens }) => sum + tokens, 0),
  };
  const items = embedded.map(({ vector }) => () => JSON.stringify(floatsOf(vector)));
  return listResponse(facts, "embeddings", items);
}
