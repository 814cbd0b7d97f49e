/// <reference lib="dom" />
/** Conversations, and where the browser keeps them. */

/** A tool call of the model. */
export interface ToolCall {
  readonly id: string;
  readonly name: string;
  readonly arguments: string;
}

/** A token of an answer with its probability. */
export interface TokenProbability {
  readonly text: string;
  /** Natural logarithm. */
  readonly logprob: number;
  /** Likeliest tokens in its place. */
  readonly top: readonly { readonly text: string; readonly logprob: number }[];
}

/** Size and speed of an answer. */
export interface AnswerStats {
  readonly promptTokens: number;
  /** Tokens of the prompt that were computed before. */
  readonly cachedTokens: number;
  readonly answerTokens: number;
  /** Tokens per second. */
  readonly prefillRate: number;
  readonly decodeRate: number;
  /** Bytes of keys and values of the conversation. */
  readonly kvBytes: number;
}

/** A message of a conversation. */
export interface Message {
  readonly role: "user" | "assistant" | "tool";
  readonly content: string;
  /** Thoughts before an answer. */
  readonly reasoning?: string;
  readonly toolCalls?: readonly ToolCall[];
  /** The call that a message of a tool answers. */
  readonly toolCallId?: string;
  readonly stats?: AnswerStats;
  /** Reason for which an answer ended early. */
  readonly failure?: string;
  /** Kept until the page is closed: they are too large to store. */
  readonly tokens?: readonly TokenProbability[];
}

/** A conversation. */
export interface Conversation {
  readonly id: string;
  readonly title: string;
  readonly system: string;
  readonly messages: readonly Message[];
}

/** A message in the form of OpenAI's API and of files of `forge chat`. */
type ApiMessage = Record<string, unknown>;

const STORAGE_KEY = "forge.conversations";
const MAX_TITLE = 60;

/** Returns a conversation without messages. */
export function newConversation(system = ""): Conversation {
  // Unlike randomUUID, this works on a page that came without encryption from another machine.
  const id = crypto.getRandomValues(new Uint32Array(4)).join("-");
  return { id, title: "New conversation", system, messages: [] };
}

/** Returns a conversation with other messages, and the title that they give it. */
export function withMessages(
  conversation: Conversation,
  messages: readonly Message[],
): Conversation {
  const first = messages.find(({ role }) => role === "user")?.content.trim().split("\n")[0] ?? "";
  const title = first === "" ? "New conversation" : first.slice(0, MAX_TITLE);
  return { ...conversation, title, messages };
}

/** Returns the messages of a request: the system prompt, then those of the conversation. */
export function apiMessages({ system, messages }: Conversation): ApiMessage[] {
  return [
    ...(system.trim() === "" ? [] : [{ role: "system", content: system }]),
    ...messages.map((message): ApiMessage => ({
      role: message.role,
      content: message.content,
      ...(message.reasoning === undefined ? {} : { reasoning_content: message.reasoning }),
      ...(message.toolCallId === undefined ? {} : { tool_call_id: message.toolCallId }),
      ...(message.toolCalls === undefined ? {} : {
        tool_calls: message.toolCalls.map(({ id, name, arguments: args }) => (
          { id, type: "function", function: { name, arguments: args } }
        )),
      }),
    })),
  ];
}

/**
 * Reads a file of `forge chat`: a list of messages, or an object with a key `messages`.
 *
 * @throws {Error} if it is something else
 */
export function readConversation(text: string): Conversation {
  const value: unknown = JSON.parse(text);
  const list = Array.isArray(value) ? value : (value as { messages?: unknown } | null)?.messages;
  if (!Array.isArray(list)) throw new Error("the file is no list of messages");
  const all = list.map((entry, index) => readMessage(entry, index));
  const isSystem = ({ role }: { role: string }) => role === "system" || role === "developer";
  const system = all.filter(isSystem).map(({ content }) => content).join("\n\n");
  const messages = all.filter((message) => !isSystem(message)) as Message[];
  return withMessages(newConversation(system), messages);
}

function readMessage(entry: unknown, index: number): Omit<Message, "role"> & { role: string } {
  const message = (typeof entry === "object" && entry !== null ? entry : {}) as ApiMessage;
  const { role, content, reasoning_content, tool_call_id, tool_calls } = message;
  if (typeof role !== "string" || !ROLES.includes(role)) {
    throw new Error(`message ${index + 1} has no role of ${ROLES.join(", ")}`);
  }
  return {
    role,
    content: readText(content, index),
    ...(typeof reasoning_content === "string" ? { reasoning: reasoning_content } : {}),
    ...(typeof tool_call_id === "string" ? { toolCallId: tool_call_id } : {}),
    ...(Array.isArray(tool_calls) ? { toolCalls: tool_calls.map(readCall) } : {}),
  };
}

const ROLES = ["system", "developer", "user", "assistant", "tool"];

/** Reads a text, a list of text parts, or nothing. */
function readText(content: unknown, index: number): string {
  if (typeof content === "string") return content;
  if (content === null || content === undefined) return "";
  const parts = Array.isArray(content) ? content.map((part) => (part as ApiMessage)?.text) : [];
  if (parts.length === 0 || parts.some((part) => typeof part !== "string")) {
    throw new Error(`message ${index + 1} has content that is no text`);
  }
  return parts.join("");
}

function readCall(call: unknown): ToolCall {
  const { id, function: { name, arguments: args } = {} } = (call ?? {}) as {
    id?: unknown;
    function?: { name?: unknown; arguments?: unknown };
  };
  const text = typeof args === "string" ? args : JSON.stringify(args ?? {});
  return { id: String(id ?? ""), name: String(name ?? ""), arguments: text };
}

/** Returns the stored conversations, the latest first; none if the storage is damaged. */
export function storedConversations(): Conversation[] {
  try {
    const list: unknown = JSON.parse(localStorage.getItem(STORAGE_KEY) ?? "[]");
    return Array.isArray(list) ? list : [];
  } catch {
    return [];
  }
}

/** Stores conversations. Drops the oldest ones if the browser has no room for all. */
export function storeConversations(conversations: readonly Conversation[]): void {
  const plain = conversations.filter(({ messages }) => messages.length > 0)
    .map((conversation) => ({
      ...conversation,
      messages: conversation.messages.map(({ tokens: _, ...message }) => message),
    }));
  for (let count = plain.length; count >= 0; count--) {
    try {
      localStorage.setItem(STORAGE_KEY, JSON.stringify(plain.slice(0, count)));
      return;
    } catch {
      // The storage is full.
    }
  }
}
