/** Parsing of batch lines into requests. */
import { isJsonObject, type JsonObject } from "../../formats/json.ts";
import type { BatchId, BatchRequest, GenerateOptions, Prompt } from "../../mod.ts";
import { readMessages } from "../../requests/messages.ts";
import { FIELD_ALIASES, OPTION_FIELDS, readOptions } from "../../requests/options.ts";
import { parseRequest } from "../../requests/parse.ts";
import {
  checkKeys,
  invalid,
  isGiven,
  isTokenIds,
  readString,
  RequestError,
} from "../../requests/values.ts";

/** Keys of a request. `model` is accepted because clients send it; the loaded model answers. */
const FIELDS = ["id", "prompt", "messages", "model", ...OPTION_FIELDS];

/** Keys of a line of OpenAI's batch API. */
const ENVELOPE_FIELDS = ["custom_id", "method", "url", "body"];

const CHAT_URL = "/v1/chat/completions";
const TEXT_URL = "/v1/completions";

/** A parsed line, with the id of its answer. */
interface BatchEntry {
  readonly id: BatchId;
  readonly line: JsonObject;
}

/**
 * Parses a line and reads its id.
 *
 * @param number line number from 1; the id of a line without one
 * @throws {ForgeError} `bad_input` if the line is not a JSON object, has a duplicate key or an
 * invalid id
 */
export function parseEntry(text: string, number: number): BatchEntry {
  const line = parseRequest(text, `line ${number}`);
  const name = line.custom_id === undefined ? "id" : "custom_id";
  const id = line[name] ?? number;
  if (typeof id === "string" || Number.isSafeInteger(id)) return { id: id as BatchId, line };
  throw invalid(name, id, "a text or a whole number up to 2^53 - 1");
}

/**
 * Reads the request of a line, which may be in the envelope of OpenAI's batch API.
 *
 * @param defaults options where the line sets none
 * @throws {ForgeError} `bad_input`, naming the key, its value and the valid values
 */
export function readRequest({ id, line }: BatchEntry, defaults: GenerateOptions): BatchRequest {
  const isEnvelope = line.body !== undefined || line.custom_id !== undefined;
  const [fields, implied] = isEnvelope ? openEnvelope(line) : [line, {}];
  checkKeys(
    fields,
    isEnvelope ? FIELDS.filter((name) => name !== "id") : FIELDS,
    FIELD_ALIASES,
  );
  if (isGiven(fields.model)) readString(fields.model, "model");
  const options = readOptions(fields, { ...defaults, ...implied });
  return { ...options, id, prompt: readPrompt(fields) };
}

function openEnvelope(line: JsonObject): [body: JsonObject, implied: GenerateOptions] {
  checkKeys(line, ENVELOPE_FIELDS);
  const { custom_id, method, url, body } = line;
  if (!isGiven(custom_id)) {
    throw new RequestError("custom_id is missing; a line with a body needs it");
  }
  if (method !== undefined && method !== "POST") throw invalid("method", method, '"POST"');
  if (url !== undefined && url !== CHAT_URL && url !== TEXT_URL) {
    throw invalid("url", url, `"${CHAT_URL}" or "${TEXT_URL}"`);
  }
  if (!isJsonObject(body)) throw invalid("body", body, "an object");
  // The completions API continues texts without a template.
  return [body, url === TEXT_URL ? { raw: true } : {}];
}

function readPrompt({ prompt, messages }: JsonObject): Prompt {
  if (isGiven(prompt) === isGiven(messages)) {
    throw new RequestError(
      isGiven(prompt) ? "give prompt or messages, not both" : "prompt or messages is missing",
    );
  }
  if (isGiven(messages)) return readMessages(messages);
  if (typeof prompt === "string") return prompt;
  if (isTokenIds(prompt)) return Int32Array.from(prompt);
  throw invalid("prompt", prompt, "a text or a list of token ids");
}
