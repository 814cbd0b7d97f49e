/**
 * Tests the server of `forge serve` with handlers of a few lines: connections, streams and its end.
 */
import {
  assert,
  assertEquals,
  assertMatch,
  assertRejects,
  assertStringIncludes,
} from "@std/assert";
import { type ConnectionLimits, HttpServer } from "../../src/cli/http_server.ts";
import { ForgeError } from "../../src/errors.ts";
import type { Handler } from "../../src/serve/mod.ts";
import { until, within } from "../support/wait.ts";

function listen(handler: Handler, limits: Partial<ConnectionLimits> = {}): Promise<HttpServer> {
  return HttpServer.listen("127.0.0.1", 0, handler, limits);
}

function connect({ url }: HttpServer): Promise<Deno.TcpConn> {
  return Deno.connect({ hostname: "127.0.0.1", port: Number(new URL(url).port) });
}

/** Sends raw text and returns everything that the server sends until it closes the connection. */
async function exchange(server: HttpServer, text: string): Promise<string> {
  const connection = await connect(server);
  await connection.write(new TextEncoder().encode(text));
  return await new Response(connection.readable).text();
}

/** Answers with the request's line, headers and body. */
const echo: Handler = async (request) =>
  Response.json({
    method: request.method,
    url: request.url,
    given: request.headers.get("x-given"),
    body: await request.text(),
  });

Deno.test("http server: half-sent requests are closed in time, whole ones are not", async () => {
  const done = Promise.withResolvers<void>();
  const handler: Handler = async ({ url }) => {
    if (url.endsWith("/slow")) await done.promise;
    return new Response("answer");
  };
  await using server = await listen(handler, { headersMs: 200, requestMs: 400, checkMs: 50 });
  // Its answer takes longer than both limits.
  const slow = fetch(`${server.url}/slow`, { method: "POST", body: "whole" });
  const halves = [
    "",
    "GET / HTTP/1.1\r\nHost: a",
    "GET / HTTP/1.1\r\nHost: a\r\nX: ",
    "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf",
  ];
  const answers = await Promise.all(
    Array.from({ length: 900 }, (_, i) => exchange(server, halves[i % halves.length]!)),
  );
  for (const [i, answer] of answers.entries()) {
    const isAnswered = i % halves.length >= 3;
    assertEquals(answer.startsWith("HTTP/1.1 200 OK\r\n"), isAnswered, answer);
    assertEquals(answer.includes("HTTP/1.1 408 Request Timeout\r\n"), i % halves.length !== 4);
  }
  done.resolve();
  assertEquals(await (await slow).text(), "answer");
});

Deno.test("http server: a handler gets the request as it was sent", async () => {
  await using server = await listen(echo);
  const body = "ä".repeat(1e6);
  const posted = await fetch(`${server.url}/a%20b?c=d`, {
    method: "POST",
    headers: { "x-given": "1" },
    body,
  });
  assertEquals(await posted.json(), {
    method: "POST",
    url: `${server.url}/a%20b?c=d`,
    given: "1",
    body,
  });
  const raw = async (head: string) => {
    const answer = await exchange(server, `${head}\r\nConnection: close\r\n\r\n`);
    const [top = "", json = ""] = answer.split("\r\n\r\n");
    return { status: Number(top.split(" ")[1]), ...JSON.parse(json || "{}") };
  };
  const get = { method: "GET", given: null, body: "", status: 200 };
  assertEquals(await raw("GET //b/c HTTP/1.1\r\nHost: a"), { ...get, url: "http://a//b/c" });
  assertEquals(await raw("GET http://b/c HTTP/1.1\r\nHost: a"), { ...get, url: "http://b/c" });
  assertEquals(await raw("GET /c HTTP/1.0\r\nX-Given: e\u0301"), {
    ...get,
    url: `${server.url}/c`,
    given: "e\u00cc\u0081",
  });
  const upgrade = "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: upgrade";
  assertEquals((await raw(upgrade)).status, 200);
  for (const host of ["[", "[::1", "a:99999", "a b"]) {
    const refused = await raw(`GET / HTTP/1.1\r\nHost: ${host}`);
    assertEquals(refused.status, 400, host);
    assertStringIncludes(refused.error.message, "the Host header is not valid");
  }
  assertEquals((await raw("TRACE / HTTP/1.1\r\nHost: a")).status, 400);
  assertEquals((await raw("NOTHING / HTTP/1.1\r\nHost: a")).status, 400);
  const head = await fetch(server.url, { method: "HEAD" });
  assertEquals([head.status, await head.text()], [200, ""]);
});

Deno.test("http server: an idle connection is closed after its time", async () => {
  const request = new TextEncoder().encode("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  const ask = async (connection: Deno.TcpConn) => {
    await connection.write(request);
    const bytes = new Uint8Array(1000);
    return new TextDecoder().decode(bytes.subarray(0, await connection.read(bytes) ?? 0));
  };
  await using server = await listen(echo, { idleMs: 1000 });
  using connection = await connect(server);
  for (let i = 0; i < 2; i++) assertMatch(await ask(connection), /^HTTP\/1\.1 200 OK\r\n/);
  assertEquals(await within(connection.read(new Uint8Array(1)), () => "end"), null);
  await using usual = await listen(echo);
  using other = await connect(usual);
  assertStringIncludes(await ask(other), "\r\nKeep-Alive: timeout=75\r\n");
});

Deno.test("http server: a rejected body does not lose the response", async () => {
  await using server = await listen(async ({ body }) => {
    const reader = body!.getReader();
    await reader.read();
    await reader.cancel();
    return new Response("too long", { status: 413 });
  });
  const refused = await fetch(server.url, { method: "POST", body: new Uint8Array(8e6) });
  assertEquals([refused.status, await refused.text()], [413, "too long"]);
});

for (const connection of ["keep-alive", "close"]) {
  const name =
    `a client with connection: ${connection} reads the response after it has sent its body`;
  Deno.test(`http server: ${name}`, async () => {
    await using server = await listen(() => Promise.resolve(new Response("long", { status: 413 })));
    using client = await connect(server);
    const bytes = 32e6; // more than sockets buffer
    const head = [
      "POST / HTTP/1.1",
      "Host: a",
      `Connection: ${connection}`,
      `Content-Length: ${bytes}`,
    ];
    await client.write(new TextEncoder().encode(`${head.join("\r\n")}\r\n\r\n`));
    for (let left = bytes; left > 0;) left -= await client.write(new Uint8Array(left));
    const answer = new Uint8Array(1000);
    const length = await client.read(answer) ?? 0;
    const lines = new TextDecoder().decode(answer.subarray(0, length)).split("\r\n");
    assertEquals([lines[0], lines.at(-1)], ["HTTP/1.1 413 Payload Too Large", "long"]);
    assert(lines.includes(`Connection: ${connection}`));
    if (connection === "close") assertEquals(await client.read(answer), null);
  });
}

Deno.test("http server: an answer without a body has the length 0, also to a body unread", async () => {
  await using server = await listen(() => Promise.resolve(new Response(null, { status: 413 })));
  const head = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 4\r\n\r\n";
  const answer = await exchange(server, `${head}text`);
  assertMatch(answer, /^HTTP\/1\.1 413 [^]*\r\nContent-Length: 0\r\n\r\n$/);
});

Deno.test("http server: shutdown does not wait for the rest of an answered request", async () => {
  const server = await listen(() => Promise.resolve(new Response("long", { status: 413 })));
  using client = await connect(server);
  const head = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 100\r\n\r\n";
  await client.write(new TextEncoder().encode(head));
  await client.read(new Uint8Array(1000));
  await server.shutdown();
});

Deno.test("http server: an answer has its length, a stream arrives piece by piece", async () => {
  let step = Promise.withResolvers<void>();
  await using server = await listen(({ url }) => {
    if (!url.endsWith("/stream")) return Promise.resolve(Response.json({ whole: true }));
    const pieces = (async function* () {
      for (const text of ["a", "b", "c"]) {
        yield new TextEncoder().encode(text);
        await step.promise;
      }
    })();
    return Promise.resolve(new Response(ReadableStream.from(pieces)));
  });
  const whole = await fetch(server.url);
  assertEquals(whole.headers.get("content-length"), "14");
  assertEquals(await whole.json(), { whole: true });
  const stream = await fetch(`${server.url}/stream`);
  assertEquals(stream.headers.get("transfer-encoding"), "chunked");
  const reader = stream.body!.pipeThrough(new TextDecoderStream()).getReader();
  for (const text of ["a", "b", "c"]) {
    assertEquals(await reader.read(), { value: text, done: false });
    const { resolve } = step;
    step = Promise.withResolvers<void>();
    resolve();
  }
  assertEquals((await reader.read()).done, true);
});

Deno.test("http server: a stream waits for its reader and ends when the reader leaves", async () => {
  let pulled = 0;
  const cancelled = Promise.withResolvers<void>();
  const aborted = Promise.withResolvers<void>();
  await using server = await listen(({ signal }) => {
    signal.addEventListener("abort", () => aborted.resolve());
    const body = new ReadableStream<Uint8Array>({
      pull(controller) {
        pulled++;
        controller.enqueue(new Uint8Array(1e5));
      },
      cancel: () => cancelled.resolve(),
    }, { highWaterMark: 0 });
    return Promise.resolve(new Response(body));
  });
  const connection = await connect(server);
  await connection.write(new TextEncoder().encode("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
  // The buffers of the connection fill, then nothing is pulled.
  for (let before = -1; pulled === 0 || pulled > before;) {
    before = pulled;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  assert(pulled < 200, `${pulled} pieces of 100 kB were pulled`);
  connection.close();
  await Promise.all([cancelled.promise, aborted.promise]);
});

Deno.test("http server: a client that leaves aborts its request, an answered one is not aborted", async () => {
  const signals: AbortSignal[] = [];
  const aborted = Promise.withResolvers<void>();
  await using server = await listen(async (request) => {
    signals.push(request.signal);
    await request.text();
    if (signals.length === 1) return new Response("answered");
    request.signal.addEventListener("abort", () => aborted.resolve());
    await aborted.promise;
    return new Response("for nobody");
  });
  const post = { method: "POST", body: "text" };
  assertEquals(await (await fetch(server.url, post)).text(), "answered");
  const connection = await connect(server);
  const text = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\ntext";
  await connection.write(new TextEncoder().encode(text));
  await until(() => signals.length === 2);
  connection.close();
  await aborted.promise;
  assertEquals(signals.map(({ aborted }) => aborted), [false, true]);
});

Deno.test("http server: an answer ends if its client leaves while a piece is on the way", async () => {
  // The piece is read from the stream when the connection has closed.
  await using server = await listen(({ signal }) => {
    const start = (controller: ReadableStreamDefaultController) => {
      controller.enqueue(new Uint8Array(1));
      signal.addEventListener("abort", () => controller.enqueue(new Uint8Array(1)));
    };
    return Promise.resolve(new Response(new ReadableStream({ start })));
  });
  const connection = await connect(server);
  await connection.write(new TextEncoder().encode("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
  await connection.read(new Uint8Array(1));
  connection.close();
  await server.shutdown();
});

Deno.test("http server: a failed stream is cut off, so that its reader notices", async () => {
  await using server = await listen(() => {
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => controller.enqueue(new Uint8Array(8)),
      pull: (controller) =>
        void setTimeout(() => controller.error(new Error("the client read nothing")), 20),
    });
    return Promise.resolve(new Response(body));
  });
  const answer = await exchange(server, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  assertStringIncludes(answer, "\r\n8\r\n");
  assert(!answer.endsWith("0\r\n\r\n"), answer);
});

Deno.test("http server: shutting down finishes answers and drops idle and half-sent requests", async () => {
  const proceed = Promise.withResolvers<void>();
  const begun = Promise.withResolvers<void>();
  await using server = await listen(async ({ url }) => {
    if (url.endsWith("/slow")) {
      begun.resolve();
      await proceed.promise;
    }
    return new Response("answer");
  });
  const { url } = server;
  assertEquals(await (await fetch(url)).text(), "answer");
  const half = exchange(server, "GET / HTTP/1.1\r\nHost: a");
  const slow = fetch(`${url}/slow`);
  await begun.promise;
  const end = server.shutdown();
  proceed.resolve();
  const answer = await slow;
  assertEquals(answer.headers.get("connection"), "close");
  assertEquals(await answer.text(), "answer");
  await end;
  assertEquals(await half, "");
  await server.shutdown();
});

Deno.test("http server: an address that is not available is an error with its reason", async () => {
  await using server = await listen(echo);
  const { port } = new URL(server.url);
  for (
    const [host, reason] of [
      ["127.0.0.1", "another program uses this port"],
      // An address for documentation.
      ["192.0.2.1", "this machine has no such address"],
      ["[2001:db8::1]", "this machine has no such address"],
      ["nothing.invalid", "the name has no address"],
    ] as const
  ) {
    const { message } = await assertRejects(
      () => HttpServer.listen(host, Number(port), echo),
      ForgeError,
    );
    assertStringIncludes(message, `cannot listen on "${host}", port ${port}: ${reason}`);
  }
});
