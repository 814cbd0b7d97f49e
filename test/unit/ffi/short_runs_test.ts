import { assert, assertEquals } from "@std/assert";
import { ShortRuns } from "../../../ffi/short_runs.ts";

Deno.test("short runs: nothing is known before the first", () => {
  assertEquals(new ShortRuns().mayHold(1), false);
});

Deno.test("short runs: what was short may hold the thread, what was long or is larger may not", () => {
  const runs = new ShortRuns();
  runs.ended(8, 2, false);
  assert(runs.mayHold(8) && runs.mayHold(1));
  assertEquals(runs.mayHold(9), false);
  runs.ended(512, 2, false);
  assert(runs.mayHold(64));
  assertEquals(runs.mayHold(512), false, "a prompt leaves the thread");
  runs.ended(8, 6, false);
  assertEquals(runs.mayHold(8), false);
});

Deno.test("short runs: the event loop gets its turn again and again", () => {
  const runs = new ShortRuns();
  let held = 0;
  for (let i = 0; i < 100; i++) {
    const holds = runs.mayHold(1);
    held = holds ? held + 3 : 0;
    assert(held <= 12, `${held} ms without a turn`);
    runs.ended(1, 3, holds);
  }
  assert(runs.mayHold(1) || held > 0, "short runs hold the thread most of the time");
});
