import { ForgeError } from "../errors.ts";
import { findDuplicateKey, type JsonObject, parseJsonObject } from "../formats/json.ts";
import { quote } from "../formats/quote.ts";
import { RequestError } from "./values.ts";

/** Schemas nest the deepest; what nests deeper takes those who read it ever longer. */
const MAX_NESTING = 200;

/**
 * Parses a request, or a part of one that is the text of an object.
 *
 * @param source how an error names the text
 * @throws {RequestError} for what is no JSON object, nests too deeply, or has a key twice
 */
export function parseRequest(text: string, source: string): JsonObject {
  if (nestsDeeperThan(text, MAX_NESTING)) {
    throw new RequestError(
      `${source} nests deeper than ${MAX_NESTING} levels, the most that is read`,
    );
  }
  const request = parseObject(text, source);
  const twice = findDuplicateKey(text);
  if (twice === undefined) return request;
  throw new RequestError(`the key ${quote(twice)} is there twice`, twice);
}

function parseObject(text: string, source: string): JsonObject {
  try {
    return parseJsonObject(text, source);
  } catch (error) {
    if (error instanceof ForgeError) throw new RequestError(error.message);
    throw error;
  }
}

/** Whether arrays and objects stand inside of each other that deeply, in any text. */
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
