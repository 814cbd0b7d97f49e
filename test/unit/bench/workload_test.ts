import { assertEquals } from "@std/assert";
import { workloadLength, workloadName, workloads } from "../../../src/bench/workload.ts";

Deno.test("workloads: every combination at every depth, without empty tests", () => {
  const tests = workloads({
    prompts: [512, 0],
    generations: [0, 128],
    pairs: [[16, 4], [0, 0]],
    depths: [0, 1024],
  });
  assertEquals(tests.map(workloadName), [
    "pp512",
    "tg128",
    "pp16+tg4",
    "pp512 @ d1024",
    "tg128 @ d1024",
    "pp16+tg4 @ d1024",
  ]);
  assertEquals(tests.map(workloadLength), [512, 128, 20, 1536, 1152, 1044]);
});
