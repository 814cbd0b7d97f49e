/** Values of a request's keys, and errors about them. */
import { ForgeError } from "../errors.ts";
import { isJsonObject, type JsonObject, type JsonValue, kindOf } from "../formats/json.ts";
import { quote } from "../formats/quote.ts";
import { nearestName } from "../formats/suggest.ts";

/** Error of a request, with the code `bad_input`. */
export class RequestError extends ForgeError {
  /** Key that is wrong, such as `messages[0].content`. */
  readonly key: string | undefined;

  constructor(message: string, key?: string) {
    super("bad_input", message);
    this.key = key;
  }
}

/** Returns the error for an invalid value. @param valid description of valid values */
export function invalid(name: string, value: JsonValue | undefined, valid: string): RequestError {
  const shown = typeof value === "string"
    ? quote(value)
    : typeof value === "number" || typeof value === "boolean"
    ? String(value)
    : Array.isArray(value) && value.length === 0
    ? "an empty array"
    : kindOf(value);
  return new RequestError(`${name} is ${shown}; valid is ${valid}`, name);
}

/** True if a key is present and not `null`. */
export function isGiven(value: JsonValue | undefined): value is Exclude<JsonValue, null> {
  return value !== undefined && value !== null;
}

/**
 * Rejects unknown keys.
 *
 * @param aliases keys of other programs, and the known keys for them
 * @throws {RequestError} naming the key and the nearest known one
 */
export function checkKeys(
  object: JsonObject,
  known: readonly string[],
  aliases: Readonly<Record<string, string>> = {},
): void {
  const unknown = Object.keys(object).find((name) => !known.includes(name));
  if (unknown === undefined) return;
  const nearest = nearestName(unknown, known, aliases);
  const advice = nearest === undefined
    ? `valid are ${known.join(", ")}`
    : `did you mean ${nearest}?`;
  throw new RequestError(`unknown key ${quote(unknown)}; ${advice}`, unknown);
}

/** @throws {RequestError} */
export function readNumber(
  value: JsonValue | undefined,
  name: string,
  min: number,
  max: number,
  integer: boolean,
): number {
  if (
    typeof value === "number" && value >= min && value <= max &&
    (!integer || Number.isInteger(value))
  ) return value;
  throw invalid(name, value, `${integer ? "a whole number" : "a number"} from ${min} to ${max}`);
}

/** @throws {RequestError} */
export function readString(value: JsonValue | undefined, name: string): string {
  if (typeof value === "string") return value;
  throw invalid(name, value, "a text");
}

/** @throws {RequestError} */
export function readBoolean(value: JsonValue | undefined, name: string): boolean {
  if (typeof value === "boolean") return value;
  throw invalid(name, value, "true or false");
}

/** @throws {RequestError} */
export function readObject(value: JsonValue | undefined, name: string): JsonObject {
  if (isJsonObject(value)) return value;
  throw invalid(name, value, "an object");
}

/** True for a list of token ids. The model checks their range. */
export function isTokenIds(value: JsonValue | undefined): value is number[] {
  return Array.isArray(value) &&
    value.every((id) => typeof id === "number" && Number.isInteger(id) && id >= 0 && id < 2 ** 31);
}

/** A text, or token ids. */
type RequestText = string | Int32Array;

/**
 * Reads a text, token ids, or a list of either.
 *
 * @param name key, for errors
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

/** Returns floats for JSON, with enough digits to distinguish float32 neighbours. */
export function floatsOf(vector: Float32Array): number[] {
  return Array.from(vector, (value) => Number(value.toPrecision(9)));
}
