/** From the pieces of a generation to Ollama's response, whole or as lines of JSON. */
import type { GenerationEnd, Piece } from "../../engine/generation/request.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../../formats/json.ts";
import type { Part, PartReader } from "../chat/part_reader.ts";
import { lineStream } from "../http/text_stream.ts";
import { finishReason } from "../finish_reason.ts";
import { HttpError, isFault } from "../http/http_error.ts";
import { runAnswer } from "../run_answer.ts";
import type { Service } from "../service.ts";
import { errorMessage } from "./endpoint.ts";

/** What was said of an answer, or of a part of it. */
export interface Said {
  readonly content: string;
  readonly thinking: string;
  readonly calls: readonly JsonObject[];
}

/** An answer that is to be generated. */
export interface Answer {
  readonly pieces: AsyncGenerator<Piece>;
  readonly reader: PartReader;
  /** What an endpoint makes of what was said. */
  readonly form: (said: Said) => JsonObject;
  readonly isStream: boolean;
  /** Ends the generation. */
  readonly controller: AbortController;
}

const NOTHING: Said = { content: "", thinking: "", calls: [] };

const NS_PER_MS = 1e6;

/** @param leave called when the generation has ended, maybe more than once */
export function respond(
  service: Service,
  request: Request,
  answer: Answer,
  leave: () => void,
): Promise<Response> {
  const { controller, isStream } = answer;
  return runAnswer(request, controller, leave, {
    stream: isStream
      ? (cancelled) => lineStream(lines(service, answer, leave), cancelled)
      : undefined,
    whole: async () => Response.json(await whole(service, answer)),
  });
}

/** All that was said, as one line. */
async function whole(service: Service, answer: Answer): Promise<JsonObject> {
  let all = NOTHING;
  for await (const { said, stats } of read(answer)) {
    all = added(all, said);
    if (stats !== undefined) return line(service, { ...answer.form(all), ...stats });
  }
  throw new RangeError("a generation ended without an end");
}

/** A line of a stream, or a whole answer. */
export function line(service: Service, content: JsonObject): JsonObject {
  return { model: service.name, created_at: new Date().toISOString(), ...content };
}

async function* lines(
  service: Service,
  answer: Answer,
  leave: () => void,
): AsyncGenerator<string> {
  try {
    for await (const { said, stats } of read(answer)) {
      if (said !== NOTHING) {
        yield JSON.stringify(line(service, { ...answer.form(said), done: false }));
      }
      if (stats !== undefined) {
        yield JSON.stringify(line(service, { ...answer.form(NOTHING), ...stats }));
      }
    }
  } catch (error) {
    // The status is sent already: the error takes the place of what would have followed.
    if (isFault(error)) service.onError(error);
    yield JSON.stringify({ error: errorMessage(error) });
  } finally {
    answer.controller.abort();
    leave();
  }
}

/** What each piece says, and with the last one what Ollama tells in the end. */
async function* read({ pieces, reader }: Answer) {
  const start = performance.now();
  const calls = new Calls();
  for await (const { text, end } of pieces) {
    const parts = reader.push(text);
    if (end !== undefined) parts.push(...reader.end());
    const said = parts.map((part) => saidBy(part, calls)).reduce(added, NOTHING);
    yield {
      said,
      stats: end === undefined ? undefined : statistics(end, performance.now() - start),
    };
  }
}

function saidBy(part: Part, calls: Calls): Said {
  if (part.kind === "content") return { ...NOTHING, content: part.text };
  if (part.kind === "reasoning") return { ...NOTHING, thinking: part.text };
  return calls.take(part);
}

/** Collects calls: Ollama tells whole ones alone, their arguments as objects. */
class Calls {
  #name = "";
  #written = "";

  take(part: Extract<Part, { kind: "call" | "arguments" | "called" }>): Said {
    if (part.kind === "call") {
      this.#name = part.name;
      this.#written = "";
    } else if (part.kind === "arguments") {
      this.#written += part.text;
    } else {
      const args = objectOf(this.#written);
      // What is no JSON after all is told as it was written.
      if (args === undefined) return { ...NOTHING, content: this.#written };
      return { ...NOTHING, calls: [{ function: { name: this.#name, arguments: args } }] };
    }
    return NOTHING;
  }
}

function objectOf(text: string): JsonObject | undefined {
  try {
    const value: JsonValue = JSON.parse(text);
    return isJsonObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function added(all: Said, more: Said): Said {
  if (all === NOTHING || more === NOTHING) return more === NOTHING ? all : more;
  return {
    content: all.content + more.content,
    thinking: all.thinking + more.thinking,
    calls: [...all.calls, ...more.calls],
  };
}

/** @throws {HttpError} 503 for an answer that was cut off */
function statistics(end: GenerationEnd, milliseconds: number): JsonObject {
  if (end.finishReason === "cancelled") {
    throw new HttpError(503, "the answer was stopped before its end", { code: "stopped" });
  }
  const { prefillMs, decodeMs } = end.timings;
  const nanoseconds = (ms: number) => Math.round(ms * NS_PER_MS);
  return {
    done: true,
    done_reason: finishReason(end.finishReason),
    total_duration: nanoseconds(milliseconds),
    load_duration: 0,
    prompt_eval_count: end.promptTokens,
    prompt_eval_duration: nanoseconds(prefillMs),
    eval_count: end.completionTokens,
    eval_duration: nanoseconds(decodeMs),
  };
}
