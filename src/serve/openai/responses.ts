/** `POST /v1/responses`, and the responses that it keeps for later turns. */
import { isJsonObject, type JsonObject, type JsonValue } from "../../formats/json.ts";
import { quote } from "../../formats/quote.ts";
import { MAX_COUNT, MAX_LOGPROBS } from "../../engine/limits.ts";
import { readMessages } from "../../requests/messages.ts";
import { readOptions } from "../../requests/options.ts";
import {
  checkKeys,
  invalid,
  isGiven,
  readBoolean,
  readNumber,
  readObject,
  readString,
} from "../../requests/values.ts";
import { Answer } from "../answer.ts";
import { Blocks } from "../chat/blocks.ts";
import { withKnownRoles } from "../chat/conversation.ts";
import { withEffort } from "../chat/reasoning.ts";
import { resolveDialect } from "../chat/resolve_dialect.ts";
import { readTools } from "../chat/tools.ts";
import type { Server, Service } from "../service.ts";
import type { KeptResponses } from "./kept_responses.ts";
import { ResponseFormat } from "./response_format.ts";

const FIELDS = [
  "model",
  "input",
  "instructions",
  "previous_response_id",
  "store",
  "stream",
  "tools",
  "tool_choice",
  "parallel_tool_calls",
  "text",
  "reasoning",
  "max_output_tokens",
  "temperature",
  "top_p",
  "top_logprobs",
  "include",
  "truncation",
  "metadata",
  // Without effect here.
  "user",
  "safety_identifier",
  "prompt_cache_key",
  "prompt_cache_retention",
  "prompt_cache_options",
  "client_metadata",
  "service_tier",
  "stream_options",
  // Valid only if they ask for nothing.
  "background",
  "conversation",
  "max_tool_calls",
  "prompt",
];

/** Parts that a response can include in addition. */
const LOGPROBS = "message.output_text.logprobs";
const ENCRYPTED = "reasoning.encrypted_content";

/** Answers an input, or continues an earlier response. */
export async function responses(
  service: Service,
  request: Request,
  body: JsonObject,
): Promise<Response> {
  checkKeys(body, FIELDS);
  for (const name of ["background", "conversation", "max_tool_calls", "prompt"]) {
    const value = body[name];
    if (isGiven(value) && value !== false) {
      throw invalid(name, value, "null: forge does not support it");
    }
  }
  if (isGiven(body.truncation) && body.truncation !== "disabled") {
    throw invalid("truncation", body.truncation, '"disabled"');
  }
  const { model } = service;
  const { chatTemplate } = model.checkpoint;
  const isStream = isGiven(body.stream) && readBoolean(body.stream, "stream");
  const isStored = !isGiven(body.store) || readBoolean(body.store, "store");
  const previous = isGiven(body.previous_response_id)
    ? service.server.responses.get(readString(body.previous_response_id, "previous_response_id"))
    : undefined;
  const items = [...previous?.items ?? [], ...readInput(body.input, service.server.responses)];
  const instructions = isGiven(body.instructions)
    ? [{ role: "system", content: readString(body.instructions, "instructions") }]
    : [];
  const turns = readMessages([...instructions, ...messagesOf(items)]);
  const messages = withKnownRoles(turns, chatTemplate);
  const given = readOptions(chatOptions(body), service.defaults);
  const { effort } = isGiven(body.reasoning) ? readObject(body.reasoning, "reasoning") : {};
  const options = withEffort(given, effort, chatTemplate);
  const use = readTools({ ...body, ...chatTools(body) });

  using answer = new Answer(service, 1);
  const dialect = await resolveDialect(model, { messages, options, use }, service.enforceable);
  const { promptTokens, pieces } = await model.generateMany(messages, 1, {
    ...dialect.options,
    signal: answer.signal,
  });
  const blocks = new Blocks(dialect.newReader(promptTokens));
  const tokenizer = options.logprobs === undefined ? undefined : model.tokenizer;
  const format = new ResponseFormat(blocks, tokenizer, echo(service, body), (response) => {
    if (!isStored) return;
    service.server.responses.add(response, [...items, ...response.output as JsonObject[]]);
  });
  return await answer.respond(request, pieces, format, isStream);
}

/** `GET /v1/responses/ID`: a response that is kept. */
export function showResponse(server: Server, _: Request, id: string): Response {
  return Response.json(server.responses.get(id).response);
}

/** `DELETE /v1/responses/ID`. */
export function deleteResponse(server: Server, _: Request, id: string): Response {
  server.responses.get(id);
  server.responses.delete(id);
  return Response.json({ id, object: "response", deleted: true });
}

/** Returns the members of a response that repeat the request. */
function echo({ name }: Service, body: JsonObject): JsonObject {
  const or = (value: JsonValue | undefined, otherwise: JsonValue) =>
    isGiven(value) ? value : otherwise;
  return {
    model: name,
    instructions: or(body.instructions, null),
    max_output_tokens: or(body.max_output_tokens, null),
    metadata: or(body.metadata, {}),
    parallel_tool_calls: or(body.parallel_tool_calls, true),
    previous_response_id: or(body.previous_response_id, null),
    reasoning: {
      effort: null,
      summary: null,
      ...(isJsonObject(body.reasoning) ? body.reasoning : {}),
    },
    store: or(body.store, true),
    temperature: or(body.temperature, null),
    text: { format: { type: "text" }, ...(isJsonObject(body.text) ? body.text : {}) },
    tool_choice: or(body.tool_choice, "auto"),
    tools: or(body.tools, []),
    top_p: or(body.top_p, null),
    truncation: "disabled",
  };
}

/** Returns the options of a request under the keys of chat completions. */
function chatOptions(body: JsonObject): JsonObject {
  const { text, max_output_tokens, temperature, top_p, top_logprobs, include } = body;
  return {
    ...(isGiven(temperature) ? { temperature } : {}),
    ...(isGiven(top_p) ? { top_p } : {}),
    ...(isGiven(max_output_tokens)
      ? { max_tokens: readNumber(max_output_tokens, "max_output_tokens", 1, MAX_COUNT, true) }
      : {}),
    ...readText(text),
    ...(isGiven(top_logprobs) || asksFor(include, LOGPROBS)
      ? { logprobs: readNumber(top_logprobs ?? 0, "top_logprobs", 0, MAX_LOGPROBS, true) }
      : {}),
  };
}

function asksFor(include: JsonValue | undefined, part: string): boolean {
  if (!isGiven(include)) return false;
  if (!Array.isArray(include)) throw invalid("include", include, "a list of texts");
  for (const one of include) {
    // Reasoning is never encrypted: items have it as text.
    if (one !== LOGPROBS && one !== ENCRYPTED) {
      throw invalid("include", one, `${quote(LOGPROBS)} and ${quote(ENCRYPTED)}`);
    }
  }
  return include.includes(part);
}

function readText(text: JsonValue | undefined): JsonObject {
  if (!isGiven(text)) return {};
  const fields = readObject(text, "text");
  checkKeys(fields, ["format", "verbosity"]);
  const { format } = fields;
  if (!isGiven(format)) return {};
  const wanted = readObject(format, "text.format");
  checkKeys(wanted, ["type", "schema", "name", "strict", "description"]);
  const { type, schema } = wanted;
  if (type === "text") return {};
  if (type === "json_object") return { json_object: true };
  if (type !== "json_schema") {
    throw invalid("text.format.type", type, '"text", "json_object" or "json_schema"');
  }
  if (!isGiven(schema)) throw invalid("text.format.schema", schema, "an object, true or false");
  return { json_schema: schema };
}

/** Returns the tools of a request in the form of chat completions. */
function chatTools({ tools, tool_choice }: JsonObject): JsonObject {
  const list = isGiven(tools) ? tools : [];
  if (!Array.isArray(list)) throw invalid("tools", list, "a list of functions");
  return {
    tools: list.filter((tool) => !isSearch(tool)).map((tool, i) => {
      const { type, ...definition } = readObject(tool, `tools[${i}]`);
      if (type !== "function") {
        throw invalid(`tools[${i}].type`, type, '"function": forge runs no tools itself');
      }
      return { type, function: definition };
    }),
    ...(isJsonObject(tool_choice) && tool_choice.type === "function"
      ? { tool_choice: { type: "function", function: { name: tool_choice.name ?? null } } }
      : {}),
  };
}

/** True for OpenAI's search of the web, which agents always offer and a model need not use. */
function isSearch(tool: JsonValue): boolean {
  return isJsonObject(tool) && typeof tool.type === "string" && /^web_search\b/.test(tool.type);
}

/**
 * Reads the input: a text, or a list of items, some of which may refer to those of kept responses.
 */
function readInput(input: JsonValue | undefined, kept: KeptResponses): JsonObject[] {
  if (typeof input === "string") return [{ type: "message", role: "user", content: input }];
  if (!Array.isArray(input) || input.length === 0) {
    throw invalid("input", input, "a text, or a list of at least one item");
  }
  return input.map((item, i) => {
    const place = `input[${i}]`;
    const fields = readObject(item, place);
    if (fields.type !== "item_reference") return readItem(fields, place);
    return kept.item(readString(fields.id, `${place}.id`));
  });
}

const ITEMS = ["message", "function_call", "function_call_output", "reasoning"];

function readItem(item: JsonObject, place: string): JsonObject {
  const type = isGiven(item.type) ? item.type : "message";
  if (typeof type === "string" && ITEMS.includes(type)) return { ...item, type, place };
  throw invalid(`${place}.type`, type, ITEMS.map((name) => quote(name)).join(", "));
}

/**
 * Returns items as messages: reasoning and calls belong to the message of the assistant that they
 * stand next to.
 */
function messagesOf(items: readonly JsonObject[]): JsonObject[] {
  const messages: JsonObject[] = [];
  /** Returns the message of the assistant under way. */
  const assistant = (): JsonObject => {
    const last = messages.at(-1);
    if (last?.role === "assistant") return last;
    const message: JsonObject = { role: "assistant", content: "" };
    messages.push(message);
    return message;
  };
  for (const item of items) {
    const place = typeof item.place === "string" ? item.place : "input";
    switch (item.type) {
      case "reasoning": {
        const text = textOf(item.content ?? item.summary ?? [], `${place}.content`);
        const last = messages.at(-1);
        // Reasoning begins a turn of the assistant.
        if (last?.role === "assistant" && last.content !== "") {
          messages.push({ role: "assistant", content: "", reasoning_content: text });
        } else if (text !== "") {
          assistant().reasoning_content = text;
        }
        break;
      }
      case "function_call": {
        const { call_id, name, arguments: args } = item;
        const message = assistant();
        const call = {
          id: readString(call_id, `${place}.call_id`),
          type: "function",
          function: {
            name: readString(name, `${place}.name`),
            arguments: readString(args, `${place}.arguments`),
          },
        };
        message.tool_calls = [...(message.tool_calls as JsonValue[] | undefined ?? []), call];
        break;
      }
      case "function_call_output": {
        const { call_id, output } = item;
        messages.push({
          role: "tool",
          tool_call_id: readString(call_id, `${place}.call_id`),
          content: textOf(output, `${place}.output`),
        });
        break;
      }
      default: {
        const role = readString(item.role, `${place}.role`);
        const content = textOf(item.content, `${place}.content`);
        const last = messages.at(-1);
        if (
          role === "assistant" && last?.role === role && last.content === "" && !last.tool_calls
        ) {
          last.content = content;
        } else {
          messages.push({ role, content });
        }
      }
    }
  }
  return messages;
}

/** Parts of content that have a text. */
const TEXT_PARTS = ["input_text", "output_text", "text", "reasoning_text", "summary_text"];

function textOf(content: JsonValue | undefined, place: string): string {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) throw invalid(place, content, "a text or a list of text parts");
  return content.map((part, i) => {
    const { type, text, refusal } = readObject(part, `${place}[${i}]`);
    if (type === "refusal") return readString(refusal, `${place}[${i}].refusal`);
    if (TEXT_PARTS.some((known) => known === type)) {
      return readString(text, `${place}[${i}].text`);
    }
    throw invalid(`${place}[${i}].type`, type, '"input_text" or "output_text"');
  }).join("");
}
