/** Streamed responses: server-sent events and lines of JSON. */

import type { JsonObject } from "../../formats/json.ts";

/** Media type of a stream, and the frame around each of its messages. */
export interface Framing {
  readonly contentType: string;
  frame(message: string): string;
}

/** Server-sent events. */
export const EVENTS: Framing = {
  contentType: "text/event-stream; charset=utf-8",
  frame: (message) => `data: ${message}\n\n`,
};

/** Server-sent events with names; messages come from {@linkcode namedEvent}. */
export const NAMED_EVENTS: Framing = {
  contentType: EVENTS.contentType,
  frame: (message) => `${message}\n\n`,
};

/** Returns a message with the name of its event. */
export function namedEvent(name: string, data: JsonObject): string {
  return `event: ${name}\ndata: ${JSON.stringify(data)}`;
}

/** Lines of JSON. */
export const LINES: Framing = {
  contentType: "application/x-ndjson",
  frame: (message) => `${message}\n`,
};

/** Time after which a client that reads nothing loses its stream. */
const STALL_TIMEOUT_MS = 60_000;

/**
 * Streams messages at the pace of the client, so that a slow client delays only its own answer.
 *
 * @param stop called when the client leaves, or reads nothing for `stallMs`; `messages` must then
 * end soon
 */
export function textStream(
  messages: AsyncGenerator<string>,
  { contentType, frame }: Framing,
  stop: () => void,
  stallMs: number = STALL_TIMEOUT_MS,
): Response {
  const encoder = new TextEncoder();
  let timer: ReturnType<typeof setTimeout>;
  let isStopped = false;
  const end = async () => {
    clearTimeout(timer);
    isStopped = true;
    stop();
    await messages.return(undefined);
  };
  const awaitReader = (controller: ReadableStreamDefaultController) => {
    timer = setTimeout(() => {
      const error = new Error(`the client read nothing for ${stallMs / 1000} s`);
      // Deno.serve prints the stack of an error that ends a response; the message is enough.
      error.stack = String(error);
      controller.error(error);
      end().catch(() => {});
    }, stallMs);
  };
  const body = new ReadableStream<Uint8Array<ArrayBuffer>>({
    start: awaitReader,
    async pull(controller) {
      clearTimeout(timer);
      const { done, value } = await messages.next();
      if (isStopped) return;
      if (done) return controller.close();
      controller.enqueue(encoder.encode(frame(value)));
      awaitReader(controller);
    },
    cancel: end,
  }, { highWaterMark: 0 });
  return new Response(body, {
    headers: {
      "content-type": contentType,
      "cache-control": "no-cache",
      // Keeps proxies such as nginx from buffering the stream.
      "x-accel-buffering": "no",
    },
  });
}
