import { assert, assertEquals } from "@std/assert";
import { Clock } from "../../../../src/engine/generation/timings.ts";

Deno.test("steps up to the first token are prefill, later ones decode", () => {
  const clock = new Clock();
  clock.begin();
  const start = performance.now();
  clock.tick(start, start + 100, 0);
  clock.tick(start + 100, start + 150, 1);
  clock.tick(start + 150, start + 160, 1);
  clock.tick(start + 160, start + 190, 1);
  clock.addDraft(4, 2);
  clock.addDraft(3, 0);
  const { queueMs, ...timings } = clock.timings(300, 5);
  assert(queueMs >= 0);
  assertEquals(timings, {
    prefillMs: 150,
    decodeMs: 40,
    prefillTokensPerSecond: 2000,
    decodeTokensPerSecond: 100,
    drafted: 7,
    accepted: 2,
  });
});

Deno.test("the first of several steps after the prompt counts as prefill", () => {
  const clock = new Clock();
  clock.tick(0, 40, 4);
  const { queueMs: _, ...timings } = clock.timings(1, 4);
  assertEquals(timings, {
    prefillMs: 10,
    decodeMs: 30,
    prefillTokensPerSecond: 100,
    decodeTokensPerSecond: 100,
    drafted: 0,
    accepted: 0,
  });
});

Deno.test("an answer without tokens has no speed", () => {
  const clock = new Clock();
  clock.tick(0, 100, 0);
  const { queueMs: _, ...timings } = clock.timings(300, 0);
  assertEquals(timings, {
    prefillMs: 100,
    decodeMs: 0,
    prefillTokensPerSecond: 0,
    decodeTokensPerSecond: 0,
    drafted: 0,
    accepted: 0,
  });
});

Deno.test("the queue time ends with the first step", async () => {
  const clock = new Clock();
  clock.begin();
  const first = clock.timings(1, 0).queueMs;
  await new Promise((resolve) => setTimeout(resolve, 5));
  clock.begin();
  assertEquals(clock.timings(1, 0).queueMs, first);
});

Deno.test("of a step that began before a generation joined it, the rest counts", () => {
  const before = performance.now();
  const clock = new Clock();
  clock.begin();
  const after = performance.now();
  clock.tick(before - 1000, after + 50, 1);
  const { queueMs, prefillMs } = clock.timings(1, 1);
  assert(prefillMs >= 50 && prefillMs < 51 + after - before, `${prefillMs}`);
  assert(queueMs + prefillMs <= after + 50 - before + 0.002, `${[queueMs, prefillMs]}`);
});
