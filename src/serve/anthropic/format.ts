/** The form of `/v1/messages`: content blocks, and a stream of typed events about them. */
import type { Piece } from "../../engine/generation/request.ts";
import type { JsonObject } from "../../formats/json.ts";
import type { AnswerFormat } from "../answer.ts";
import type { Block, BlockEvent, Blocks } from "../chat/blocks.ts";
import { errorBody } from "../http/http_error.ts";
import { NAMED_EVENTS, namedEvent } from "../http/text_stream.ts";

/** Formats one generation as a message. */
export class MessageFormat implements AnswerFormat {
  readonly framing = NAMED_EVENTS;
  readonly #blocks: Blocks;
  readonly #head: JsonObject;
  readonly #promptTokens: number;
  #events: string[] = [];

  constructor(blocks: Blocks, model: string, promptTokens: number) {
    this.#blocks = blocks;
    this.#promptTokens = promptTokens;
    this.#head = {
      id: `msg_${crypto.randomUUID().replaceAll("-", "")}`,
      type: "message",
      role: "assistant",
      model,
    };
    const message = { ...this.#head, content: [], stop_reason: null, stop_sequence: null };
    this.#say("message_start", { message: { ...message, usage: this.#usage() } });
  }

  take(_index: number, piece: Piece): void {
    for (const event of this.#blocks.take(piece)) this.#tell(event);
  }

  messages(): string[] {
    const events = this.#events;
    this.#events = [];
    return events;
  }

  closing(): string[] {
    const delta = { stop_reason: this.#stopReason(), stop_sequence: null };
    this.#say("message_delta", { delta, usage: this.#usage() });
    this.#say("message_stop", {});
    return this.messages();
  }

  error(error: unknown): string {
    return namedEvent("error", anthropicError(error));
  }

  whole(): JsonObject {
    return {
      ...this.#head,
      content: this.#blocks.all.map((block) => wholeBlock(block)),
      stop_reason: this.#stopReason(),
      stop_sequence: null,
      usage: this.#usage(),
    };
  }

  #tell(event: BlockEvent): void {
    const { index, block } = event;
    switch (event.kind) {
      case "open":
        this.#say("content_block_start", { index, content_block: emptyBlock(block) });
        break;
      case "delta":
        this.#say("content_block_delta", { index, delta: blockDelta(block, event.text) });
        break;
      case "close":
        this.#say("content_block_stop", { index });
    }
  }

  #say(type: string, event: JsonObject): void {
    this.#events.push(namedEvent(type, { type, ...event }));
  }

  #usage(): JsonObject {
    const { promptTokens = this.#promptTokens, cachedPromptTokens = 0, completionTokens = 0 } =
      this.#blocks.end ?? {};
    return {
      input_tokens: promptTokens - cachedPromptTokens,
      cache_read_input_tokens: cachedPromptTokens,
      cache_creation_input_tokens: 0,
      output_tokens: completionTokens,
    };
  }

  #stopReason(): string {
    if (this.#blocks.endsInCalls) return "tool_use";
    return this.#blocks.end?.finishReason === "length" ? "max_tokens" : "end_turn";
  }
}

/** Anthropic's names of types of errors that are not OpenAI's. */
const ERROR_TYPES: Readonly<Record<string, string>> = {
  queue_full: "overloaded_error",
  model_not_found: "not_found_error",
};

/** Returns an error in Anthropic's form. */
export function anthropicError(error: unknown): JsonObject {
  const { type, code, message } = errorBody(error).error;
  const own = ERROR_TYPES[code ?? ""] ?? (type === "server_error" ? "api_error" : type);
  return { type: "error", error: { type: own, message } };
}

function emptyBlock(block: Block): JsonObject {
  switch (block.kind) {
    case "reasoning":
      return { type: "thinking", thinking: "", signature: "" };
    case "text":
      return { type: "text", text: "" };
    case "call":
      return { type: "tool_use", id: block.id, name: block.name, input: {} };
  }
}

function blockDelta({ kind }: Block, text: string): JsonObject {
  switch (kind) {
    case "reasoning":
      return { type: "thinking_delta", thinking: text };
    case "text":
      return { type: "text_delta", text };
    case "call":
      return { type: "input_json_delta", partial_json: text };
  }
}

function wholeBlock(block: Block): JsonObject {
  switch (block.kind) {
    case "reasoning":
      return { type: "thinking", thinking: block.text, signature: "" };
    case "text":
      return { type: "text", text: block.text };
    case "call":
      return { type: "tool_use", id: block.id, name: block.name, input: readInput(block) };
  }
}

/** Returns the arguments of a call; those that were cut off are no JSON, and are given as text. */
function readInput({ text }: Block): JsonObject {
  try {
    return JSON.parse(text) as JsonObject;
  } catch {
    return { partial_json: text };
  }
}
