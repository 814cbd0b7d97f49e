/** Model names and errors of Ollama's endpoints. */
import type { JsonObject } from "../../formats/json.ts";
import { checkKeys, isGiven, readString } from "../../requests/values.ts";
import type { Endpoint } from "../handler.ts";
import { errorBody, errorResponse, isFault } from "../http/http_error.ts";
import { readBody } from "../http/request_body.ts";
import type { Service } from "../service.ts";

/** Tag that Ollama appends to a name without one. */
const TAG = ":latest";

/** Returns an endpoint whose errors are `{"error": …}`, as Ollama's clients expect. */
export function withOllamaErrors(endpoint: Endpoint): Endpoint {
  return async (service, request, rest) => {
    try {
      return await endpoint(service, request, rest);
    } catch (error) {
      if (isFault(error)) service.onError(error);
      const { status } = errorResponse(error);
      return Response.json({ error: errorMessage(error) }, { status });
    }
  };
}

/** Returns the message of an error, without details of an internal one. */
export function errorMessage(error: unknown): string {
  return errorBody(error).error.message;
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
