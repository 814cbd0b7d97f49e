/**
 * `POST /v1/rerank`, `/v2/rerank` and `/rerank`: orders documents by how well they answer a query,
 * with the keys of Jina's and Cohere's APIs.
 */
import { MAX_COUNT } from "../../engine/limits.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../../formats/json.ts";
import { readAdapters } from "../../requests/options.ts";
import {
  invalid,
  isGiven,
  readBoolean,
  readNumber,
  readString,
  RequestError,
} from "../../requests/values.ts";
import type { Service } from "../service.ts";
import { checkFields } from "./request_fields.ts";

const FIELDS = [
  "model",
  "query",
  "documents",
  "top_n",
  "return_documents",
  "instruction",
  "truncate",
  "max_tokens_per_doc",
  // Answers are computed in the order of their arrival.
  "priority",
  "lora",
];

/** Limit of Cohere's and Jina's APIs for the documents of a request. */
const MAX_DOCUMENTS = 1000;

export async function rerank(
  service: Service,
  { signal }: Request,
  body: JsonObject,
): Promise<Response> {
  checkFields(body, FIELDS);
  const query = readString(body.query, "query");
  const documents = readDocuments(body.documents);
  const { top_n, return_documents, instruction, truncate, max_tokens_per_doc, lora } = body;
  const top = isGiven(top_n) ? readNumber(top_n, "top_n", 1, MAX_COUNT, true) : undefined;
  const returnsText = isGiven(return_documents) &&
    readBoolean(return_documents, "return_documents");
  using _place = service.enter(1);
  const scores = await service.model.rerank(query, documents, {
    instruction: isGiven(instruction) ? readString(instruction, "instruction") : undefined,
    truncate: isGiven(truncate) ? readBoolean(truncate, "truncate") : undefined,
    maxDocumentTokens: isGiven(max_tokens_per_doc)
      ? readNumber(max_tokens_per_doc, "max_tokens_per_doc", 1, MAX_COUNT, true)
      : undefined,
    lora: isGiven(lora) ? readAdapters(lora, "lora") : service.defaults.lora,
    signal,
  });
  const tokens = scores.reduce((sum, score) => sum + score.tokens, 0);
  const best = scores.toSorted((a, b) => b.logit - a.logit).slice(0, top);
  return Response.json({
    id: `rerank-${crypto.randomUUID()}`,
    object: "list",
    model: service.name,
    usage: { prompt_tokens: tokens, total_tokens: tokens },
    results: best.map(({ index, score }) => ({
      index,
      relevance_score: score,
      ...(returnsText ? { document: { text: documents[index]! } } : {}),
    })),
  });
}

/** Reads texts, or objects with a text. */
function readDocuments(value: JsonValue | undefined): string[] {
  const valid = "a list of texts, or of objects with a text";
  if (!Array.isArray(value) || value.length === 0) throw invalid("documents", value, valid);
  if (value.length > MAX_DOCUMENTS) {
    throw new RequestError(
      `documents has ${value.length} texts; at most ${MAX_DOCUMENTS} are valid`,
      "documents",
    );
  }
  return value.map((document, i) => {
    const text = isJsonObject(document) ? document.text : document;
    if (typeof text === "string") return text;
    throw invalid(`documents[${i}]`, document, "a text, or an object with a text");
  });
}
