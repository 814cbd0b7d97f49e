/** Responses of Ollama's endpoints that generate: one object, or lines of JSON. */
import type { GenerationEnd, Piece } from "../../engine/generation/request.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../../formats/json.ts";
import type { AnswerFormat } from "../answer.ts";
import type { Part, PartReader } from "../chat/dialect.ts";
import { errorBody } from "../http/http_error.ts";
import { LINES } from "../http/text_stream.ts";
import { UnknownModel } from "../model_pool.ts";
import { finishReason } from "../openai/response.ts";
import type { Service } from "../service.ts";

/** Contents of an answer, or of a part of it. */
export interface Contents {
  readonly content: string;
  readonly thinking: string;
  readonly calls: readonly JsonObject[];
}

/** Returns the members that an endpoint has for the contents. */
export type ContentsForm = (contents: Contents) => JsonObject;

export const NOTHING: Contents = { content: "", thinking: "", calls: [] };

const NS_PER_MS = 1e6;

/** Formats the one generation of a request. */
export class OllamaFormat implements AnswerFormat {
  readonly framing = LINES;
  readonly #service: Service;
  readonly #reader: PartReader;
  readonly #form: ContentsForm;
  readonly #start = performance.now();
  readonly #calls = new CallCollector();
  #all = NOTHING;
  /** Contents that the stream does not have yet. */
  #unsent = NOTHING;
  #end: GenerationEnd | undefined;

  constructor(service: Service, reader: PartReader, form: ContentsForm) {
    this.#service = service;
    this.#reader = reader;
    this.#form = form;
  }

  take(_index: number, { text, end }: Piece): void {
    const parts = this.#reader.push(text);
    if (end !== undefined) parts.push(...this.#reader.end());
    const contents = parts.map((part) => this.#contentsOf(part)).reduce(joined, NOTHING);
    this.#unsent = joined(this.#unsent, contents);
    this.#all = joined(this.#all, contents);
    this.#end = end;
  }

  messages(): string[] {
    const contents = this.#unsent;
    this.#unsent = NOTHING;
    if (contents === NOTHING) return [];
    return [JSON.stringify(line(this.#service, { ...this.#form(contents), done: false }))];
  }

  closing(): string[] {
    return [JSON.stringify(this.#lastLine(NOTHING))];
  }

  error(error: unknown): string {
    return JSON.stringify(ollamaError(error));
  }

  whole(): JsonObject {
    return this.#lastLine(this.#all);
  }

  #contentsOf(part: Part): Contents {
    if (part.kind === "content") return { ...NOTHING, content: part.text };
    if (part.kind === "reasoning") return { ...NOTHING, thinking: part.text };
    return this.#calls.take(part);
  }

  #lastLine(contents: Contents): JsonObject {
    const end = this.#end!;
    const nanoseconds = (ms: number) => Math.round(ms * NS_PER_MS);
    return line(this.#service, {
      ...this.#form(contents),
      done: true,
      done_reason: finishReason(end.finishReason),
      total_duration: nanoseconds(performance.now() - this.#start),
      load_duration: nanoseconds(this.#service.loadMs),
      prompt_eval_count: end.promptTokens,
      prompt_eval_duration: nanoseconds(end.timings.prefillMs),
      eval_count: end.completionTokens,
      eval_duration: nanoseconds(end.timings.decodeMs),
    });
  }
}

/** Returns an error in Ollama's form. */
export function ollamaError(error: unknown): JsonObject {
  if (error instanceof UnknownModel) return { error: `model '${error.model}' not found` };
  return { error: errorBody(error).error.message };
}

/** Returns a line of a stream, or a whole response. */
export function line({ name }: { readonly name: string }, members: JsonObject): JsonObject {
  return { model: name, created_at: new Date().toISOString(), ...members };
}

/**
 * Collects the parts of calls: Ollama sends only complete calls, with their arguments as an object.
 */
class CallCollector {
  #name = "";
  #arguments = "";

  take(part: Extract<Part, { kind: "call" | "arguments" | "called" }>): Contents {
    if (part.kind === "call") {
      this.#name = part.name;
      this.#arguments = "";
      return NOTHING;
    }
    if (part.kind === "arguments") {
      this.#arguments += part.text;
      return NOTHING;
    }
    const args = parseObject(this.#arguments);
    // Arguments that are not JSON are sent as content.
    if (args === undefined) return { ...NOTHING, content: this.#arguments };
    return { ...NOTHING, calls: [{ function: { name: this.#name, arguments: args } }] };
  }
}

function parseObject(text: string): JsonObject | undefined {
  try {
    const value: JsonValue = JSON.parse(text);
    return isJsonObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function joined(first: Contents, second: Contents): Contents {
  if (first === NOTHING) return second;
  if (second === NOTHING) return first;
  return {
    content: first.content + second.content,
    thinking: first.thinking + second.thinking,
    calls: [...first.calls, ...second.calls],
  };
}
