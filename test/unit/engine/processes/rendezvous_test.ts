/** Processes that find each other over loopback, among strangers, and what they tell each other. */
import { assertEquals, assertRejects, assertStringIncludes, assertThrows } from "@std/assert";
import { ForgeError } from "../../../../src/errors.ts";
import type { StepInputs } from "../../../../src/backend.ts";
import { Link, type Message } from "../../../../src/engine/processes/link.ts";
import { decodeInputs, encodeInputs } from "../../../../src/engine/processes/messages.ts";
import {
  checkProcessOptions,
  connect,
  gather,
  type Guest,
  type ProcessOptions,
} from "../../../../src/engine/processes/rendezvous.ts";
import { freePort } from "../../../cli/slurm.ts";

const SECRET = "0123456789abcdef";
const FACTS = { "version of forge": "1.0", "tensor parallelism": 2 };

function optionsOf(
  index: number,
  port: number,
  more: Partial<ProcessOptions> = {},
): ProcessOptions {
  return { index, count: 3, host: "127.0.0.1", port, secret: SECRET, timeout: 20, ...more };
}

async function join(index: number, port: number, more: Partial<ProcessOptions> = {}, facts = {}) {
  return await connect(optionsOf(index, port, more), { ...FACTS, ...facts }, [{ name: "gpu" }]);
}

function closeAll(guests: readonly Guest[]): void {
  for (const { link } of guests) link.close();
}

/** Opens a connection that says something else than forge, or nothing. */
async function stranger(port: number, bytes: Uint8Array): Promise<Deno.TcpConn> {
  for (;;) {
    try {
      const conn = await Deno.connect({ port, hostname: "127.0.0.1" });
      if (bytes.length > 0) await conn.write(bytes);
      return conn;
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
}

Deno.test("processes: they find each other among strangers, in any order", async () => {
  const port = freePort();
  // The others wait until process 0 listens.
  const early = join(2, port);
  await new Promise((resolve) => setTimeout(resolve, 50));
  const gathering = gather(optionsOf(0, port), FACTS);
  const greeting = new TextEncoder().encode("forge processes 1\n");
  const strangers = await Promise.all([
    stranger(port, new Uint8Array(0)),
    stranger(port, new TextEncoder().encode("GET / HTTP/1.1\r\nHost: forge\r\n\r\n".repeat(9))),
    stranger(port, crypto.getRandomValues(new Uint8Array(1000))),
    // The protocol's own greeting, then a code that is not that of the secret.
    stranger(port, new Uint8Array([...greeting, ...new Uint8Array(64)])),
  ]);
  const error = await assertRejects(
    () => join(1, port, { secret: "another secret 1234" }),
    ForgeError,
    "another secret",
  );
  assertStringIncludes(error.message, "process 1 cannot join process 0");
  const second = await early;
  // By now, process 0 most likely knows process 2.
  await new Promise((resolve) => setTimeout(resolve, 50));
  const links = [second, await join(1, port)];
  const guests = await gathering;
  assertEquals(guests.map(({ name }) => name), ["process 1 (127.0.0.1)", "process 2 (127.0.0.1)"]);
  assertEquals(guests.map(({ devices }) => devices), [[{ name: "gpu" }], [{ name: "gpu" }]]);
  for (const conn of strangers) conn.close();
  for (const link of links) link.close();
  closeAll(guests);
});

Deno.test("processes: messages arrive whole and in order, and the end is noticed", async () => {
  const port = freePort();
  const gathering = gather(optionsOf(0, port, { count: 2 }), FACTS);
  const guest = await join(1, port, { count: 2 });
  const [host] = await gathering;
  const received: Message[] = [];
  const ended = Promise.withResolvers<string>();
  host!.link.listen({ onMessage: (message) => received.push(message), onEnd: ended.resolve });
  const large = crypto.getRandomValues(new Uint8Array(65_536));
  for (let i = 0; i < 20; i++) guest.send({ i }, large.slice(0, 3000 * i));
  await guest.finish();
  assertEquals(await ended.promise, "ended");
  assertEquals(received.map(({ body }) => body.i), Array.from({ length: 20 }, (_, i) => i));
  for (const [i, { bytes }] of received.entries()) assertEquals(bytes, large.slice(0, 3000 * i));
});

Deno.test("processes: one that falls silent counts as ended", async () => {
  const port = freePort();
  const gathering = gather(optionsOf(0, port, { count: 2 }), FACTS);
  const guest = await join(1, port, { count: 2 });
  const [host] = await gathering;
  const ended = Promise.withResolvers<string>();
  let hasEnded = false;
  const onEnd = (reason: string) => {
    hasEnded = true;
    ended.resolve(reason);
  };
  host!.link.listen({ onMessage: () => {}, onEnd }, 20);
  // While it loads a model, it may be silent.
  await new Promise((resolve) => setTimeout(resolve, 200));
  const pulse = setInterval(() => guest.send({ op: "pulse" }), 20);
  host!.link.watch();
  await new Promise((resolve) => setTimeout(resolve, 300));
  assertEquals(hasEnded, false);
  clearInterval(pulse);
  assertEquals(await ended.promise, "has sent nothing for 0.12 s");
  guest.close();
});

Deno.test("processes: a message that somebody changes ends the link", async () => {
  const port = freePort(), proxyPort = freePort();
  const gathering = gather(optionsOf(0, port, { count: 2 }), FACTS);
  using proxy = Deno.listen({ hostname: "127.0.0.1", port: proxyPort });
  let changes = false;
  const relay = async () => {
    const inner = await proxy.accept();
    const outer = await stranger(port, new Uint8Array(0));
    void outer.readable.pipeTo(inner.writable).catch(() => {});
    const change = new TransformStream<Uint8Array, Uint8Array>({
      transform(bytes, controller) {
        if (changes) bytes[10]! ^= 1;
        controller.enqueue(bytes);
      },
    });
    await inner.readable.pipeThrough(change).pipeTo(outer.writable).catch(() => {});
  };
  const relaying = relay();
  const guest = await join(1, proxyPort, { count: 2 });
  const [host] = await gathering;
  const ended = Promise.withResolvers<string>();
  const onMessage = () => ended.resolve("a message");
  host!.link.listen({ onMessage, onEnd: ended.resolve });
  changes = true;
  guest.send({ op: "pulse", text: "some text" });
  assertEquals(await ended.promise, "sent a message that somebody changed");
  guest.close();
  await relaying;
});

Deno.test("processes: what was said to another process proves nothing", async () => {
  const port = freePort(), recordedPort = freePort(), replayedPort = freePort();
  const gathering = gather(optionsOf(0, port, { count: 2 }), FACTS);
  using recorded = Deno.listen({ hostname: "127.0.0.1", port: recordedPort });
  const said: Uint8Array<ArrayBuffer>[] = [];
  const record = async () => {
    const inner = await recorded.accept();
    const outer = await stranger(port, new Uint8Array(0));
    void inner.readable.pipeTo(outer.writable).catch(() => {});
    const keep = new TransformStream<Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>>({
      transform(bytes, controller) {
        said.push(bytes.slice());
        controller.enqueue(bytes);
      },
    });
    await outer.readable.pipeThrough(keep).pipeTo(inner.writable).catch(() => {});
  };
  const recording = record();
  const guest = await join(1, recordedPort, { count: 2 });
  closeAll(await gathering);
  guest.close();
  await recording;

  // Somebody without the secret repeats all that process 0 sent.
  using replayed = Deno.listen({ hostname: "127.0.0.1", port: replayedPort });
  const replay = async () => {
    const conn = await replayed.accept();
    for (const bytes of said) await conn.write(bytes);
    await conn.readable.pipeTo(new WritableStream()).catch(() => {});
  };
  const replaying = replay();
  const joining = () => join(1, replayedPort, { count: 2 });
  await assertRejects(joining, ForgeError, "another secret");
  await replaying;
});

Deno.test("processes: what is missing or differs is named", async () => {
  const port = freePort();
  const missing = gather(optionsOf(0, port, { timeout: 1 }), FACTS);
  const link = await join(2, port);
  const unknown = await stranger(port, new Uint8Array(100));
  const error = await assertRejects(() => missing, ForgeError);
  assertEquals(
    error.message,
    `after 1 s of waiting on port ${port}, 1 of 3 processes are missing: 1; ` +
      "1 connections came from strangers or with another secret",
  );
  unknown.close();
  link.close();
  const unreached = await assertRejects(() => join(1, port, { timeout: 1 }), ForgeError);
  const [waited, why = ""] = unreached.message.split(" for 1 s: ");
  assertEquals(waited, `process 1 has not reached process 0 at "127.0.0.1", port ${port},`);
  assertStringIncludes(why, "refused");
  const differing = gather(optionsOf(0, port), FACTS);
  const other = await join(1, port, {}, { "tensor parallelism": 4 });
  await assertRejects(
    () => differing,
    ForgeError,
    "process 1 (127.0.0.1) has the tensor parallelism 4, process 0 has 2",
  );
  const { body } = await other.receive();
  assertEquals(body.op, "refuse");
  assertStringIncludes(String(body.reason), "has the tensor parallelism 4");
  other.close();
  for (const index of [3, 0, -1, 1.5, "1" as unknown as number]) {
    const strange = gather(optionsOf(0, port), FACTS);
    const third = await join(index, port, { count: 4 });
    const number = JSON.stringify(index);
    await assertRejects(() => strange, ForgeError, `a process has the number ${number} of 3`);
    third.close();
  }
  const twice = gather(optionsOf(0, port), FACTS);
  const both = await Promise.all([join(1, port), join(1, port)]);
  await assertRejects(() => twice, ForgeError, "two processes have the number 1");
  for (const link of both) link.close();
});

Deno.test("processes: a message of a wrong length ends the link", async () => {
  using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const { port } = listener.addr;
  const pair = async () => {
    const accepting = listener.accept();
    const outer = await Deno.connect({ hostname: "127.0.0.1", port });
    return { outer, link: new Link(await accepting, "host", new Uint8Array(32)) };
  };
  const lengths = (count: number) => new Uint8Array(Uint32Array.of(count).buffer);
  // The first message is small; later ones are not.
  for (const length of [0, 3, 2 ** 16 + 1]) {
    const { outer, link } = await pair();
    await outer.write(lengths(length));
    await assertRejects(() => link.receive(), ForgeError, "sent a broken message");
    link.close();
    outer.close();
  }
  for (const [length, reason] of [[2 ** 28 + 1, "sent a broken message"], [2 ** 16 + 1, "ended"]]) {
    const { outer, link } = await pair();
    const ended = Promise.withResolvers<string>();
    link.listen({ onMessage: () => {}, onEnd: ended.resolve });
    await outer.write(lengths(Number(length)));
    outer.closeWrite();
    assertEquals(await ended.promise, reason);
    outer.close();
  }
});

Deno.test("processes: one that has nothing to say gives signs of life", async () => {
  using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const accepting = listener.accept();
  const { port } = listener.addr;
  const key = new Uint8Array(32);
  const silent = new Link(await Deno.connect({ hostname: "127.0.0.1", port }), "guest", key);
  const host = new Link(await accepting, "host", key);
  const never = () => {
    throw new Error("a pulse is no message");
  };
  silent.listen({ onMessage: never, onEnd: never }, 1);
  assertEquals((await host.receive()).body, { op: "pulse" });
  for (const link of [silent, host]) link.close();
});

Deno.test("processes: a message that is repeated or sent back ends the link", async () => {
  using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const pair = async () => {
    const accepting = listener.accept();
    const outer = await Deno.connect({ hostname: "127.0.0.1", port: listener.addr.port });
    return { outer, inner: await accepting };
  };
  const key = new Uint8Array(32).fill(7);
  /** Returns the bytes of a process's first message. */
  const frameOf = async (side: "host" | "guest") => {
    const { outer, inner } = await pair();
    const link = new Link(outer, side, key);
    link.send({ op: "text" });
    const finishing = link.finish();
    const bytes = await new Response(inner.readable).bytes();
    await finishing;
    return bytes;
  };
  for (const [side, nReceived] of [["guest", 1], ["host", 0]] as const) {
    const frame = await frameOf(side);
    const { outer, inner } = await pair();
    const ended = Promise.withResolvers<string>();
    let received = 0;
    new Link(inner, "host", key).listen({ onMessage: () => received++, onEnd: ended.resolve });
    // The link ends at the second one, whose write may fail.
    for (let i = 0; i < 2; i++) await outer.write(frame).catch(() => {});
    await outer.closeWrite().catch(() => {});
    assertEquals(await ended.promise, "sent a message that somebody changed");
    assertEquals(received, nReceived);
    outer.close();
  }
});

Deno.test("processes: options out of range are rejected", () => {
  checkProcessOptions(optionsOf(2, 5000, { secret: "0123456789abcdef", localIndex: 63 }));
  for (
    const [more, message] of [
      [{ index: 3 }, "processes.index is 3; valid is a whole number from 0 to 2"],
      [{ count: 1 }, "processes.count is 1"],
      [{ port: 0 }, "processes.port is 0"],
      [{ port: 65536 }, "processes.port is 65536"],
      [{ localIndex: 64 }, "processes.localIndex is 64; valid is a whole number from 0 to 63"],
      [{ secret: "0123456789abcde" }, "has 15 characters; valid is at least 16"],
      [{ secret: "short" }, "has 5 characters; valid is at least 16"],
      [{ timeout: 0 }, "processes.timeout is 0"],
    ] as const
  ) {
    let text = "";
    try {
      checkProcessOptions(optionsOf(1, 5000, more));
    } catch (error) {
      text = String(error);
    }
    assertStringIncludes(text, message);
  }
});

Deno.test("processes: inputs of a step arrive as they were", () => {
  const sampling = {
    repeatPenalty: 1.1,
    presencePenalty: 0,
    frequencyPenalty: 0.25,
    temperature: 0.7,
    topK: 40,
    topP: 0.95,
    minP: 0.05,
    seed: 0xfedc_ba98_7654_3210n,
    bias: new Map([[3, -Infinity], [7, 1.5]]),
  };
  const inputs: StepInputs = {
    tokens: [5, 6],
    positions: Int32Array.of(9, 3),
    sequences: [0, 1],
    pageTables: [[4, 2, 1], Int32Array.of(7)],
    slots: [1, 0],
    outputs: [0, 1].map((row) => ({
      row,
      sampling,
      history: [1, 2, 3],
      historySize: 8,
      stream: row,
      position: 10,
      nTop: 2,
    })),
    nSteps: 4,
    endTokens: [1],
  };
  const decoded = decodeInputs(encodeInputs(inputs));
  const plain = (value: ArrayLike<number> | undefined) => value && Array.from(value);
  assertEquals(decoded.outputs, inputs.outputs);
  assertEquals(decoded.pageTables.map(plain), inputs.pageTables.map(plain));
  for (const name of ["tokens", "positions", "sequences", "slots", "endTokens"] as const) {
    assertEquals(plain(decoded[name]), plain(inputs[name]));
  }
  assertEquals([decoded.nSteps, decoded.parents, decoded.keyLengths], [4, undefined, undefined]);
  assertEquals(decoded.adapterScales, undefined);
  const { nSteps: _, ...once } = inputs;
  const scaled = decodeInputs(encodeInputs({ ...once, adapterScales: [0.5, -2] }));
  assertEquals([scaled.nSteps, plain(scaled.adapterScales)], [1, [0.5, -2]]);
  const [output] = inputs.outputs;
  const mask = Uint32Array.of(1);
  for (
    const masked of [
      { attentionMask: mask },
      { outputs: [output!, { ...output!, sampling: { ...sampling, mask } }] },
      { outputs: [{ ...output!, fillMask: () => {} }] },
    ]
  ) {
    const encode = () => encodeInputs({ ...inputs, ...masked } as StepInputs);
    assertThrows(encode, ForgeError, "masks are not sent to other processes");
  }
  const { body, bytes } = encodeInputs(inputs);
  let code = "";
  try {
    decodeInputs({ body, bytes: bytes.slice(4) });
  } catch (error) {
    if (error instanceof ForgeError) code = error.code;
  }
  assertEquals(code, "device");
});
