/// <reference lib="dom" />
/// <reference lib="dom.iterable" />
/** Requests to the server. */
import type { AnswerStats, Message, TokenProbability, ToolCall } from "./conversation.ts";

/** Facts about the model, from `GET /props`. */
export interface ModelFacts {
  readonly name: string;
  /** Names of all models of the server. */
  readonly models: readonly string[];
  /** Most tokens of a conversation. */
  readonly contextLength: number;
  /** Bytes of keys and values of each token. */
  readonly kvBytesPerToken: number;
}

/** An error response of the server. */
export class ServerError extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.name = "ServerError";
    this.status = status;
  }
}

const KEY = "forge.key";

/** Keeps the API key until the page is closed. */
export function setKey(key: string): void {
  sessionStorage.setItem(KEY, key);
}

/** @throws {ServerError} for any status but 200; `TypeError` if the server cannot be reached */
async function request(path: string, init: RequestInit = {}): Promise<Response> {
  const key = sessionStorage.getItem(KEY);
  const headers = {
    "content-type": "application/json",
    ...(key === null ? {} : { authorization: `Bearer ${key}` }),
  };
  const response = await fetch(path, { ...init, headers });
  if (response.ok) return response;
  const body = await response.json().catch(() => undefined);
  throw new ServerError(response.status, body?.error?.message ?? `status ${response.status}`);
}

/** Asks for the facts about a model, or about the server's first one. The server loads it first. */
export async function fetchFacts(model?: string): Promise<ModelFacts> {
  const query = model === undefined ? "" : `?model=${encodeURIComponent(model)}`;
  const props = await (await request(`/props${query}`)).json();
  return {
    name: props.model_alias,
    models: props.models,
    contextLength: props.default_generation_settings.n_ctx,
    kvBytesPerToken: props.kv_bytes_per_token,
  };
}

/** The parts of a streamed event that the page reads. */
interface ChatEvent {
  readonly error?: { readonly message: string };
  readonly choices?: readonly {
    readonly delta: {
      readonly content?: string;
      readonly reasoning_content?: string;
      readonly tool_calls?: readonly {
        readonly index: number;
        readonly id?: string;
        readonly function: { readonly name?: string; readonly arguments: string };
      }[];
    };
    readonly logprobs: { readonly content: readonly ApiToken[] } | null;
    readonly finish_reason: string | null;
  }[];
  readonly usage?: {
    readonly prompt_tokens: number;
    readonly completion_tokens: number;
    readonly prompt_tokens_details: { readonly cached_tokens: number };
  } | null;
  readonly timings?: {
    readonly prompt_per_second: number;
    readonly predicted_per_second: number;
  };
}

interface ApiToken {
  readonly token: string;
  readonly logprob: number;
  readonly top_logprobs?: readonly ApiToken[];
}

/**
 * Streams an answer. Yields the message as it grows; the last one has the statistics.
 *
 * @param body of `POST /v1/chat/completions`, without the keys of a stream
 * @throws {ServerError} for an error of the server, before or in the stream
 */
export async function* streamAnswer(
  body: Record<string, unknown>,
  facts: ModelFacts,
  signal: AbortSignal,
): AsyncGenerator<Message> {
  const stream = { stream: true, stream_options: { include_usage: true } };
  const response = await request("/v1/chat/completions", {
    method: "POST",
    body: JSON.stringify({ ...body, ...stream }),
    signal,
  });
  let message: Message = { role: "assistant", content: "" };
  for await (const data of serverEvents(response.body!)) {
    if (data === "[DONE]") return;
    message = withEvent(message, JSON.parse(data), facts);
    yield message;
  }
}

function withEvent(message: Message, event: ChatEvent, facts: ModelFacts): Message {
  if (event.error !== undefined) throw new ServerError(200, event.error.message);
  const [choice] = event.choices ?? [];
  if (choice !== undefined) {
    const { delta: { content = "", reasoning_content, tool_calls }, logprobs } = choice;
    message = { ...message, content: message.content + content };
    if (reasoning_content !== undefined) {
      message = { ...message, reasoning: (message.reasoning ?? "") + reasoning_content };
    }
    if (tool_calls !== undefined) {
      message = { ...message, toolCalls: withCalls(message.toolCalls ?? [], tool_calls) };
    }
    if (logprobs !== null) {
      const tokens = logprobs.content.map(readToken);
      message = { ...message, tokens: [...message.tokens ?? [], ...tokens] };
    }
    if (choice.finish_reason === "length") {
      message = { ...message, failure: "The answer reached the limit of tokens." };
    }
  }
  if (event.usage) message = { ...message, stats: readStats(event, facts) };
  return message;
}

function withCalls(
  calls: readonly ToolCall[],
  deltas: NonNullable<NonNullable<ChatEvent["choices"]>[number]["delta"]["tool_calls"]>,
): ToolCall[] {
  const result = [...calls];
  for (const { index, id = "", function: { name = "", arguments: args } } of deltas) {
    const known = result[index] ?? { id, name, arguments: "" };
    result[index] = { ...known, arguments: known.arguments + args };
  }
  return result;
}

function readToken({ token, logprob, top_logprobs = [] }: ApiToken): TokenProbability {
  const top = top_logprobs.map((other) => ({ text: other.token, logprob: other.logprob }));
  return { text: token, logprob, top };
}

function readStats({ usage, timings }: ChatEvent, facts: ModelFacts): AnswerStats {
  const { prompt_tokens, completion_tokens, prompt_tokens_details } = usage!;
  return {
    promptTokens: prompt_tokens,
    cachedTokens: prompt_tokens_details.cached_tokens,
    answerTokens: completion_tokens,
    prefillRate: timings?.prompt_per_second ?? 0,
    decodeRate: timings?.predicted_per_second ?? 0,
    kvBytes: facts.kvBytesPerToken * (prompt_tokens + completion_tokens),
  };
}

/** Yields the data of server-sent events. */
async function* serverEvents(
  body: ReadableStream<Uint8Array<ArrayBuffer>>,
): AsyncGenerator<string> {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const events = (text + value).split("\n\n");
      text = events.pop()!;
      for (const event of events) {
        if (event.startsWith("data: ")) yield event.slice("data: ".length);
      }
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}
