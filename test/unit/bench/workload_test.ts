import { assertEquals } from "@std/assert";
import {
  parallelWorkloads,
  workloadLength,
  workloadName,
  workloads,
} from "../../../src/bench/workload.ts";

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

Deno.test("workloads: of several sequences, every prompt with every generation", () => {
  const lists = { prompts: [8, 16], generations: [4], pairs: [], depths: [0], batches: [32] };
  const tests = parallelWorkloads(lists, [1, 8]);
  assertEquals(
    tests.map(({ nPrompt, nGen, nParallel, nBatch }) => [nPrompt, nGen, nParallel, nBatch]),
    [[8, 4, 1, 32], [8, 4, 8, 32], [16, 4, 1, 32], [16, 4, 8, 32]],
  );
  assertEquals(tests.slice(0, 2).map(workloadName), ["pp8+tg4", "pp8+tg4 x8"]);
});
