/** `GET /api/version`, `GET /api/tags` and `POST /api/show`: describe the model as Ollama does. */
import type { Model } from "../../engine/model.ts";
import { modelIdentity } from "../../engine/cache/prompt_cache_key.ts";
import type { JsonObject } from "../../formats/json.ts";
import type { TensorInfo } from "../../formats/tensor_info.ts";
import { findCallFormat } from "../chat/call_formats.ts";
import { isHarmony } from "../chat/harmony.ts";
import { findMarks } from "../chat/reasoning.ts";
import type { Service } from "../service.ts";
import { readRequest } from "./endpoint.ts";

/** Version of Ollama that the endpoints follow; clients check it for features. */
const VERSION = "0.9.6";

export function version(): Response {
  return Response.json({ version: VERSION });
}

/** Lists each name of the model as a model of its own. */
export function tags(service: Service): Response {
  const { checkpoint } = service.model;
  const tensors = [...checkpoint.tensors.values()];
  const facts = {
    modified_at: new Date(service.created * 1000).toISOString(),
    size: tensors.reduce((sum, { bytes }) => sum + bytes, 0),
    digest: modelIdentity(checkpoint),
    details: details(service.model),
  };
  return Response.json({ models: service.names.map((name) => ({ name, model: name, ...facts })) });
}

export async function show(service: Service, request: Request): Promise<Response> {
  await readRequest(service, request, ["name", "verbose"]);
  const { model } = service;
  const { modelType, chatTemplate = "" } = model.checkpoint;
  return Response.json({
    modified_at: new Date(service.created * 1000).toISOString(),
    parameters: "",
    template: chatTemplate,
    details: details(model),
    model_info: {
      "general.architecture": modelType,
      "general.parameter_count": parameters(model),
      [`${modelType}.context_length`]: model.contextLength,
      [`${modelType}.embedding_length`]: model.embeddingSize,
    },
    capabilities: capabilities(model),
  });
}

function details(model: Model): JsonObject {
  const { kind, modelType } = model.checkpoint;
  return {
    parent_model: "",
    format: kind,
    family: modelType,
    families: [modelType],
    parameter_size: abbreviated(parameters(model)),
    quantization_level: mainType([...model.checkpoint.tensors.values()]),
  };
}

function capabilities(model: Model): string[] {
  const { chatTemplate = "" } = model.checkpoint;
  const thinks = isHarmony(chatTemplate) || findMarks(chatTemplate, model.tokenizer) !== undefined;
  const calls = isHarmony(chatTemplate) || findCallFormat(chatTemplate) !== undefined;
  return [
    ...(model.generates ? ["completion"] : []),
    "embedding",
    ...(model.generates && calls ? ["tools"] : []),
    ...(model.generates && thinks ? ["thinking"] : []),
  ];
}

function parameters({ checkpoint }: Model): number {
  return [...checkpoint.tensors.values()]
    .reduce((sum, { shape }) => sum + shape.reduce((product, size) => product * size, 1), 0);
}

/** Returns the type with the most bytes of weights. */
function mainType(tensors: readonly TensorInfo[]): string {
  const bytes = new Map<string, number>();
  for (const { type, bytes: more } of tensors) bytes.set(type, (bytes.get(type) ?? 0) + more);
  return [...bytes].sort(([, a], [, b]) => b - a)[0]?.[0] ?? "";
}

/** Formats a count, such as 1.2B. */
function abbreviated(count: number): string {
  const [unit, size] = count >= 1e9 ? ["B", 1e9] : count >= 1e6 ? ["M", 1e6] : ["K", 1e3];
  return `${(count / size).toFixed(1)}${unit}`;
}
