/**
 * A response of server-sent events, one for each text.
 *
 * @param stop called when the client goes away; the texts then come to their end soon
 */
export function eventStream(texts: AsyncGenerator<string>, stop: () => void): Response {
  return textStream(texts, stop, "text/event-stream; charset=utf-8", (text) => `data: ${text}\n\n`);
}

/** A response of lines of JSON, one for each text; otherwise as {@linkcode eventStream}. */
export function lineStream(texts: AsyncGenerator<string>, stop: () => void): Response {
  return textStream(texts, stop, "application/x-ndjson", (text) => `${text}\n`);
}

/** Texts are asked for as the client reads, so that a slow one holds its own answer up and nothing else. */
function textStream(
  texts: AsyncGenerator<string>,
  stop: () => void,
  type: string,
  framed: (text: string) => string,
): Response {
  const encoder = new TextEncoder();
  let isGone = false;
  const body = new ReadableStream<Uint8Array<ArrayBuffer>>({
    async pull(controller) {
      const { done, value } = await texts.next();
      if (isGone) return;
      if (done) controller.close();
      else controller.enqueue(encoder.encode(framed(value)));
    },
    async cancel() {
      isGone = true;
      stop();
      await texts.return(undefined);
    },
  }, { highWaterMark: 0 });
  return new Response(body, {
    headers: {
      "content-type": type,
      "cache-control": "no-cache",
      // Proxies such as nginx would collect the events.
      "x-accel-buffering": "no",
    },
  });
}
