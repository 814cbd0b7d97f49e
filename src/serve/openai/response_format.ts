/** The form of `/v1/responses`: output items, and a stream of typed events about them. */
import type { Piece } from "../../engine/generation/request.ts";
import type { JsonObject } from "../../formats/json.ts";
import type { Tokenizer } from "../../tokenizer/tokenizer.ts";
import type { AnswerFormat } from "../answer.ts";
import type { Block, BlockEvent, Blocks } from "../chat/blocks.ts";
import { errorBody } from "../http/http_error.ts";
import { NAMED_EVENTS, namedEvent } from "../http/text_stream.ts";
import { chatLogprobs } from "./logprobs.ts";

/** Prefixes of the ids of items. */
const PREFIXES = { reasoning: "rs", text: "msg", call: "fc" } as const;

/** Formats one generation as a response. */
export class ResponseFormat implements AnswerFormat {
  readonly framing = NAMED_EVENTS;
  readonly #blocks: Blocks;
  readonly #tokenizer: Tokenizer | undefined;
  readonly #head: JsonObject;
  readonly #keep: (response: JsonObject) => void;
  /** Log-probabilities of each block. */
  readonly #logprobs = new Map<Block, JsonObject[]>();
  #events: string[] = [];
  #sequence = 0;

  /**
   * @param tokenizer given if log-probabilities are requested
   * @param echo members that repeat the request
   * @param keep called with the complete response
   */
  constructor(
    blocks: Blocks,
    tokenizer: Tokenizer | undefined,
    echo: JsonObject,
    keep: (response: JsonObject) => void,
  ) {
    this.#blocks = blocks;
    this.#tokenizer = tokenizer;
    this.#keep = keep;
    this.#head = {
      id: `resp_${crypto.randomUUID().replaceAll("-", "")}`,
      object: "response",
      created_at: Math.floor(Date.now() / 1000),
      background: false,
      ...echo,
    };
    for (const type of ["response.created", "response.in_progress"]) {
      this.#say(type, { response: this.#response("in_progress") });
    }
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
    const response = this.whole();
    this.#say(`response.${response.status}`, { response });
    return this.messages();
  }

  error(error: unknown): string {
    const { code, message, param } = errorBody(error).error;
    this.#say("error", { code, message, param });
    return this.messages().at(-1)!;
  }

  whole(): JsonObject {
    const response = this.#response(this.#isCut ? "incomplete" : "completed");
    this.#keep(response);
    return response;
  }

  get #isCut(): boolean {
    return this.#blocks.end?.finishReason === "length";
  }

  #response(status: "in_progress" | "completed" | "incomplete"): JsonObject {
    const { all, end } = this.#blocks;
    const isCut = status === "incomplete";
    return {
      ...this.#head,
      status,
      error: null,
      incomplete_details: isCut ? { reason: "max_output_tokens" } : null,
      output: all.map((block) => this.#item(block)),
      usage: end === undefined ? null : {
        input_tokens: end.promptTokens,
        input_tokens_details: { cached_tokens: end.cachedPromptTokens },
        output_tokens: end.completionTokens,
        output_tokens_details: { reasoning_tokens: this.#blocks.reasoningTokens },
        total_tokens: end.promptTokens + end.completionTokens,
      },
    };
  }

  /** Adds the events of a change. */
  #tell(event: BlockEvent): void {
    const { block, index } = event;
    const at = { item_id: idOf(block), output_index: index };
    const inContent = { ...at, content_index: 0 };
    const type = block.kind === "text"
      ? "response.output_text"
      : block.kind === "reasoning"
      ? "response.reasoning_text"
      : "response.function_call_arguments";
    const place = block.kind === "call" ? at : inContent;
    switch (event.kind) {
      case "open":
        this.#say("response.output_item.added", {
          output_index: index,
          item: { ...this.#item(block), status: "in_progress", ...emptied(block) },
        });
        if (block.kind === "text") {
          this.#say("response.content_part.added", { ...inContent, part: this.#part(block) });
        }
        break;
      case "delta": {
        const logprobs = block.kind === "text" ? this.#addLogprobs(block, event.piece) : undefined;
        this.#say(`${type}.delta`, {
          ...place,
          delta: event.text,
          ...(logprobs === undefined ? {} : { logprobs }),
        });
        break;
      }
      case "close":
        this.#say(`${type}.done`, {
          ...place,
          ...(block.kind === "call"
            ? { name: block.name, arguments: block.text }
            : { text: block.text }),
          ...(block.kind === "text" ? { logprobs: this.#logprobs.get(block) ?? [] } : {}),
        });
        if (block.kind === "text") {
          this.#say("response.content_part.done", { ...inContent, part: this.#part(block) });
        }
        this.#say("response.output_item.done", {
          output_index: index,
          item: this.#item(block),
        });
    }
  }

  #say(type: string, event: JsonObject): void {
    this.#events.push(namedEvent(type, { type, sequence_number: this.#sequence++, ...event }));
  }

  #addLogprobs(block: Block, piece: Piece): JsonObject[] {
    if (this.#tokenizer === undefined) return [];
    const logprobs = chatLogprobs(this.#tokenizer, piece);
    this.#logprobs.set(block, [...this.#logprobs.get(block) ?? [], ...logprobs]);
    return logprobs;
  }

  #item(block: Block): JsonObject {
    const isCut = this.#isCut && block === this.#blocks.cut;
    const head = { id: idOf(block), status: isCut ? "incomplete" : "completed" };
    switch (block.kind) {
      case "reasoning":
        return {
          ...head,
          type: "reasoning",
          summary: [],
          content: [{ type: "reasoning_text", text: block.text }],
        };
      case "text":
        return { ...head, type: "message", role: "assistant", content: [this.#part(block)] };
      case "call":
        return {
          ...head,
          type: "function_call",
          call_id: block.id,
          name: block.name,
          arguments: block.text,
        };
    }
  }

  #part(block: Block): JsonObject {
    return {
      type: "output_text",
      text: block.text,
      annotations: [],
      logprobs: this.#logprobs.get(block) ?? [],
    };
  }
}

/** Returns the members of an item that are empty when it begins. */
function emptied({ kind }: Block): JsonObject {
  return kind === "call" ? { arguments: "" } : { content: [] };
}

function idOf({ kind, id }: Block): string {
  return `${PREFIXES[kind]}_${id}`;
}
