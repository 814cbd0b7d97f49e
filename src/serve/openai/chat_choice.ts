import type { GenerationEnd, Piece } from "../../engine/generation/request.ts";
import type { JsonObject } from "../../formats/json.ts";
import type { Tokenizer } from "../../tokenizer/tokenizer.ts";
import type { Choice } from "../answer.ts";
import { finishReason } from "../finish_reason.ts";
import { chatLogprobs } from "./logprobs.ts";
import type { Part, PartReader } from "../chat/part_reader.ts";

/** A call of a tool, as far as it is known. */
interface ToolCall {
  readonly id: string;
  readonly name: string;
  arguments: string;
}

/** One answer in a chat: its thoughts, its content and its calls of tools. */
export class ChatChoice implements Choice {
  readonly #index: number;
  readonly #reader: PartReader;
  readonly #tokenizer: Tokenizer;
  readonly #hasLogprobs: boolean;
  readonly #calls: ToolCall[] = [];
  /** Whether the last of them is complete. */
  #isCallOpen = false;
  readonly #logprobs: JsonObject[] = [];
  #reasoning = "";
  #content = "";
  #deltas: JsonObject[] = [{ role: "assistant", content: "" }];
  #toldLogprobs = 0;
  end: GenerationEnd | undefined;

  /** @param reader of the answer's text */
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

  news(): JsonObject[] {
    const deltas = this.#deltas;
    this.#deltas = [];
    const logprobs = this.#logprobs.slice(this.#toldLogprobs);
    this.#toldLogprobs = this.#logprobs.length;
    // The end, and log-probabilities of tokens that are no text yet, are told without one.
    if (this.end !== undefined || (deltas.length === 0 && logprobs.length > 0)) deltas.push({});
    return deltas.map((delta, i) => ({
      index: this.#index,
      delta,
      logprobs: i === 0 && logprobs.length > 0 ? { content: logprobs } : null,
      finish_reason: i === deltas.length - 1 ? this.#finishReason() : null,
    }));
  }

  whole(): JsonObject {
    const isSilent = this.#content === "" && this.#calls.length > 0;
    return {
      index: this.#index,
      message: {
        role: "assistant",
        content: isSilent ? null : this.#content,
        ...(this.#reasoning === "" ? {} : { reasoning_content: this.#reasoning }),
        ...(this.#calls.length === 0 ? {} : { tool_calls: this.#calls.map(written) }),
      },
      logprobs: this.#hasLogprobs ? { content: this.#logprobs } : null,
      finish_reason: this.#finishReason(),
    };
  }

  /** Adds a part to the whole. @returns what a stream says of it, where that is anything */
  #add(part: Part): JsonObject | undefined {
    if (part.kind === "reasoning") {
      this.#reasoning += part.text;
      return { reasoning_content: part.text };
    }
    if (part.kind === "content") {
      this.#content += part.text;
      return { content: part.text };
    }
    if (part.kind === "call") {
      this.#isCallOpen = true;
      const call = { id: callId(), name: part.name, arguments: "" };
      const index = this.#calls.push(call) - 1;
      return { tool_calls: [{ index, ...written(call) }] };
    }
    if (part.kind === "called") {
      this.#isCallOpen = false;
      return undefined;
    }
    const index = this.#calls.length - 1;
    this.#calls[index]!.arguments += part.text;
    return { tool_calls: [{ index, function: { arguments: part.text } }] };
  }

  #finishReason(): string | null {
    if (this.end === undefined) return null;
    // A call that was cut off says so, as OpenAI's API does.
    const isCut = this.#isCallOpen && this.end.finishReason === "length";
    if (this.#calls.length > 0 && !isCut) return "tool_calls";
    return finishReason(this.end.finishReason);
  }
}

/** A call as OpenAI's API writes it. */
function written({ id, name, arguments: args }: ToolCall): JsonObject {
  return { id, type: "function", function: { name, arguments: args } };
}

/** Nine letters and digits: templates of Mistral's models take no other. */
function callId(): string {
  return crypto.randomUUID().replaceAll("-", "").slice(0, 9);
}
