import { ForgeError } from "../errors.ts";
import { InputFile } from "./file.ts";
import { quote } from "./quote.ts";

/** Any value a JSON document can hold. */
export type JsonValue = null | boolean | number | string | JsonValue[] | JsonObject;

/** A JSON object. An absent key reads as `undefined`. */
export interface JsonObject {
  /** The value of each key. */
  [key: string]: JsonValue | undefined;
}

/** Whether `value` is a JSON object (not `null`, not an array). */
export function isJsonObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A tokenizer.json with a vocabulary of 256,000 is about 35 MB. */
const MAX_JSON_BYTES = 256 * 2 ** 20;

/**
 * Reads the JSON object in a file.
 *
 * @param maxBytes the largest file that is read
 * @throws {ForgeError} `not_found` when the file cannot be read; `bad_model` when it is empty, larger
 * than `maxBytes`, not UTF-8, not JSON, or not an object.
 */
export function readJsonObject(path: string, maxBytes = MAX_JSON_BYTES): JsonObject {
  return parseJsonObject(readText(path, maxBytes), quote(path));
}

/**
 * Reads the JSON array in a file.
 *
 * @param maxBytes the largest file that is read
 * @throws {ForgeError} as {@linkcode readJsonObject}, for what is no array
 */
export function readJsonList(path: string, maxBytes = MAX_JSON_BYTES): JsonValue[] {
  const value = parseJson(readText(path, maxBytes), quote(path));
  if (Array.isArray(value)) return value;
  throw new ForgeError("bad_model", `${quote(path)} holds ${kindOf(value)}, not a JSON array`);
}

/**
 * Reads a UTF-8 text file.
 *
 * @throws {ForgeError} as `readJsonObject`.
 */
export function readText(path: string, maxBytes = MAX_JSON_BYTES): string {
  using file = InputFile.open(path);
  if (file.size > maxBytes) {
    throw new ForgeError(
      "bad_model",
      `${quote(path)} has ${file.size} bytes; at most ${maxBytes} are read`,
    );
  }
  const bytes = new Uint8Array(file.size);
  file.readAt(0, bytes);
  return decodeUtf8(bytes, quote(path));
}

/**
 * Decodes UTF-8, refusing what is not.
 *
 * @param source how an error names the bytes
 * @throws {ForgeError} `bad_model`
 */
export function decodeUtf8(bytes: Uint8Array<ArrayBuffer>, source: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new ForgeError("bad_model", `${source} is not UTF-8 text`);
  }
}

/**
 * Parses a JSON object.
 *
 * @param source how an error names the text
 * @throws {ForgeError} `bad_model`, with the parser's position where it gives one.
 */
export function parseJsonObject(text: string, source: string): JsonObject {
  const value = parseJson(text, source);
  if (!isJsonObject(value)) {
    throw new ForgeError("bad_model", `${source} holds ${kindOf(value)}, not a JSON object`);
  }
  return value;
}

/**
 * Parses any JSON value.
 *
 * @param source how an error names the text
 * @throws {ForgeError} `bad_model`, with the parser's position where it gives one.
 */
export function parseJson(text: string, source: string): JsonValue {
  try {
    return JSON.parse(text);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new ForgeError("bad_model", `${source} is not valid JSON: ${oneLine(reason)}`);
  }
}

/**
 * The first key that appears twice in the outermost object of `text`, which must be valid JSON.
 * `JSON.parse` would keep the last of them without a word.
 */
export function findDuplicateKey(text: string): string | undefined {
  const seen = new Set<string>();
  let depth = 0;
  let lastString = "";
  for (let at = 0; at < text.length; at++) {
    const character = text[at];
    if (character === '"') {
      const start = at++;
      while (text[at] !== '"') at += text[at] === "\\" ? 2 : 1;
      if (depth === 1) lastString = text.slice(start, at + 1);
    } else if (character === "{" || character === "[") {
      depth++;
    } else if (character === "}" || character === "]") {
      depth--;
    } else if (character === ":" && depth === 1) {
      const key: string = JSON.parse(lastString);
      if (seen.has(key)) return key;
      seen.add(key);
    }
  }
  return undefined;
}

/** Names the kind of a JSON value for an error message. */
export function kindOf(value: JsonValue | undefined): string {
  if (value === undefined) return "nothing";
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  return typeof value === "object" ? "an object" : `a ${typeof value}`;
}

function oneLine(text: string): string {
  return text.replace(/\p{Cc}+/gu, " ");
}
