/** `POST /api/chat` and `POST /api/generate`. */
import { isJsonObject, type JsonObject, type JsonValue } from "../../formats/json.ts";
import { readMessages } from "../../requests/messages.ts";
import { checkKeys, invalid, isGiven, readBoolean, readString } from "../../requests/values.ts";
import type { ChatMessage } from "../../tokenizer/chat_template.ts";
import { Answer } from "../answer.ts";
import { ContentReader } from "../chat/call_reader.ts";
import type { Dialect } from "../chat/dialect.ts";
import { resolveDialect } from "../chat/resolve_dialect.ts";
import { readTools, type ToolUse } from "../chat/tools.ts";
import { readBody } from "../http/request_body.ts";
import { infillPrompt } from "../infill.ts";
import { readKeepAlive } from "../model_pool.ts";
import type { Server, Service } from "../service.ts";
import { type Contents, type ContentsForm, line, NOTHING, OllamaFormat } from "./format.ts";
import { readSettings, type Settings } from "./options.ts";

const COMMON = ["model", "format", "options", "stream", "think", "keep_alive"];

/** Unsupported keys of `/api/generate`, which may be empty. */
const EMPTY = ["template", "images", "context"];

/** Answers a conversation. An empty one loads or unloads the model. */
export async function chat(server: Server, request: Request): Promise<Response> {
  const body = await readBody(request);
  checkKeys(body, [...COMMON, "messages", "tools"]);
  const isEmpty = Array.isArray(body.messages) && body.messages.length === 0;
  if (isEmpty) return await loadOrUnload(server, body, messageForm);
  using service = await server.open(body);
  const settings = readSettings(service, body);
  const messages = readOllamaMessages(body.messages);
  return await respond(service, request, messages, settings, messageForm, readTools(body));
}

/**
 * Answers a prompt as a conversation of one message, or continues it with `raw`. An empty one loads
 * or unloads the model.
 */
export async function generate(server: Server, request: Request): Promise<Response> {
  const body = await readBody(request);
  checkKeys(body, [...COMMON, ...EMPTY, "prompt", "suffix", "system", "raw"]);
  for (const name of EMPTY) checkEmpty(body[name], name);
  const prompt = isGiven(body.prompt) ? readString(body.prompt, "prompt") : "";
  if (prompt === "") return await loadOrUnload(server, body, responseForm);
  using service = await server.open(body);
  const settings = readSettings(service, body);
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

/** Loads a model, or unloads it if `keep_alive` is 0. Answers in progress end first. */
async function loadOrUnload(
  server: Server,
  body: JsonObject,
  form: ContentsForm,
): Promise<Response> {
  const offered = server.findModel(body);
  const isUnloaded = readKeepAlive(body.keep_alive) === 0;
  if (isUnloaded) {
    const isUnused = offered.users === 0;
    const unloading = server.models.unload(offered).catch((error) => server.onError(error));
    if (isUnused) await unloading;
  } else {
    (await server.open(body))[Symbol.dispose]();
  }
  const reason = { done: true, done_reason: isUnloaded ? "unload" : "load" };
  return Response.json(line(offered, { ...form(NOTHING), ...reason }));
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
