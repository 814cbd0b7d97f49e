/** `POST /v1/messages` and `POST /v1/messages/count_tokens`: Anthropic's API. */
import { isJsonObject, type JsonObject, type JsonValue } from "../../formats/json.ts";
import { MAX_COUNT } from "../../engine/limits.ts";
import type { GenerateOptions } from "../../engine/request/options.ts";
import { quote } from "../../formats/quote.ts";
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
  RequestError,
} from "../../requests/values.ts";
import { Answer } from "../answer.ts";
import { Blocks } from "../chat/blocks.ts";
import type { ChatRequest } from "../chat/dialect.ts";
import { splitBegun } from "../chat/conversation.ts";
import { endsInReasoning, findMarks, reasoningLimit, withEffort } from "../chat/reasoning.ts";
import { resolveDialect } from "../chat/resolve_dialect.ts";
import { readTools } from "../chat/tools.ts";
import type { Service } from "../service.ts";
import { MessageFormat } from "./format.ts";

const PROMPT_FIELDS = [
  ...["model", "messages", "system", "tools", "tool_choice", "thinking", "output_config"],
  // Without effect here.
  ...["cache_control", "context_management"],
];
const FIELDS = [
  ...PROMPT_FIELDS,
  "max_tokens",
  "stop_sequences",
  "stream",
  "temperature",
  "top_k",
  "top_p",
  // Without effect here.
  "metadata",
  "service_tier",
];

/** Answers a conversation. */
export async function messages(
  service: Service,
  request: Request,
  body: JsonObject,
): Promise<Response> {
  checkKeys(body, FIELDS);
  const { model } = service;
  const isStream = isGiven(body.stream) && readBoolean(body.stream, "stream");
  const chat = readChat(service, body, readSampling(service, body));

  using answer = new Answer(service, 1);
  const dialect = await resolveDialect(model, chat, service.enforceable);
  const { promptTokens, pieces } = await model.generateMany(chat.messages, 1, {
    ...dialect.options,
    ...await thinkingLimit(service, chat, dialect.options, body.thinking),
    signal: answer.signal,
  });
  const blocks = new Blocks(dialect.newReader(promptTokens));
  const format = new MessageFormat(blocks, service.name, promptTokens.length);
  return await answer.respond(request, pieces, format, isStream);
}

/** Counts the tokens of a conversation. */
export async function countTokens(
  service: Service,
  request: Request,
  body: JsonObject,
): Promise<Response> {
  checkKeys(body, PROMPT_FIELDS);
  const chat = readChat(service, body, service.defaults);
  const { options } = await resolveDialect(service.model, chat, service.enforceable);
  const { tokens } = await service.model.encodePromptInSlices(chat.messages, {
    ...options,
    signal: request.signal,
  });
  return Response.json({ input_tokens: tokens.length });
}

function readSampling({ defaults }: Service, body: JsonObject): GenerateOptions {
  const { max_tokens, stop_sequences, temperature, top_k, top_p } = body;
  const { format } = readOutput(body.output_config);
  return readOptions({
    max_tokens: readNumber(max_tokens, "max_tokens", 1, MAX_COUNT, true),
    temperature: temperature ?? null,
    top_k: top_k ?? null,
    top_p: top_p ?? null,
    stop: stop_sequences ?? null,
    json_schema: format ?? null,
  }, defaults);
}

/** Reads the conversation, its tools, and whether the model thinks before it answers. */
function readChat(service: Service, body: JsonObject, given: GenerateOptions): ChatRequest {
  const { system, messages: turns, thinking, output_config } = body;
  const { chatTemplate } = service.model.checkpoint;
  if (!Array.isArray(turns)) throw invalid("messages", turns, "a list of messages");
  const head = isGiven(system) ? [{ role: "system", content: textOf(system, "system") }] : [];
  const all = turns.flatMap((turn, i) => chatMessages(readObject(turn, `messages[${i}]`), i));
  const conversation = readMessages([...head, ...all]);
  // As in Anthropic's API, the answer continues a last message of the assistant.
  const { messages, begun } = conversation.at(-1)?.role === "assistant"
    ? splitBegun(conversation, "messages")
    : { messages: conversation, begun: {} };
  return {
    messages,
    options: withEffort(
      { ...given, ...begun },
      readThinking(thinking, output_config),
      chatTemplate,
    ),
    use: readTools(chatTools(body)),
  };
}

/** Returns the limit of `thinking.budget_tokens`, if the model's thoughts can be limited. */
async function thinkingLimit(
  { model }: Service,
  { messages }: ChatRequest,
  options: GenerateOptions,
  thinking: JsonValue | undefined,
): Promise<Pick<GenerateOptions, "reasoningLimit">> {
  if (!isJsonObject(thinking) || !isGiven(thinking.budget_tokens)) return {};
  const most = readNumber(thinking.budget_tokens, "thinking.budget_tokens", 1, MAX_COUNT, true);
  const { tokenizer, checkpoint } = model;
  const marks = findMarks(checkpoint.chatTemplate, tokenizer);
  if (marks === undefined) return {};
  const { tokens } = await model.encodePromptInSlices(messages, options);
  const isOpen = endsInReasoning(marks, tokens, tokenizer);
  return { reasoningLimit: reasoningLimit(marks, isOpen, tokenizer, most) };
}

/** Efforts of Anthropic's API, and those of templates. */
const EFFORTS: Readonly<Record<string, string>> = {
  low: "low",
  medium: "medium",
  high: "high",
  xhigh: "high",
  max: "high",
};

/** Reads `output_config`: the schema of the answer, and the effort. */
function readOutput(value: JsonValue | undefined): { format?: JsonValue; effort?: string } {
  if (!isGiven(value)) return {};
  const config = readObject(value, "output_config");
  checkKeys(config, ["format", "effort"]);
  const { format, effort } = config;
  const known = typeof effort === "string" && Object.hasOwn(EFFORTS, effort)
    ? EFFORTS[effort]
    : undefined;
  if (isGiven(effort) && known === undefined) {
    throw invalid("output_config.effort", effort, Object.keys(EFFORTS).map(quote).join(", "));
  }
  const { type, schema } = isGiven(format) ? readObject(format, "output_config.format") : {};
  if (isGiven(format) && (type !== "json_schema" || !isGiven(schema))) {
    throw invalid("output_config.format", format, '{"type": "json_schema", "schema": …}');
  }
  return {
    ...(isGiven(schema) ? { format: schema } : {}),
    ...(known === undefined ? {} : { effort: known }),
  };
}

/** Returns the effort that `thinking` and `output_config` stand for. */
function readThinking(
  thinking: JsonValue | undefined,
  output: JsonValue | undefined,
): JsonValue | undefined {
  const { effort } = readOutput(output);
  if (!isGiven(thinking)) return effort;
  const { type } = readObject(thinking, "thinking");
  if (type === "enabled" || type === "adaptive") return effort ?? "medium";
  if (type === "disabled") return "none";
  throw invalid("thinking.type", type, '"enabled", "adaptive" or "disabled"');
}

/**
 * Returns a message in the form of chat completions: results of tools are messages of their own.
 */
function chatMessages({ role, content }: JsonObject, index: number): JsonObject[] {
  const place = `messages[${index}]`;
  if (role !== "user" && role !== "assistant") {
    throw invalid(`${place}.role`, role, '"user" or "assistant"');
  }
  if (typeof content === "string") return [{ role, content }];
  if (!Array.isArray(content)) {
    throw invalid(`${place}.content`, content, "a text or a list of blocks");
  }
  const results: JsonObject[] = [];
  const calls: JsonObject[] = [];
  let text = "";
  let reasoning = "";
  content.forEach((part, i) => {
    const at = `${place}.content[${i}]`;
    const block = readObject(part, at);
    switch (block.type) {
      case "text":
        text += readString(block.text, `${at}.text`);
        break;
      case "thinking":
        reasoning += readString(block.thinking, `${at}.thinking`);
        break;
      case "redacted_thinking":
        break;
      case "tool_use":
        calls.push(toolCall(block, at));
        break;
      case "tool_result":
        results.push({
          role: "tool",
          tool_call_id: readString(block.tool_use_id, `${at}.tool_use_id`),
          content: isGiven(block.content) ? textOf(block.content, `${at}.content`) : "",
        });
        break;
      default:
        throw invalid(
          `${at}.type`,
          block.type,
          '"text", "thinking", "tool_use" or "tool_result"',
        );
    }
  });
  const hasOnlyResults = results.length > 0 && text === "" && calls.length === 0;
  if (hasOnlyResults) return results;
  return [...results, {
    role,
    content: text,
    ...(reasoning === "" ? {} : { reasoning_content: reasoning }),
    tool_calls: calls,
  }];
}

function toolCall({ id, name, input }: JsonObject, place: string): JsonObject {
  return {
    id: readString(id, `${place}.id`),
    type: "function",
    function: {
      name: readString(name, `${place}.name`),
      arguments: readObject(input, `${place}.input`),
    },
  };
}

/** Reads a text, or a list of blocks with text. */
function textOf(content: JsonValue, place: string): string {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) throw invalid(place, content, "a text or a list of text blocks");
  return content.map((part, i) => {
    if (isJsonObject(part) && part.type === "text" && typeof part.text === "string") {
      return part.text;
    }
    const kind = isJsonObject(part) && typeof part.type === "string"
      ? quote(part.type)
      : "no block";
    throw new RequestError(
      `${place}[${i}] is ${kind}; valid is {"type": "text", "text": …}`,
      `${place}[${i}]`,
    );
  }).join("");
}

/** Keys of a tool; those after `type` have no effect here. */
const TOOL_FIELDS = [
  ...["name", "description", "input_schema", "strict", "type", "cache_control"],
  ...["allowed_callers", "defer_loading", "eager_input_streaming", "input_examples"],
];

/** Returns tools and their choice in the form of chat completions. */
function chatTools({ tools, tool_choice }: JsonObject): JsonObject {
  const list = isGiven(tools) ? tools : [];
  if (!Array.isArray(list)) throw invalid("tools", list, "a list of tools");
  const functions = list.map((tool, i) => {
    const definition = readObject(tool, `tools[${i}]`);
    const { type, name, description, input_schema, strict } = definition;
    if (isGiven(type) && type !== "custom") {
      throw invalid(`tools[${i}].type`, type, '"custom": forge runs no tools itself');
    }
    checkKeys(definition, TOOL_FIELDS);
    return {
      type: "function",
      function: {
        name: name ?? null,
        ...(isGiven(description) ? { description } : {}),
        ...(isGiven(input_schema) ? { parameters: input_schema } : {}),
        ...(isGiven(strict) ? { strict } : {}),
      },
    };
  });
  return { tools: functions, ...readChoice(tool_choice) };
}

function readChoice(choice: JsonValue | undefined): JsonObject {
  if (!isGiven(choice)) return {};
  const { type, name, disable_parallel_tool_use } = readObject(choice, "tool_choice");
  const isSerial = isGiven(disable_parallel_tool_use) &&
    readBoolean(disable_parallel_tool_use, "tool_choice.disable_parallel_tool_use");
  const parallel = isSerial ? { parallel_tool_calls: false } : {};
  switch (type) {
    case "auto":
    case "none":
      return { tool_choice: type, ...parallel };
    case "any":
      return { tool_choice: "required", ...parallel };
    case "tool":
      return { tool_choice: { type: "function", function: { name: name ?? null } }, ...parallel };
    default:
      throw invalid("tool_choice.type", type, '"auto", "any", "tool" or "none"');
  }
}
