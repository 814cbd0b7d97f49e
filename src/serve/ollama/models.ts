/**
 * `GET /api/version`, `/api/tags`, `/api/ps` and `POST /api/show`: describe the models as Ollama
 * does.
 */
import { modelIdentity } from "../../engine/cache/prompt_cache_key.ts";
import { planModel } from "../../engine/load/plan_model.ts";
import { openTokenizer } from "../../engine/load/tokenizer.ts";
import type { Checkpoint } from "../../formats/checkpoint.ts";
import type { JsonObject } from "../../formats/json.ts";
import type { TensorInfo } from "../../formats/tensor_info.ts";
import { checkKeys } from "../../requests/values.ts";
import { findCallFormat } from "../chat/call_formats.ts";
import { isHarmony } from "../chat/harmony.ts";
import { findMarks } from "../chat/reasoning.ts";
import { readBody } from "../http/request_body.ts";
import { bytesOf, type OfferedModel } from "../model_pool.ts";
import type { Server } from "../service.ts";

/** Distance of an expiry that stands for none, 100 years. */
const FOREVER_MS = 100 * 365 * 86_400_000;

/** Version of Ollama that the endpoints follow; clients check it for features. */
const VERSION = "0.9.6";

export function version(): Response {
  return Response.json({ version: VERSION });
}

/**
 * `GET /api/tags`: lists each name of a model as a model of its own. Files that cannot be read are
 * left out.
 */
export function tags({ models, created }: Server): Response {
  const entries = models.offered.flatMap((offered) => {
    let summary: Summary;
    try {
      summary = summaryOf(offered);
    } catch {
      // A request for the model gets the reason.
      return [];
    }
    const facts = { modified_at: new Date(created * 1000).toISOString(), ...summary };
    return offered.names.map((name) => ({ name, model: name, ...facts }));
  });
  return Response.json({ models: entries });
}

/** `GET /api/ps`: lists the models in memory. */
export function loadedModels({ models }: Server): Response {
  return Response.json({
    models: models.loaded.map((offered) => {
      const { name, model, expiresAt } = offered;
      const size = bytesOf(model);
      return {
        name,
        model: name,
        ...summaryOf(offered),
        size,
        size_vram: model.usesGpu ? size : 0,
        context_length: model.contextLength,
        expires_at: new Date(Math.min(expiresAt, Date.now() + FOREVER_MS)).toISOString(),
      };
    }),
  });
}

/** `POST /api/show`: describes a model by its files, without loading it. */
export async function show(server: Server, request: Request): Promise<Response> {
  const body = await readBody(request);
  checkKeys(body, ["model", "name", "verbose"]);
  const offered = server.findModel({ model: body.model ?? body.name ?? null });
  const checkpoint = offered.model?.checkpoint ?? offered.source.checkpoint();
  const { modelType, chatTemplate = "" } = checkpoint;
  const plan = planModel(checkpoint);
  return Response.json({
    modified_at: new Date(server.created * 1000).toISOString(),
    parameters: "",
    template: chatTemplate,
    details: summaryOf(offered).details,
    model_info: {
      "general.architecture": modelType,
      "general.parameter_count": parameters(checkpoint),
      [`${modelType}.context_length`]: offered.model?.contextLength ?? plan.contextLength,
      [`${modelType}.embedding_length`]: plan.hiddenSize,
    },
    capabilities: capabilities(checkpoint, plan.hasHead),
  });
}

/** Facts that lists of models have. */
interface Summary {
  /** Bytes of the weights in the files. */
  readonly size: number;
  readonly digest: string;
  readonly details: JsonObject;
}

/** Facts about models by their files, which are read once. */
const SUMMARIES = new WeakMap<OfferedModel, Summary>();

function summaryOf(offered: OfferedModel): Summary {
  const known = SUMMARIES.get(offered);
  if (known !== undefined) return known;
  const checkpoint = offered.model?.checkpoint ?? offered.source.checkpoint();
  const { kind, modelType, tensors } = checkpoint;
  const summary = {
    size: [...tensors.values()].reduce((sum, { bytes }) => sum + bytes, 0),
    digest: modelIdentity(checkpoint),
    details: {
      parent_model: "",
      format: kind,
      family: modelType,
      families: [modelType],
      parameter_size: abbreviated(parameters(checkpoint)),
      quantization_level: mainType([...tensors.values()]),
    },
  };
  SUMMARIES.set(offered, summary);
  return summary;
}

function capabilities(checkpoint: Checkpoint, generates: boolean): string[] {
  const { chatTemplate = "" } = checkpoint;
  const thinks = isHarmony(chatTemplate) ||
    findMarks(chatTemplate, openTokenizer(checkpoint)) !== undefined;
  const calls = isHarmony(chatTemplate) || findCallFormat(chatTemplate) !== undefined;
  return [
    ...(generates ? ["completion"] : []),
    "embedding",
    ...(generates && calls ? ["tools"] : []),
    ...(generates && thinks ? ["thinking"] : []),
  ];
}

function parameters({ tensors }: Checkpoint): number {
  return [...tensors.values()]
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
