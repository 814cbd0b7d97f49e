/** `POST /v1/embeddings`: the vectors of texts. */
import type { Embedding } from "../../engine/embedding/embedder.ts";
import type { EmbedOptions } from "../../engine/embedding/options.ts";
import { MAX_COUNT } from "../../engine/limits.ts";
import type { JsonObject, JsonValue } from "../../formats/json.ts";
import { floatsOf } from "../../requests/floats.ts";
import { readTexts } from "../../requests/texts.ts";
import { invalid, isGiven, readNumber, RequestError } from "../../requests/values.ts";
import { readBody } from "../http/request_body.ts";
import { checkFields } from "./request_fields.ts";
import type { Service } from "../service.ts";

const FIELDS = ["model", "input", "encoding_format", "dimensions"];

/** The most texts of a request; OpenAI's limit. */
export const MAX_TEXTS = 2048;

export async function embeddings(service: Service, request: Request): Promise<Response> {
  const body = await readBody(request);
  checkFields(body, FIELDS);
  service.checkModel(body);
  const texts = readTexts(body.input, "input");
  if (texts.length > MAX_TEXTS) {
    throw new RequestError(
      `input has ${texts.length} texts; at most ${MAX_TEXTS} are valid`,
      "input",
    );
  }
  const encode = readFormat(body.encoding_format);
  const { dimensions } = body;
  const embedded = await embedAll(service, request, texts, {
    dimensions: isGiven(dimensions)
      ? readNumber(dimensions, "dimensions", 1, MAX_COUNT, true)
      : undefined,
  });
  const items = embedded.map(({ vector }, index) => () =>
    JSON.stringify({ object: "embedding", index, embedding: encode(vector) })
  );
  const tokens = embedded.reduce((sum, embedding) => sum + embedding.tokens, 0);
  const usage = { prompt_tokens: tokens, total_tokens: tokens };
  return listResponse({ object: "list", model: service.name, usage }, "data", items);
}

/**
 * An object one of whose keys has a list that may be long: it is written an item at a time, as the client
 * reads, since all of it takes several times the room of the vectors.
 *
 * @param object the other keys, at least one
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
  // The client may go away in the middle.
  ReadableStream.from(texts()).pipeTo(writable).catch(() => {});
  return new Response(readable, { headers: { "content-type": "application/json" } });
}

/**
 * Embeds the texts of a request, which takes the place of one answer, until its client goes away.
 *
 * @throws {HttpError} 503 when too many answers are under way
 */
export async function embedAll(
  service: Service,
  request: Request,
  texts: readonly (string | Int32Array)[],
  options: EmbedOptions,
): Promise<Embedding[]> {
  const leave = service.admission.enter(1);
  try {
    return await service.model.embed(texts, { ...options, signal: request.signal });
  } finally {
    leave();
  }
}

/** How a vector is written. */
type Encode = (vector: Float32Array) => JsonValue;

function readFormat(format: JsonValue | undefined): Encode {
  if (!isGiven(format) || format === "float") return floatsOf;
  if (format === "base64") return inBase64;
  throw invalid("encoding_format", format, '"float" or "base64"');
}

/** The bytes of the floats, the lowest of each first. */
function inBase64(vector: Float32Array): string {
  const view = new DataView(new ArrayBuffer(4 * vector.length));
  vector.forEach((value, i) => view.setFloat32(4 * i, value, true));
  return new Uint8Array(view.buffer).toBase64();
}
