/** `POST /api/chat` and `POST /api/generate`. */
import { isJsonObject, type JsonObject, type JsonValue } from "../../formats/json.ts";
import { readMessages } from "../../requests/messages.ts";
import { invalid, isGiven, readBoolean, readString } from "../../requests/values.ts";
import type { ChatMessage } from "../../tokenizer/chat_template.ts";
import { Answer } from "../answer.ts";
import { ContentReader } from "../chat/call_reader.ts";
import type { Dialect } from "../chat/dialect.ts";
import { resolveDialect } from "../chat/resolve_dialect.ts";
import { readTools, type ToolUse } from "../chat/tools.ts";
import { infillPrompt } from "../infill.ts";
import type { Service } from "../service.ts";
import { readRequest } from "./endpoint.ts";
import { type Contents, type ContentsForm, line, NOTHING, OllamaFormat } from "./format.ts";
import { readSettings, type Settings } from "./options.ts";

const COMMON = ["format", "options", "stream", "think", "keep_alive"];

/** Unsupported keys of `/api/generate`, which may be empty. */
const EMPTY = ["template", "images", "context"];

/** Answers a conversation. */
export async function chat(service: Service, request: Request): Promise<Response> {
  const body = await readRequest(service, request, [...COMMON, "messages", "tools"]);
  const settings = readSettings(service, body);
  if (Array.isArray(body.messages) && body.messages.length === 0) {
    return loaded(service, messageForm);
  }
  const messages = readOllamaMessages(body.messages);
  return await respond(service, request, messages, settings, messageForm, readTools(body));
}

/** Answers a prompt as a conversation of one message, or continues it with `raw`. */
export async function generate(service: Service, request: Request): Promise<Response> {
  const body = await readRequest(service, request, [
    ...[...COMMON, ...EMPTY],
    ...["prompt", "suffix", "system", "raw"],
  ]);
  for (const name of EMPTY) checkEmpty(body[name], name);
  const settings = readSettings(service, body);
  const prompt = isGiven(body.prompt) ? readString(body.prompt, "prompt") : "";
  if (prompt === "") return loaded(service, responseForm);
  const system = isGiven(body.system) && body.system !== ""
    ? readString(body.system, "system")
    : undefined;
  if (isGiven(body.suffix) && body.suffix !== "") {
    const suffix = readString(body.suffix, "suffix");
    const infill = await infillPrompt(service, prompt, suffix, request.signal);
    return await respond(service, request, infill, settings, responseForm);
  }
  const isRaw = isGiven(body.raw) && readBoolean(body.raw, "raw");
  if (isRaw || !service.model.hasChatTemplate) {
    const options = { ...settings.options, system, raw: true };
    return await respond(service, request, prompt, { ...settings, options }, responseForm);
  }
  const messages = [
    ...(system === undefined ? [] : [{ role: "system", content: system }]),
    { role: "user", content: prompt },
  ];
  return await respond(service, request, messages, settings, responseForm);
}

/** @param prompt a conversation, or a text or tokens to continue */
async function respond(
  service: Service,
  request: Request,
  prompt: string | Int32Array | readonly ChatMessage[],
  { options, isStream }: Settings,
  form: ContentsForm,
  use?: ToolUse,
): Promise<Response> {
  const { model } = service;
  using answer = new Answer(service, 1);
  const dialect: Dialect = typeof prompt === "string" || prompt instanceof Int32Array
    ? { options, newReader: () => new ContentReader() }
    : await resolveDialect(model, { messages: prompt, options, use }, service.enforceable);
  const { promptTokens, pieces } = await model.generateMany(prompt, 1, {
    ...dialect.options,
    signal: answer.signal,
  });
  const format = new OllamaFormat(service, dialect.newReader(promptTokens), form);
  return await answer.respond(request, pieces, format, isStream);
}

function messageForm({ content, thinking, calls }: Contents): JsonObject {
  return {
    message: {
      role: "assistant",
      content,
      ...(thinking === "" ? {} : { thinking }),
      ...(calls.length === 0 ? {} : { tool_calls: [...calls] }),
    },
  };
}

function responseForm({ content, thinking }: Contents): JsonObject {
  return { response: content, ...(thinking === "" ? {} : { thinking }) };
}

/** Responds to an empty request, which loads the model in Ollama; here it is always loaded. */
function loaded(service: Service, form: ContentsForm): Response {
  return Response.json(line(service, { ...form(NOTHING), done: true, done_reason: "load" }));
}

/** Reads messages and renames Ollama's keys to those of templates. */
function readOllamaMessages(value: JsonValue | undefined): ChatMessage[] {
  if (!Array.isArray(value)) throw invalid("messages", value, "a list of messages");
  return readMessages(value.map((message, i) => {
    if (!isJsonObject(message)) return message;
    const { images, thinking, tool_name, ...rest } = message;
    checkEmpty(images, `messages[${i}].images`);
    return {
      ...rest,
      ...(isGiven(thinking) ? { reasoning_content: thinking } : {}),
      ...(isGiven(tool_name) ? { name: tool_name } : {}),
    };
  }));
}

/** @throws {RequestError} if the value of an unsupported key is not empty */
function checkEmpty(value: JsonValue | undefined, name: string): void {
  if (!isGiven(value) || value === "" || (Array.isArray(value) && value.length === 0)) return;
  throw invalid(name, value, "an empty value: forge does not support it");
}
