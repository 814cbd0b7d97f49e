/** Messages of a conversation, in the form of OpenAI's API. */
import { isJsonObject, type JsonObject, type JsonValue, kindOf } from "../formats/json.ts";
import { quote } from "../formats/quote.ts";
import type { ChatMessage } from "../tokenizer/chat_template.ts";
import { parseRequest } from "./parse.ts";
import { invalid, isGiven, RequestError } from "./values.ts";

/**
 * Reads messages. Other keys than role and content go to the chat template, with the arguments of
 * tool calls as objects.
 *
 * @throws {RequestError} naming the invalid message
 */
export function readMessages(value: JsonValue | undefined): ChatMessage[] {
  if (!Array.isArray(value)) throw invalid("messages", value, "a list of messages");
  if (value.length === 0) {
    throw new RequestError("messages is empty; valid is a list of at least one", "messages");
  }
  return value.map((message, i) => readMessage(message, `messages[${i}]`));
}

function readMessage(message: JsonValue, name: string): ChatMessage {
  if (!isJsonObject(message)) throw invalid(name, message, "an object with role and content");
  const { role, content, tool_calls, ...others } = message;
  if (typeof role !== "string" || role === "") {
    throw invalid(`${name}.role`, role, 'a text such as "user"');
  }
  if (!isGiven(tool_calls) || (Array.isArray(tool_calls) && tool_calls.length === 0)) {
    return { ...others, role, content: readContent(content, `${name}.content`) };
  }
  return {
    ...others,
    role,
    // Content is optional next to tool calls.
    content: isGiven(content) ? readContent(content, `${name}.content`) : "",
    tool_calls: readCalls(tool_calls, `${name}.tool_calls`),
  };
}

/** Reads a text, or a list of text parts. */
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
    throw new RequestError(
      `${name}[${i}] is ${kind}; valid is {"type": "text", "text": …}`,
      `${name}[${i}]`,
    );
  }).join("");
}

function readCalls(calls: JsonValue, name: string): JsonObject[] {
  if (!Array.isArray(calls)) throw invalid(name, calls, "a list of tool calls");
  return calls.map((call, i) => {
    const place = `${name}[${i}]`;
    if (!isJsonObject(call) || !isJsonObject(call.function)) {
      throw invalid(place, call, "an object with id, type and function");
    }
    const { name: called, arguments: given } = call.function;
    if (typeof called !== "string" || called === "") {
      throw invalid(`${place}.function.name`, called, "the name of a tool");
    }
    const args = readArguments(given, `${place}.function.arguments`);
    return { ...call, function: { ...call.function, arguments: args } };
  });
}

/** Reads the arguments of a call: an object, or its JSON text as in OpenAI's API. */
function readArguments(value: JsonValue | undefined, name: string): JsonObject {
  if (isJsonObject(value)) return value;
  if (value === "" || !isGiven(value)) return {};
  if (typeof value === "string") return parseRequest(value, name);
  throw invalid(name, value, "the JSON text of an object");
}
