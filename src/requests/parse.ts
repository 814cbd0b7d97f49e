import { ForgeError } from "../errors.ts";
import { findDuplicateKey, type JsonObject, parseJsonObject } from "../formats/json.ts";
import { quote } from "../formats/quote.ts";
import { RequestError } from "./values.ts";

/** Limit of nesting. Schemas nest deepest; deeper values would make recursive readers slow. */
const MAX_NESTING = 200;

/**
 * Parses the JSON text of a request, or of an object within a request.
 *
 * @param source name of the text in errors
 * @throws {RequestError} if the text is not a JSON object, nests too deeply, or has a duplicate key
 */
export function parseRequest(text: string, source: string): JsonObject {
  if (nestsDeeperThan(text, MAX_NESTING)) {
    throw new RequestError(
      `${source} nests deeper than ${MAX_NESTING} levels, the limit`,
    );
  }
  const request = parseObject(text, source);
  const twice = findDuplicateKey(text);
  if (twice === undefined) return request;
  throw new RequestError(`duplicate key ${quote(twice)}`, twice);
}

function parseObject(text: string, source: string): JsonObject {
  try {
    return parseJsonObject(text, source);
  } catch (error) {
    if (error instanceof ForgeError) throw new RequestError(error.message);
    throw error;
  }
}

/** True if arrays and objects nest deeper than `most` levels. The text need not be valid JSON. */
function nestsDeeperThan(text: string, most: number): boolean {
  let depth = 0;
  for (let at = 0; at < text.length; at++) {
    const character = text[at];
    if (character === '"') {
      at++;
      while (at < text.length && text[at] !== '"') at += text[at] === "\\" ? 2 : 1;
    } else if (character === "{" || character === "[") {
      if (++depth > most) return true;
    } else if (character === "}" || character === "]") {
      depth--;
    }
  }
  return false;
}
