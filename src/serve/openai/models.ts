/** `GET /v1/models` and `GET /v1/models/NAME`: describe the models under each of their names. */
import type { OfferedModel } from "../model_pool.ts";
import type { Server } from "../service.ts";

export function listModels({ created, models }: Server): Response {
  const data = models.offered.flatMap((offered) =>
    offered.names.map((name) => describe(offered, name, created))
  );
  return Response.json({ object: "list", data });
}

/** @throws {UnknownModel} */
export function showModel({ created, models }: Server, _: Request, name: string): Response {
  return Response.json(describe(models.find(name), name, created));
}

/** The context length is known once the model is loaded. */
function describe({ model }: OfferedModel, id: string, created: number) {
  const loaded = model === undefined ? {} : { max_model_len: model.contextLength };
  return { id, object: "model", created, owned_by: "forge", ...loaded };
}
