import { ForgeError } from "../errors.ts";
import { InputFile } from "./file.ts";
import { LIMITS } from "./limits.ts";
import { quote } from "./quote.ts";

/** Any JSON value. */
export type JsonValue = null | boolean | number | string | JsonValue[] | JsonObject;

/** A JSON object. An absent key reads as `undefined`. */
export interface JsonObject {
  /** The value of each key. */
  [key: string]: JsonValue | undefined;
}

/** True if `value` is a JSON object (not `null`, not an array). */
export function isJsonObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * Reads the JSON object in a file.
 *
 * @param maxBytes maximum size of the file
 * @throws {ForgeError} `not_found` if the file cannot be read; `bad_model` if it is empty, larger
 * than `maxBytes`, not UTF-8, not JSON, or not an object
 */
export function readJsonObject(path: string, maxBytes: number = LIMITS.jsonBytes): JsonObject {
  return asJsonObject(parseJsonBytes(readBytes(path, maxBytes), quote(path)), quote(path));
}

/**
 * Reads the JSON object in a file that Python may have written: bare `Infinity` and `NaN` become
 * `{"__float__": "Infinity"}`, as transformers writes them since version 5.
 *
 * @throws {ForgeError} as {@linkcode readJsonObject}
 */
export function readPythonObject(path: string, maxBytes: number = LIMITS.jsonBytes): JsonObject {
  return parseJsonObject(withoutBareFloats(readText(path, maxBytes)), quote(path));
}

function withoutBareFloats(text: string): string {
  const bareFloat = /-?Infinity|NaN/y;
  let result = "", copied = 0, isString = false;
  for (let i = 0; i < text.length; i++) {
    const char = text[i];
    if (char === '"') isString = !isString;
    if (isString && char === "\\") i++;
    if (isString || (char !== "I" && char !== "-" && char !== "N")) continue;
    bareFloat.lastIndex = i;
    const [found] = bareFloat.exec(text) ?? [];
    if (found === undefined) continue;
    result += `${text.slice(copied, i)}{"__float__":"${found}"}`;
    copied = i + found.length;
    i = copied - 1;
  }
  return result + text.slice(copied);
}

/**
 * Reads the JSON array in a file.
 *
 * @param maxBytes maximum size of the file
 * @throws {ForgeError} as {@linkcode readJsonObject}, for values other than arrays
 */
export function readJsonList(path: string, maxBytes: number = LIMITS.jsonBytes): JsonValue[] {
  const value = parseJsonBytes(readBytes(path, maxBytes), quote(path));
  if (Array.isArray(value)) return value;
  throw new ForgeError("bad_model", `${quote(path)} holds ${kindOf(value)}, not a JSON array`);
}

/**
 * Reads a UTF-8 text file.
 *
 * @throws {ForgeError} as `readJsonObject`.
 */
export function readText(path: string, maxBytes: number = LIMITS.jsonBytes): string {
  return decodeUtf8(readBytes(path, maxBytes), quote(path));
}

function readBytes(path: string, maxBytes: number): Uint8Array<ArrayBuffer> {
  using file = InputFile.open(path);
  if (file.size > maxBytes) {
    throw new ForgeError(
      "bad_model",
      `${quote(path)} has ${file.size} bytes; at most ${maxBytes} are read`,
    );
  }
  const bytes = new Uint8Array(file.size);
  file.readAt(0, bytes);
  return bytes;
}

/**
 * Decodes UTF-8 and rejects invalid bytes.
 *
 * @param source names the bytes in errors
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
 * @param source names the text in errors
 * @throws {ForgeError} as {@linkcode parseJson}, and for values other than objects
 */
export function parseJsonObject(text: string, source: string): JsonObject {
  return asJsonObject(parseJson(text, source), source);
}

/** @throws {ForgeError} `bad_model` if the value is not an object */
export function asJsonObject(value: JsonValue, source: string): JsonObject {
  if (isJsonObject(value)) return value;
  throw new ForgeError("bad_model", `${source} holds ${kindOf(value)}, not a JSON object`);
}

/**
 * Parses any JSON value.
 *
 * @param source names the text in errors
 * @throws {ForgeError} `bad_model`, with the parser's position if it reports one, and for a text
 * above {@linkcode LIMITS}
 */
export function parseJson(text: string, source: string): JsonValue {
  checkJsonShape(new TextEncoder().encode(text), source);
  return parseChecked(text, source);
}

/** Parses UTF-8 as {@linkcode parseJson} does. */
export function parseJsonBytes(bytes: Uint8Array<ArrayBuffer>, source: string): JsonValue {
  checkJsonShape(bytes, source);
  return parseChecked(decodeUtf8(bytes, source), source);
}

function parseChecked(text: string, source: string): JsonValue {
  try {
    return JSON.parse(text);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new ForgeError("bad_model", `${source} is not valid JSON: ${oneLine(reason)}`);
  }
}

const QUOTE = 0x22, COMMA = 0x2c, BACKSLASH = 0x5c, OPENING = 0x7b, CLOSING = 0x7d;

/** The only bit in which "[" and "]" differ from "{" and "}". */
const BRACKET_BIT = 0x20;

/**
 * Counts the values of a JSON text before it is parsed. An empty array takes 2 bytes of text and 40
 * of memory, a nested one 60 and more.
 */
function checkJsonShape(bytes: Uint8Array, source: string): void {
  let depth = 0, deepest = 0, containers = 0, values = 1;
  for (let at = 0; at < bytes.length;) {
    const byte = bytes[at++]!;
    if (byte === QUOTE) {
      while (at < bytes.length) {
        const inside = bytes[at++]!;
        if (inside === QUOTE) break;
        if (inside === BACKSLASH) at++;
      }
    } else if (byte === COMMA) {
      values++;
    } else if ((byte | BRACKET_BIT) === OPENING) {
      containers++;
      if (++depth > deepest) deepest = depth;
    } else if ((byte | BRACKET_BIT) === CLOSING) {
      depth--;
    }
  }
  const { jsonDepth, jsonContainers, jsonValues } = LIMITS;
  const reject = (what: string, most: number) => {
    throw new ForgeError("bad_model", `${source} ${what}; at most ${most} are read`);
  };
  if (deepest > jsonDepth) reject(`nests ${deepest} arrays and objects`, jsonDepth);
  if (containers > jsonContainers) reject(`has ${containers} arrays and objects`, jsonContainers);
  if (values > jsonValues) reject(`has ${values} values`, jsonValues);
}

/**
 * Returns the first duplicate key in the outermost object of `text`, which must be valid JSON.
 * `JSON.parse` silently keeps the last value.
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
  if (value === undefined) return "missing";
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  return typeof value === "object" ? "an object" : `a ${typeof value}`;
}

function oneLine(text: string): string {
  return text.replace(/\p{Cc}+/gu, " ");
}
