/** From a line of a batch file to a request. */
import type { ForgeError } from "../errors.ts";
import {
  findDuplicateKey,
  isJsonObject,
  type JsonObject,
  type JsonValue,
  kindOf,
  parseJsonObject,
} from "../formats/json.ts";
import { quote } from "../formats/quote.ts";
import type {
  BatchId,
  BatchRequest,
  ChatMessage,
  ConstraintOptions,
  GenerateOptions,
  Prompt,
} from "../mod.ts";
import {
  bad,
  FIELD_ALIASES,
  invalid,
  isGiven,
  OPTION_FIELDS,
  readOptions,
  string,
} from "./batch_fields.ts";
import { nearestName } from "./suggest.ts";

/** Keys of a request beside the options. `model` is what clients send; the loaded model answers. */
const FIELDS = ["id", "prompt", "messages", "model", ...OPTION_FIELDS];

/** Keys of a line for OpenAI's batch API. */
const ENVELOPE_FIELDS = ["custom_id", "method", "url", "body"];

const CHAT_URL = "/v1/chat/completions";
const TEXT_URL = "/v1/completions";

/** A line's constraint is in place of the one for all lines, whichever kind that is. */
const NO_CONSTRAINT: Required<ConstraintOptions> = {
  jsonSchema: undefined,
  jsonObject: undefined,
  regex: undefined,
  grammar: undefined,
};
const CONSTRAINT_FIELDS = ["json_schema", "json_object", "regex", "grammar", "response_format"];

/** A line as JSON, and the name it is answered under. */
export interface BatchEntry {
  readonly id: BatchId;
  readonly line: JsonObject;
}

/**
 * Parses a line as far as its id.
 *
 * @param number of the line, from 1; its id when it has none
 * @throws {ForgeError} `bad_input` for what is no JSON object, has a key twice, or a wrong id
 */
export function parseEntry(text: string, number: number): BatchEntry {
  let line: JsonObject;
  try {
    line = parseJsonObject(text, `line ${number}`);
  } catch (error) {
    throw bad((error as ForgeError).message);
  }
  const twice = findDuplicateKey(text);
  if (twice !== undefined) throw bad(`the key ${quote(twice)} is there twice`);
  const name = line.custom_id === undefined ? "id" : "custom_id";
  const id = line[name] ?? number;
  if (typeof id === "string" || Number.isSafeInteger(id)) return { id: id as BatchId, line };
  throw invalid(name, id, "a text or a whole number up to 2^53 - 1");
}

/**
 * The request of a line: either plain or in the envelope of OpenAI's batch API.
 *
 * @param defaults the options where the line sets none
 * @throws {ForgeError} `bad_input`, naming the key, its value and what is valid
 */
export function readRequest({ id, line }: BatchEntry, defaults: GenerateOptions): BatchRequest {
  const isEnvelope = line.body !== undefined || line.custom_id !== undefined;
  const [fields, implied] = isEnvelope ? openEnvelope(line) : [line, {}];
  checkKeys(fields, isEnvelope ? FIELDS.filter((name) => name !== "id") : FIELDS);
  if (isGiven(fields.model)) string(fields.model, "model");
  const own = readOptions(fields);
  const constraints = CONSTRAINT_FIELDS.filter((name) => isGiven(fields[name]));
  if (constraints.length > 1) throw bad(`give ${constraints.join(" or ")}, not both`);
  const inherited = constraints.length > 0 ? { ...defaults, ...NO_CONSTRAINT } : defaults;
  return { ...inherited, ...implied, ...own, id, prompt: readPrompt(fields) };
}

function openEnvelope(line: JsonObject): [body: JsonObject, implied: GenerateOptions] {
  checkKeys(line, ENVELOPE_FIELDS);
  const { custom_id, method, url, body } = line;
  if (!isGiven(custom_id)) throw bad("custom_id is missing; a body needs it beside it");
  if (method !== undefined && method !== "POST") throw invalid("method", method, '"POST"');
  if (url !== undefined && url !== CHAT_URL && url !== TEXT_URL) {
    throw invalid("url", url, `"${CHAT_URL}" or "${TEXT_URL}"`);
  }
  if (!isJsonObject(body)) throw invalid("body", body, "an object");
  // The API for texts continues them as they are.
  return [body, url === TEXT_URL ? { raw: true } : {}];
}

function checkKeys(line: JsonObject, known: readonly string[]): void {
  const unknown = Object.keys(line).find((name) => !known.includes(name));
  if (unknown === undefined) return;
  const nearest = nearestName(unknown, known, FIELD_ALIASES);
  const advice = nearest === undefined
    ? `valid are ${known.join(", ")}`
    : `did you mean ${nearest}?`;
  throw bad(`unknown key ${quote(unknown)}; ${advice}`);
}

function readPrompt({ prompt, messages }: JsonObject): Prompt {
  if (isGiven(prompt) === isGiven(messages)) {
    throw bad(
      isGiven(prompt) ? "give prompt or messages, not both" : "prompt or messages is missing",
    );
  }
  if (isGiven(messages)) return readMessages(messages);
  if (typeof prompt === "string") return prompt;
  const isIds = Array.isArray(prompt) &&
    prompt.every((id) => typeof id === "number" && Number.isInteger(id) && id >= 0 && id < 2 ** 31);
  if (isIds) return Int32Array.from(prompt as number[]);
  throw invalid("prompt", prompt, "a text or a list of token ids");
}

/**
 * The messages of a conversation.
 *
 * @throws {ForgeError} `bad_input`
 */
export function readMessages(value: JsonValue | undefined): ChatMessage[] {
  if (!Array.isArray(value) || value.length === 0) {
    throw invalid("messages", value, "a list of at least one message");
  }
  return value.map((message, i) => {
    const name = `messages[${i}]`;
    if (!isJsonObject(message)) throw invalid(name, message, "an object with role and content");
    const { role, content } = message;
    if (typeof role !== "string" || role === "") {
      throw invalid(`${name}.role`, role, 'a text such as "user"');
    }
    return { ...message, role, content: readContent(content, `${name}.content`) };
  });
}

/** A text, or the list of text parts that OpenAI's API takes as well. */
function readContent(content: JsonValue | undefined, name: string): string {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) throw invalid(name, content, "a text or a list of text parts");
  return content.map((part, i) => {
    if (isJsonObject(part) && part.type === "text" && typeof part.text === "string") {
      return part.text;
    }
    const kind = isJsonObject(part) && typeof part.type === "string"
      ? quote(part.type)
      : kindOf(part);
    throw bad(`${name}[${i}] is ${kind}; valid is {"type": "text", "text": …}`);
  }).join("");
}
