/** `GET /v1/models` and `GET /v1/models/NAME`: describe the model under each of its names. */
import { HttpError } from "../http/http_error.ts";
import type { Service } from "../service.ts";

export function listModels(service: Service): Response {
  return Response.json({
    object: "list",
    data: service.names.map((name) => describe(service, name)),
  });
}

/** @throws {HttpError} 404 for an unknown name */
export function showModel(service: Service, _request: Request, path: string): Response {
  return Response.json(describe(service, service.findModel(decode(path))));
}

function describe({ created, model }: Service, id: string) {
  return { id, object: "model", created, owned_by: "forge", max_model_len: model.contextLength };
}

function decode(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch {
    throw new HttpError(404, "the model's name in the path is not percent-encoded UTF-8");
  }
}
