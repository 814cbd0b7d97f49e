import type { GenerationEnd, Piece } from "../../engine/generation/request.ts";
import type { JsonObject } from "../../formats/json.ts";
import type { Tokenizer } from "../../tokenizer/tokenizer.ts";
import { newCallId } from "../chat/blocks.ts";
import type { Part, PartReader } from "../chat/dialect.ts";
import { chatLogprobs } from "./logprobs.ts";
import { type Choice, finishReason } from "./response.ts";

/** A tool call, with the arguments read so far. */
interface ToolCall {
  readonly id: string;
  readonly name: string;
  arguments: string;
}

/** A choice of a chat completion: reasoning, content and tool calls. */
export class ChatChoice implements Choice {
  readonly #index: number;
  readonly #reader: PartReader;
  readonly #tokenizer: Tokenizer;
  readonly #hasLogprobs: boolean;
  readonly #calls: ToolCall[] = [];
  /** True while the last call is incomplete. */
  #isCallOpen = false;
  readonly #logprobs: JsonObject[] = [];
  #reasoning = "";
  #content = "";
  #deltas: JsonObject[] = [{ role: "assistant", content: "" }];
  /** Number of log-probabilities that the stream has. */
  #sentLogprobs = 0;
  end: GenerationEnd | undefined;

  /** @param reader reads the generated text */
  constructor(index: number, reader: PartReader, tokenizer: Tokenizer, hasLogprobs: boolean) {
    this.#index = index;
    this.#reader = reader;
    this.#tokenizer = tokenizer;
    this.#hasLogprobs = hasLogprobs;
  }

  take(piece: Piece): void {
    this.end = piece.end;
    if (this.#hasLogprobs) this.#logprobs.push(...chatLogprobs(this.#tokenizer, piece));
    const parts = this.#reader.push(piece.text);
    if (piece.end !== undefined) parts.push(...this.#reader.end());
    for (const part of parts) {
      const delta = this.#add(part);
      if (delta !== undefined) this.#deltas.push(delta);
    }
  }

  deltas(): JsonObject[] {
    const deltas = this.#deltas;
    this.#deltas = [];
    const logprobs = this.#logprobs.slice(this.#sentLogprobs);
    this.#sentLogprobs = this.#logprobs.length;
    // The end, and log-probabilities of tokens without text yet, have an empty delta.
    if (this.end !== undefined || (deltas.length === 0 && logprobs.length > 0)) deltas.push({});
    return deltas.map((delta, i) => ({
      index: this.#index,
      delta,
      logprobs: i === 0 && logprobs.length > 0 ? { content: logprobs } : null,
      finish_reason: i === deltas.length - 1 ? this.#finishReason() : null,
    }));
  }

  whole(): JsonObject {
    const hasOnlyCalls = this.#content === "" && this.#calls.length > 0;
    return {
      index: this.#index,
      message: {
        role: "assistant",
        content: hasOnlyCalls ? null : this.#content,
        ...(this.#reasoning === "" ? {} : { reasoning_content: this.#reasoning }),
        ...(this.#calls.length === 0 ? {} : { tool_calls: this.#calls.map(callObject) }),
      },
      logprobs: this.#hasLogprobs ? { content: this.#logprobs } : null,
      finish_reason: this.#finishReason(),
    };
  }

  /** Adds a part; returns its delta for the stream, if any. */
  #add(part: Part): JsonObject | undefined {
    switch (part.kind) {
      case "reasoning":
        this.#reasoning += part.text;
        return { reasoning_content: part.text };
      case "content":
        this.#content += part.text;
        return { content: part.text };
      case "call": {
        this.#isCallOpen = true;
        const call = { id: newCallId(), name: part.name, arguments: "" };
        const index = this.#calls.push(call) - 1;
        return { tool_calls: [{ index, ...callObject(call) }] };
      }
      case "arguments": {
        const index = this.#calls.length - 1;
        this.#calls[index]!.arguments += part.text;
        return { tool_calls: [{ index, function: { arguments: part.text } }] };
      }
      case "called":
        this.#isCallOpen = false;
        return undefined;
    }
  }

  #finishReason(): string | null {
    if (this.end === undefined) return null;
    // As in OpenAI's API, a call that was cut off has the reason "length".
    const isCut = this.#isCallOpen && this.end.finishReason === "length";
    if (this.#calls.length > 0 && !isCut) return "tool_calls";
    return finishReason(this.end.finishReason);
  }
}

function callObject({ id, name, arguments: args }: ToolCall): JsonObject {
  return { id, type: "function", function: { name, arguments: args } };
}
