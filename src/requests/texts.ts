import type { JsonValue } from "../formats/json.ts";
import { invalid, isTokenIds } from "./values.ts";

/** A text, or the ids of its tokens. */
export type RequestText = string | Int32Array;

/**
 * Reads a text, token ids, or a list of either.
 *
 * @param name the key, for the message
 * @returns at least one
 * @throws {RequestError}
 */
export function readTexts(value: JsonValue | undefined, name: string): RequestText[] {
  if (typeof value === "string") return [value];
  if (Array.isArray(value) && value.length > 0) {
    if (isTokenIds(value)) return [Int32Array.from(value)];
    if (value.every((one) => typeof one === "string")) return value;
    if (value.every((one) => isTokenIds(one))) return value.map((ids) => Int32Array.from(ids));
  }
  throw invalid(name, value, "a text, a list of token ids, or a list of either");
}
