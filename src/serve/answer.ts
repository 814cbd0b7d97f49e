/** From the pieces of generations to the response, whole or as a stream. */
import type { GenerationEnd, Piece } from "../engine/generation/request.ts";
import type { JsonObject } from "../formats/json.ts";
import { eventStream } from "./http/text_stream.ts";
import { errorBody, HttpError, isFault } from "./http/http_error.ts";
import { merge } from "./merge.ts";
import { runAnswer } from "./run_answer.ts";
import type { Service } from "./service.ts";
import { type Usage, usageOf } from "./usage.ts";

/** One of the answers to a request, in the form that its endpoint gives it. */
export interface Choice {
  /** How the generation ended; `undefined` before that. */
  readonly end: GenerationEnd | undefined;
  /** Goes on by a piece. */
  take(piece: Piece): void;
  /** What a stream says of what was taken since the last time; at first, that the answer begins. */
  news(): JsonObject[];
  /** All of the answer, when it has ended. */
  whole(): JsonObject;
}

/** What is to be generated for a request. */
export interface Answer {
  /** What the endpoint calls an answer, and a part of one in a stream. */
  readonly kind: "chat.completion" | "text_completion";
  readonly chunkKind: "chat.completion.chunk" | "text_completion";
  /** The generations of each prompt. */
  readonly prompts: readonly (readonly AsyncGenerator<Piece>[])[];
  /** One for each generation, in their order. */
  readonly choices: readonly Choice[];
  readonly stream: StreamOptions | undefined;
  /** Ends the generations. */
  readonly controller: AbortController;
}

/** What a stream is asked for. */
export interface StreamOptions {
  /** Whether the last event says how many tokens it took. */
  readonly includeUsage: boolean;
}

/**
 * Runs the generations.
 *
 * @param leave called when they have ended, maybe more than once
 */
export function respond(
  service: Service,
  request: Request,
  answer: Answer,
  leave: () => void,
): Promise<Response> {
  const { controller, stream } = answer;
  return runAnswer(request, controller, leave, {
    stream: stream &&
      ((cancelled) => eventStream(streamed(service, answer, stream, leave), cancelled)),
    whole: async () => Response.json(await whole(service, answer)),
  });
}

async function whole(service: Service, answer: Answer): Promise<JsonObject> {
  const { kind, choices } = answer;
  for await (const [choice, piece] of pieces(answer)) choice.take(piece);
  checkFinished(choices);
  return {
    ...head(service, kind),
    choices: choices.map((choice) => choice.whole()),
    usage: { ...usage(answer) },
  };
}

async function* streamed(
  service: Service,
  answer: Answer,
  { includeUsage }: StreamOptions,
  leave: () => void,
): AsyncGenerator<string> {
  const { choices, chunkKind } = answer;
  const start = head(service, chunkKind);
  const chunk = (choices: JsonObject[], usage: JsonObject | null = null) =>
    JSON.stringify({ ...start, choices, ...(includeUsage ? { usage } : {}) });
  try {
    for (const choice of choices) {
      for (const part of choice.news()) yield chunk([part]);
    }
    for await (const [choice, piece] of pieces(answer)) {
      choice.take(piece);
      for (const part of choice.news()) yield chunk([part]);
    }
    checkFinished(choices);
    if (includeUsage) yield chunk([], { ...usage(answer) });
    yield "[DONE]";
  } catch (error) {
    // The status is sent already: the error takes the place of what would have followed.
    if (isFault(error)) service.onError(error);
    yield JSON.stringify(errorBody(error));
  } finally {
    answer.controller.abort();
    leave();
  }
}

async function* pieces({ prompts, choices, controller }: Answer) {
  for await (const [index, piece] of merge(prompts.flat(), () => controller.abort())) {
    yield [choices[index]!, piece] as const;
  }
}

/** @throws {HttpError} 503 when an answer was cut off */
function checkFinished(choices: readonly Choice[]): void {
  if (!choices.some(({ end }) => end?.finishReason === "cancelled")) return;
  throw new HttpError(503, "the answer was stopped before its end", { code: "stopped" });
}

function usage({ prompts, choices }: Answer): Usage {
  const ends = choices.map(({ end }) => end!);
  let at = 0;
  return usageOf(prompts.map(({ length }) => ends.slice(at, at += length)));
}

function head({ name }: Service, object: string): JsonObject {
  const prefix = object === "text_completion" ? "cmpl" : "chatcmpl";
  return {
    id: `${prefix}-${crypto.randomUUID().replaceAll("-", "")}`,
    object,
    created: Math.floor(Date.now() / 1000),
    model: name,
  };
}
