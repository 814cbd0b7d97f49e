/** `POST /v1/embeddings`: returns the embeddings of texts. */
import type { Embedding } from "../../engine/embedding/embedder.ts";
import { MAX_COUNT } from "../../engine/limits.ts";
import type { JsonObject, JsonValue } from "../../formats/json.ts";
import {
  floatsOf,
  invalid,
  isGiven,
  readNumber,
  readTexts,
  RequestError,
} from "../../requests/values.ts";
import { readAdapters } from "../../requests/options.ts";
import type { Service } from "../service.ts";
import { checkFields } from "./request_fields.ts";

const FIELDS = ["model", "input", "encoding_format", "dimensions", "lora"];

/** Limit of OpenAI's API for the texts of a request. */
const MAX_TEXTS = 2048;

export async function embeddings(
  service: Service,
  request: Request,
  body: JsonObject,
): Promise<Response> {
  checkFields(body, FIELDS);
  const encode = readFormat(body.encoding_format);
  const embedded = await embedInput(service, request, body);
  const items = embedded.map(({ vector }, index) => () =>
    JSON.stringify({ object: "embedding", index, embedding: encode(vector) })
  );
  const tokens = embedded.reduce((sum, embedding) => sum + embedding.tokens, 0);
  const usage = { prompt_tokens: tokens, total_tokens: tokens };
  return listResponse({ object: "list", model: service.name, usage }, "data", items);
}

/**
 * Embeds the `input` of a request with its `dimensions`. Counts as one answer in progress, and
 * stops when the client leaves.
 *
 * @param truncate if set, cuts texts that are too long
 * @throws {RequestError} for an input that is not valid
 * @throws {HttpError} 503 when too many answers are in progress
 */
export async function embedInput(
  service: Service,
  { signal }: Request,
  { input, dimensions, lora: asked }: JsonObject,
  truncate?: boolean,
): Promise<Embedding[]> {
  const texts = readTexts(input, "input");
  if (texts.length > MAX_TEXTS) {
    throw new RequestError(
      `input has ${texts.length} texts; at most ${MAX_TEXTS} are valid`,
      "input",
    );
  }
  const size = isGiven(dimensions)
    ? readNumber(dimensions, "dimensions", 1, MAX_COUNT, true)
    : undefined;
  using _place = service.enter(1);
  const lora = isGiven(asked) ? readAdapters(asked, "lora") : service.defaults.lora;
  return await service.model.embed(texts, { dimensions: size, truncate, lora, signal });
}

/**
 * Responds with an object that has a long list. The list is written one item at a time as the
 * client reads, because all of its text takes several times the memory of the vectors.
 *
 * @param object the other members, at least one
 */
export function listResponse(
  object: JsonObject,
  key: string,
  items: readonly (() => string)[],
): Response {
  const { readable, writable } = new TextEncoderStream();
  const texts = function* () {
    yield `${JSON.stringify(object).slice(0, -1)},${JSON.stringify(key)}:[`;
    for (const [i, item] of items.entries()) yield (i === 0 ? "" : ",") + item();
    yield "]}";
  };
  // Fails if the client leaves before the end.
  ReadableStream.from(texts()).pipeTo(writable).catch(() => {});
  return new Response(readable, { headers: { "content-type": "application/json" } });
}

/** Encodes a vector for a response. */
type Encode = (vector: Float32Array) => JsonValue;

function readFormat(format: JsonValue | undefined): Encode {
  if (!isGiven(format) || format === "float") return floatsOf;
  if (format === "base64") return toBase64;
  throw invalid("encoding_format", format, '"float" or "base64"');
}

/** Returns the little-endian bytes of the floats in base64. */
function toBase64(vector: Float32Array): string {
  const view = new DataView(new ArrayBuffer(4 * vector.length));
  vector.forEach((value, i) => view.setFloat32(4 * i, value, true));
  return new Uint8Array(view.buffer).toBase64();
}
