import { assert, assertEquals } from "@std/assert";
import { IdSet } from "../../../src/cli/batch/id_set.ts";

Deno.test("ids: the set contains exactly the added ids", () => {
  const ids = new IdSet();
  for (let i = 0; i < 5_000; i++) {
    assert(ids.add(i) && ids.add(`${i}`) && !ids.add(i) && !ids.add(`${i}`));
  }
  assertEquals(ids.size, 10_000);
  for (let i = 0; i < 5_000; i++) assert(ids.has(i) && ids.has(`${i}`));
  for (let i = 5_000; i < 15_000; i++) assert(!ids.has(i) && !ids.has(`${i}`));
  assert(!ids.has("") && ids.add("") && ids.has(""));
});
