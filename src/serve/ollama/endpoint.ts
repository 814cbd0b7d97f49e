/** Model names and errors of Ollama's endpoints. */
import type { JsonObject } from "../../formats/json.ts";
import { checkKeys, isGiven, readString } from "../../requests/values.ts";
import { errorBody } from "../http/http_error.ts";
import { readBody } from "../http/request_body.ts";
import type { Service } from "../service.ts";

/** Tag that Ollama appends to a name without one. */
const TAG = ":latest";

/** Returns an error in Ollama's form. */
export function ollamaError(error: unknown): JsonObject {
  return { error: errorBody(error).error.message };
}

/**
 * Reads a request's body.
 *
 * @param known keys other than `model`
 * @throws {RequestError} for an unknown key
 * @throws {HttpError} 404 for another model
 */
export async function readRequest(
  service: Service,
  request: Request,
  known: readonly string[],
): Promise<JsonObject> {
  const body = await readBody(request);
  checkKeys(body, ["model", ...known]);
  if (isGiven(body.model)) {
    const name = readString(body.model, "model");
    service.findModel(name.endsWith(TAG) ? name.slice(0, -TAG.length) : name);
  }
  return body;
}
