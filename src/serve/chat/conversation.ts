/** Conversations of requests, on their way to a chat template. */
import { RequestError } from "../../requests/values.ts";
import type { ChatMessage } from "../../tokenizer/chat_template.ts";

/**
 * Takes the last message as the beginning of the answer.
 *
 * @param name key of the request that asks for it
 * @throws {RequestError} if it is not the assistant's, or has tool calls
 */
export function splitBegun(messages: readonly ChatMessage[], name: string) {
  const last = messages.at(-1);
  if (last?.role !== "assistant" || last.tool_calls !== undefined || messages.length === 1) {
    throw new RequestError(
      `${name}: the last message cannot be continued; valid is a text of the assistant after other ` +
        "messages",
      name,
    );
  }
  return { messages: messages.slice(0, -1), begun: { answerStart: last.content } };
}

/** Makes the role developer system for templates without a developer role. */
export function withKnownRoles(
  messages: readonly ChatMessage[],
  template: string | undefined,
): readonly ChatMessage[] {
  if (template?.includes("developer")) return messages;
  return messages.map((message) =>
    message.role === "developer" ? { ...message, role: "system" } : message
  );
}
