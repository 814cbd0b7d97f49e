import { assertEquals, assertRejects } from "@std/assert";
import { EVENTS, textStream } from "../../../src/serve/http/text_stream.ts";
import { until } from "../../support/wait.ts";

/** Returns an endless stream of messages and a promise that resolves when it is closed. */
function endless() {
  const ended = Promise.withResolvers<void>();
  let nStops = 0;
  async function* texts(): AsyncGenerator<string> {
    try {
      for (;;) yield await Promise.resolve("x");
    } finally {
      ended.resolve();
    }
  }
  return { texts: texts(), ended: ended.promise, stop: () => nStops++, stops: () => nStops };
}

Deno.test("text stream: a stream that is no longer read ends", async () => {
  const { texts, ended, stop, stops } = endless();
  const reader = textStream(texts, EVENTS, stop, 10).body!.getReader();
  assertEquals(new TextDecoder().decode((await reader.read()).value), "data: x\n\n");
  await ended;
  assertEquals(stops(), 1);
  await assertRejects(() => reader.read(), Error, "the client read nothing for 0.01 s");
});

Deno.test("text stream: a stream that is never read ends", async () => {
  const { texts, stop, stops } = endless();
  const { body } = textStream(texts, EVENTS, stop, 10);
  await until(() => stops() > 0);
  await assertRejects(() => body!.getReader().read(), Error, "the client read nothing");
});

Deno.test("text stream: a slow reader that reads in time keeps its stream", async () => {
  const { texts, stop, stops } = endless();
  const reader = textStream(texts, EVENTS, stop, 200).body!.getReader();
  for (let i = 0; i < 6; i++) {
    await reader.read();
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assertEquals(stops(), 0);
  await reader.cancel();
});
