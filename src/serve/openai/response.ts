/** Responses of OpenAI's endpoints that generate: choices, streams of chunks, and usage. */
import type { FinishReason, GenerationEnd, Piece } from "../../engine/generation/request.ts";
import type { JsonObject } from "../../formats/json.ts";
import type { AnswerFormat } from "../answer.ts";
import { errorBody } from "../http/http_error.ts";
import { EVENTS } from "../http/text_stream.ts";
import type { StreamOptions } from "./request_fields.ts";

/** One generation, in the form of its endpoint. */
export interface Choice {
  /** End of the generation; `undefined` before it. */
  readonly end: GenerationEnd | undefined;
  take(piece: Piece): void;
  /** Returns the choice's parts of chunks since the last call. */
  deltas(): JsonObject[];
  /** Returns the whole choice, after its end. */
  whole(): JsonObject;
}

/** Type of a response, and the members that identify it. */
interface ResponseHead {
  readonly kind: "chat.completion" | "text_completion";
  readonly model: string;
}

/** Formats the generations of a request as a completion object or as chunks. */
export class CompletionFormat implements AnswerFormat {
  readonly framing = EVENTS;
  readonly #head: JsonObject;
  readonly #choices: readonly Choice[];
  readonly #perPrompt: number;
  readonly #includeUsage: boolean;
  /** Choices that changed since the last message of the stream. */
  #changed: readonly Choice[];

  /**
   * @param choices one for each generation
   * @param perPrompt number of consecutive choices that share a prompt
   * @param stream options of the stream, if the response is one
   */
  constructor(
    { kind, model }: ResponseHead,
    choices: readonly Choice[],
    perPrompt: number,
    stream: StreamOptions | undefined,
  ) {
    const isChat = kind === "chat.completion";
    this.#head = {
      id: `${isChat ? "chatcmpl" : "cmpl"}-${crypto.randomUUID().replaceAll("-", "")}`,
      object: isChat && stream !== undefined ? "chat.completion.chunk" : kind,
      created: Math.floor(Date.now() / 1000),
      model,
    };
    this.#choices = choices;
    this.#perPrompt = perPrompt;
    this.#includeUsage = stream?.includeUsage === true;
    this.#changed = choices;
  }

  take(index: number, piece: Piece): void {
    const choice = this.#choices[index]!;
    choice.take(piece);
    this.#changed = [choice];
  }

  messages(): string[] {
    const deltas = this.#changed.flatMap((choice) => choice.deltas());
    this.#changed = [];
    const usage = this.#includeUsage ? { usage: null } : {};
    return deltas.map((delta) => JSON.stringify({ ...this.#head, choices: [delta], ...usage }));
  }

  closing(): string[] {
    if (!this.#includeUsage) return ["[DONE]"];
    const last = { ...this.#head, choices: [], usage: this.#usage(), ...this.#timings() };
    return [JSON.stringify(last), "[DONE]"];
  }

  error(error: unknown): string {
    return JSON.stringify(errorBody(error));
  }

  whole(): JsonObject {
    const choices = this.#choices.map((choice) => choice.whole());
    return { ...this.#head, choices, usage: this.#usage(), ...this.#timings() };
  }

  /** Returns the speed of a single generation, under llama.cpp's names; of several, nothing. */
  #timings(): JsonObject {
    const [end, other] = this.#choices.map((choice) => choice.end!);
    if (end === undefined || other !== undefined) return {};
    const { timings, promptTokens, cachedPromptTokens, completionTokens } = end;
    return {
      timings: {
        prompt_n: promptTokens - cachedPromptTokens,
        prompt_ms: timings.prefillMs,
        prompt_per_second: timings.prefillTokensPerSecond,
        predicted_n: completionTokens,
        predicted_ms: timings.decodeMs,
        predicted_per_second: timings.decodeTokensPerSecond,
      },
    };
  }

  #usage(): JsonObject {
    const ends = this.#choices.map(({ end }) => end!);
    const firsts = ends.filter((_, i) => i % this.#perPrompt === 0);
    const promptTokens = sum(firsts.map((end) => end.promptTokens));
    const completionTokens = sum(ends.map((end) => end.completionTokens));
    // Only the generation that computed a prompt reports the tokens that were cached before.
    const cached = firsts.map((_, i) =>
      Math.min(
        ...ends.slice(i * this.#perPrompt, (i + 1) * this.#perPrompt)
          .map((end) => end.cachedPromptTokens),
      )
    );
    return {
      prompt_tokens: promptTokens,
      completion_tokens: completionTokens,
      total_tokens: promptTokens + completionTokens,
      prompt_tokens_details: { cached_tokens: sum(cached) },
    };
  }
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}

/** Returns OpenAI's name of a finish reason, which Ollama shares. */
export function finishReason(reason: FinishReason): string {
  return reason === "constraint_complete" ? "stop" : reason;
}
