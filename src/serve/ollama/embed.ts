/** `POST /api/embed`: the vectors of texts. */
import { MAX_COUNT } from "../../engine/limits.ts";
import { floatsOf } from "../../requests/floats.ts";
import { isGiven, readBoolean, readNumber, RequestError } from "../../requests/values.ts";
import { readTexts } from "../../requests/texts.ts";
import { embedAll, listResponse, MAX_TEXTS } from "../openai/embeddings.ts";
import type { Service } from "../service.ts";
import { readRequest } from "./endpoint.ts";

const FIELDS = ["input", "truncate", "dimensions", "options", "keep_alive"];

export async function embed(service: Service, request: Request): Promise<Response> {
  const start = performance.now();
  const body = await readRequest(service, request, FIELDS);
  const { dimensions, truncate } = body;
  const texts = readTexts(body.input, "input");
  if (texts.length > MAX_TEXTS) {
    throw new RequestError(`input has ${texts.length} texts; at most ${MAX_TEXTS} are valid`);
  }
  const embedded = await embedAll(service, request, texts, {
    dimensions: isGiven(dimensions)
      ? readNumber(dimensions, "dimensions", 1, MAX_COUNT, true)
      : undefined,
    // Ollama cuts texts that are too long unless it is told not to.
    truncate: !isGiven(truncate) || readBoolean(truncate, "truncate"),
  });
  const facts = {
    model: service.name,
    total_duration: Math.round((performance.now() - start) * 1e6),
    load_duration: 0,
    prompt_eval_count: embedded.reduce((sum, { tokens }) => sum + tokens, 0),
  };
  const items = embedded.map(({ vector }) => () => JSON.stringify(floatsOf(vector)));
  return listResponse(facts, "embeddings", items);
}
