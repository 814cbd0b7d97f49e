/** Generations in progress for a request, and the response made of them. */
import type { Piece } from "../engine/generation/request.ts";
import type { JsonObject } from "../formats/json.ts";
import { HttpError, isFault } from "./http/http_error.ts";
import { type Framing, textStream } from "./http/text_stream.ts";
import type { Service } from "./service.ts";

/** Turns the pieces of generations into the response of one endpoint. */
export interface AnswerFormat {
  /** Framing of streams. */
  readonly framing: Framing;
  /** Takes the next piece of the generation with this index. */
  take(index: number, piece: Piece): void;
  /** Returns the messages of a stream since the last call. The first call announces the answer. */
  messages(): string[];
  /** Returns the last messages of a stream, after all generations have ended. */
  closing(): string[];
  /** Returns the message that ends a stream on an error. */
  error(error: unknown): string;
  /** Returns the whole response, after all generations have ended. */
  whole(): JsonObject;
}

/**
 * One request's share of the server: its place among the answers in progress, and the signal that
 * ends its generations. Dispose of it when the response is complete; a stream does so by itself
 * when it ends.
 */
export class Answer implements Disposable {
  readonly #service: Service;
  readonly #place: Disposable;
  readonly #controller = new AbortController();
  #isStreamed = false;

  /**
   * @param count number of generations
   * @throws {HttpError} 503 when too many answers are in progress
   */
  constructor(service: Service, count: number) {
    this.#service = service;
    this.#place = service.enter(count);
  }

  /** Signal for the generations. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Runs the generations and responds with a stream, or with the whole once they have ended. */
  async respond(
    { signal }: Request,
    generations: readonly AsyncGenerator<Piece>[],
    format: AnswerFormat,
    isStream: boolean,
  ): Promise<Response> {
    if (isStream) {
      this.#isStreamed = true;
      return textStream(this.#stream(generations, format), format.framing, () => this.#end());
    }
    const stop = () => this.#controller.abort();
    if (signal.aborted) stop();
    signal.addEventListener("abort", stop);
    try {
      for await (const [index, piece] of this.#pieces(generations)) format.take(index, piece);
    } finally {
      signal.removeEventListener("abort", stop);
    }
    return Response.json(format.whole());
  }

  [Symbol.dispose](): void {
    if (!this.#isStreamed) this.#end();
  }

  async *#stream(
    generations: readonly AsyncGenerator<Piece>[],
    format: AnswerFormat,
  ): AsyncGenerator<string> {
    try {
      yield* format.messages();
      for await (const [index, piece] of this.#pieces(generations)) {
        format.take(index, piece);
        yield* format.messages();
      }
      yield* format.closing();
    } catch (error) {
      // The status has been sent, so the error is a message.
      if (isFault(error)) this.#service.server.onError(error);
      yield format.error(error);
    } finally {
      this.#end();
    }
  }

  /** @throws {HttpError} 503 when a generation is cancelled */
  async *#pieces(
    generations: readonly AsyncGenerator<Piece>[],
  ): AsyncGenerator<readonly [index: number, piece: Piece]> {
    const timers = generations.map(() => this.#service.server.metrics.startGeneration());
    for await (const next of merge(generations, () => this.#controller.abort())) {
      timers[next[0]]!.take(next[1]);
      if (next[1].end?.finishReason === "cancelled") {
        throw new HttpError(503, "the answer was stopped before its end", { code: "stopped" });
      }
      yield next;
    }
  }

  #end(): void {
    this.#controller.abort();
    this.#place[Symbol.dispose]();
  }
}

/**
 * Yields the values of several sources as they come, with the index of the source. All sources are
 * closed when the reader leaves.
 *
 * @param stop called before the sources are closed, to end those that are awaited
 */
async function* merge<T>(
  sources: readonly AsyncGenerator<T>[],
  stop: () => void,
): AsyncGenerator<readonly [index: number, value: T], void, undefined> {
  const ready: { readonly index: number; readonly result: Promise<IteratorResult<T>> }[] = [];
  let wake = () => {};
  const request = (index: number) => {
    const result = sources[index]!.next();
    const settled = () => {
      ready.push({ index, result });
      wake();
    };
    result.then(settled, settled);
  };
  try {
    sources.forEach((_, index) => request(index));
    for (let open = sources.length; open > 0;) {
      const first = ready.shift();
      if (first === undefined) {
        await new Promise<void>((resolve) => wake = resolve);
        continue;
      }
      const { done, value } = await first.result;
      if (done) {
        open--;
        continue;
      }
      yield [first.index, value];
      request(first.index);
    }
  } finally {
    stop();
    await Promise.allSettled(sources.map((source) => source.return(undefined)));
  }
}
