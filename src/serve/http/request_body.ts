import { ForgeError } from "../../errors.ts";
import { decodeUtf8, type JsonObject } from "../../formats/json.ts";
import { quote } from "../../formats/quote.ts";
import { parseRequest } from "../../requests/parse.ts";
import { RequestError } from "../../requests/values.ts";
import { HttpError } from "./http_error.ts";

/** Limit of a body, as of a line of a batch. */
const MAX_BODY_BYTES = 16 * 2 ** 20;

/** Time in which a body must arrive. */
const BODY_TIMEOUT_MS = 30_000;

/**
 * Reads the JSON object in the body of a request.
 *
 * @throws {HttpError} 408 if it does not arrive in time, 413 if it is too long, 415 if it is
 * compressed
 * @throws {RequestError} as {@linkcode parseRequest}
 */
export async function readBody(
  request: Request,
  timeoutMs: number = BODY_TIMEOUT_MS,
): Promise<JsonObject> {
  const encoding = request.headers.get("content-encoding") ?? "identity";
  if (encoding !== "identity") {
    throw new HttpError(
      415,
      `the body has the content encoding ${quote(encoding)}; valid is identity`,
    );
  }
  const text = await readText(request, timeoutMs);
  if (text === "") throw new RequestError("the body is empty; valid is a JSON object");
  return parseRequest(text, "the body");
}

async function readText(request: Request, timeoutMs: number): Promise<string> {
  const bytes = await readBytes(request, timeoutMs);
  try {
    return decodeUtf8(bytes, "the body");
  } catch (error) {
    if (error instanceof ForgeError) throw new RequestError(error.message);
    throw error;
  }
}

async function readBytes(
  { headers, body }: Request,
  timeoutMs: number,
): Promise<Uint8Array<ArrayBuffer>> {
  if (Number(headers.get("content-length")) > MAX_BODY_BYTES) throw tooLong();
  const chunks: Uint8Array<ArrayBuffer>[] = [];
  let size = 0;
  const reader = body?.getReader();
  let isLate = false;
  const timer = setTimeout(() => {
    isLate = true;
    reader?.cancel().catch(() => {});
  }, timeoutMs);
  try {
    for (;;) {
      const { done, value } = await reader?.read() ?? { done: true };
      if (isLate) throw tooLate(timeoutMs);
      if (done) break;
      size += value.length;
      if (size > MAX_BODY_BYTES) throw tooLong();
      chunks.push(value);
    }
  } catch (error) {
    if (isLate) throw tooLate(timeoutMs);
    if (error instanceof HttpError) throw error;
    // The client left, or its chunks are malformed.
    throw new RequestError("the body ended before it was complete");
  } finally {
    clearTimeout(timer);
    reader?.cancel().catch(() => {});
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
    `the body has more than ${MAX_BODY_BYTES} bytes, the limit`,
  );
}

function tooLate(timeoutMs: number): HttpError {
  return new HttpError(408, `the body did not arrive within ${timeoutMs / 1000} s`, {
    headers: { connection: "close" },
  });
}
