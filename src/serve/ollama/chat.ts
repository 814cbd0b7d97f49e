/** `POST /api/chat` and `POST /api/generate`. */
import type { GenerateOptions } from "../../engine/request/options.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../../formats/json.ts";
import { readMessages } from "../../requests/messages.ts";
import { invalid, isGiven, readBoolean, readString } from "../../requests/values.ts";
import type { ChatMessage } from "../../tokenizer/chat_template.ts";
import { ContentReader } from "../chat/call_reader.ts";
import { settleDialect } from "../chat/resolve_dialect.ts";
import { readTools, type ToolUse } from "../chat/tools.ts";
import type { Service } from "../service.ts";
import { type Answer, line, respond, type Said } from "./format.ts";
import { readRequest } from "./endpoint.ts";
import { type Asked, readAsked } from "./options.ts";

const COMMON = ["format", "options", "stream", "think", "keep_alive"];

/** Keys of `/api/generate` that are not offered, and what they may be all the same. */
const EMPTY = ["suffix", "template", "images", "context"];

/** Answers a conversation. */
export async function chat(service: Service, request: Request): Promise<Response> {
  const body = await readRequest(service, request, [...COMMON, "messages", "tools"]);
  const asked = readAsked(service, body);
  if (Array.isArray(body.messages) && body.messages.length === 0) {
    return loaded(service, message(SILENCE));
  }
  const messages = readOllamaMessages(body.messages);
  return await converse(service, request, messages, asked, readTools(body), message);
}

/** Answers a text as a conversation of one message, or goes on with it as it is. */
export async function generate(service: Service, request: Request): Promise<Response> {
  const body = await readRequest(service, request, [
    ...[...COMMON, ...EMPTY],
    ...["prompt", "system", "raw"],
  ]);
  for (const name of EMPTY) checkEmpty(body[name], name);
  const asked = readAsked(service, body);
  const prompt = isGiven(body.prompt) ? readString(body.prompt, "prompt") : "";
  if (prompt === "") return loaded(service, response(SILENCE));
  const system = isGiven(body.system) && body.system !== ""
    ? readString(body.system, "system")
    : undefined;
  const isRaw = isGiven(body.raw) && readBoolean(body.raw, "raw");
  if (isRaw || !service.model.hasChatTemplate) {
    return await goOn(service, request, prompt, { ...asked.options, system, raw: true }, asked);
  }
  const before = system === undefined ? [] : [{ role: "system", content: system }];
  const messages = [...before, { role: "user", content: prompt }];
  return await converse(service, request, messages, asked, undefined, response);
}

async function converse(
  service: Service,
  request: Request,
  messages: readonly ChatMessage[],
  { options, isStream }: Asked,
  use: ToolUse | undefined,
  form: Answer["form"],
): Promise<Response> {
  const { model } = service;
  return await admitted(service, async (leave) => {
    const dialect = await settleDialect(model, { messages, options, use }, service.enforceable);
    const controller = new AbortController();
    const { promptTokens, pieces: [pieces] } = await model.generateMany(messages, 1, {
      ...dialect.options,
      signal: controller.signal,
    });
    const reader = dialect.newReader(promptTokens);
    const answer = { pieces: pieces!, reader, form, isStream, controller };
    return await respond(service, request, answer, leave);
  });
}

async function goOn(
  service: Service,
  request: Request,
  prompt: string,
  options: GenerateOptions,
  { isStream }: Asked,
): Promise<Response> {
  return await admitted(service, async (leave) => {
    const controller = new AbortController();
    const { pieces: [pieces] } = await service.model.generateMany(prompt, 1, {
      ...options,
      signal: controller.signal,
    });
    const reader = new ContentReader();
    const answer = { pieces: pieces!, reader, form: response, isStream, controller };
    return await respond(service, request, answer, leave);
  });
}

async function admitted(
  service: Service,
  work: (leave: () => void) => Promise<Response>,
): Promise<Response> {
  const leave = service.admission.enter(1);
  try {
    return await work(leave);
  } catch (error) {
    leave();
    throw error;
  }
}

const SILENCE: Said = { content: "", thinking: "", calls: [] };

function message({ content, thinking, calls }: Said): JsonObject {
  return {
    message: {
      role: "assistant",
      content,
      ...(thinking === "" ? {} : { thinking }),
      ...(calls.length === 0 ? {} : { tool_calls: [...calls] }),
    },
  };
}

function response({ content, thinking }: Said): JsonObject {
  return { response: content, ...(thinking === "" ? {} : { thinking }) };
}

/** The answer to who asks for nothing: that the model is loaded, which it always is. */
function loaded(service: Service, content: JsonObject): Response {
  return Response.json(line(service, { ...content, done: true, done_reason: "load" }));
}

/** Messages with the keys that Ollama gives to what templates know by other names. */
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

/** @throws {RequestError} for a key of what is not offered that asks for it */
function checkEmpty(value: JsonValue | undefined, name: string): void {
  if (!isGiven(value) || value === "" || (Array.isArray(value) && value.length === 0)) return;
  throw invalid(name, value, "nothing: forge does not offer it");
}
