/**
 * A response of server-sent events, one for each text. They are asked for as the client reads, so that a
 * slow one holds its own answer up and nothing else.
 *
 * @param stop called when the client goes away; the texts then come to their end soon
 */
export function eventStream(texts: AsyncGenerator<string>, stop: () => void): Response {
  const encoder = new TextEncoder();
  let isGone = false;
  const body = new ReadableStream<Uint8Array<ArrayBuffer>>({
    async pull(controller) {
      const { done, value } = await texts.next();
      if (isGone) return;
      if (done) controller.close();
      else controller.enqueue(encoder.encode(`data: ${value}\n\n`));
    },
    async cancel() {
      isGone = true;
      stop();
      await texts.return(undefined);
    },
  }, { highWaterMark: 0 });
  return new Response(body, {
    headers: {
      "content-type": "text/event-stream; charset=utf-8",
      "cache-control": "no-cache",
      // Proxies such as nginx would collect the events.
      "x-accel-buffering": "no",
    },
  });
}
