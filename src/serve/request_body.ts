import { ForgeError } from "../errors.ts";
import { decodeUtf8, type JsonObject } from "../formats/json.ts";
import { quote } from "../formats/quote.ts";
import { parseRequest } from "../requests/parse.ts";
import { RequestError } from "../requests/values.ts";
import { HttpError } from "./http_error.ts";

/** The longest body that is read, as the longest line of a batch. */
const MAX_BODY_BYTES = 16 * 2 ** 20;

/**
 * Reads the JSON object of a request.
 *
 * @throws {HttpError} 413 when it is too long, 415 when it is compressed
 * @throws {RequestError} as {@linkcode parseRequest}
 */
export async function readBody(request: Request): Promise<JsonObject> {
  const encoding = request.headers.get("content-encoding") ?? "identity";
  if (encoding !== "identity") {
    throw new HttpError(415, `the body's encoding is ${quote(encoding)}; valid is none`);
  }
  const text = await readText(request);
  if (text === "") throw new RequestError("the body is empty; valid is a JSON object");
  return parseRequest(text, "the body");
}

async function readText(request: Request): Promise<string> {
  const bytes = await readBytes(request);
  try {
    return decodeUtf8(bytes, "the body");
  } catch (error) {
    if (error instanceof ForgeError) throw new RequestError(error.message);
    throw error;
  }
}

async function readBytes({ headers, body }: Request): Promise<Uint8Array<ArrayBuffer>> {
  if (Number(headers.get("content-length")) > MAX_BODY_BYTES) throw tooLong();
  const chunks: Uint8Array<ArrayBuffer>[] = [];
  let size = 0;
  for await (const chunk of body ?? []) {
    size += chunk.length;
    if (size > MAX_BODY_BYTES) throw tooLong();
    chunks.push(chunk);
  }
  const bytes = new Uint8Array(size);
  let at = 0;
  for (const chunk of chunks) {
    bytes.set(chunk, at);
    at += chunk.length;
  }
  return bytes;
}

function tooLong(): HttpError {
  return new HttpError(
    413,
    `the body has more than ${MAX_BODY_BYTES} bytes, the most that is read`,
  );
}
