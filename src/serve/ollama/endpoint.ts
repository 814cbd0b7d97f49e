/** What Ollama's endpoints have in common: the names of models, and the form of errors. */
import type { JsonObject } from "../../formats/json.ts";
import { checkKeys, isGiven, readString } from "../../requests/values.ts";
import { errorBody, errorResponse, isFault } from "../http/http_error.ts";
import { readBody } from "../http/request_body.ts";
import type { Endpoint } from "../route.ts";
import type { Service } from "../service.ts";

/** What Ollama puts behind a name without a tag. */
const TAG = ":latest";

/** An endpoint whose errors are `{"error": …}`, as Ollama's clients expect. */
export function inOllamasWords(endpoint: Endpoint): Endpoint {
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

/** What an error says, and no more of forge's own faults than that there is one. */
export function errorMessage(error: unknown): string {
  return errorBody(error).error.message;
}

/**
 * Reads a request's body.
 *
 * @param known its keys beside the model's name
 * @throws {RequestError} for other keys
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
