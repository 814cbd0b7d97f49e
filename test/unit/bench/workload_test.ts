import { assertEquals } from "@std/assert";
import {
  expandNumbers,
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
    depths: [0, 1],
    batches: [undefined],
  });
  assertEquals(tests.map(workloadName), [
    "pp512",
    "tg128",
    "pp16+tg4",
    "pp512 @ d1",
    "tg128 @ d1",
    "pp16+tg4 @ d1",
  ]);
  assertEquals(tests.map(workloadLength), [512, 128, 20, 513, 129, 21]);
});

Deno.test("workloads: of several sequences, every prompt with every generation", () => {
  const lists = { prompts: [8, 16], generations: [4], pairs: [], depths: [0], batches: [32] };
  const tests = parallelWorkloads(lists, [1, 8]);
  assertEquals(
    tests.map(({ nPrompt, nGen, nParallel, nBatch }) => [nPrompt, nGen, nParallel, nBatch]),
    [[8, 4, 1, 32], [8, 4, 8, 32], [16, 4, 1, 32], [16, 4, 8, 32]],
  );
  assertEquals(tests.slice(0, 2).map(workloadName), ["pp8+tg4", "pp8+tg4 x8"]);
  const more = parallelWorkloads({ ...lists, generations: [], pairs: [[1, 0], [0, 1]] }, [2]);
  assertEquals(more.map(workloadName), ["pp1 x2", "tg1 x2"]);
});

Deno.test("number lists: numbers, ranges, steps and factors", () => {
  const cases: Record<string, number[]> = {
    "512": [512],
    "0": [0],
    "512,1024": [512, 1024],
    "1-4": [1, 2, 3, 4],
    "3-3": [3],
    "0-1024+256": [0, 256, 512, 768, 1024],
    "1-10+4": [1, 5, 9],
    "128-2048*2": [128, 256, 512, 1024, 2048],
    "1-100*10,7": [1, 10, 100, 7],
    "5-12*3": [5],
    "0-0*2": [0],
  };
  const most = Array.from({ length: 4096 }, (_, i) => i);
  assertEquals(expandNumbers("0-4095"), most);
  assertEquals(expandNumbers("0-4096"), undefined);
  for (const [text, expected] of Object.entries(cases)) {
    assertEquals(expandNumbers(text), expected, text);
  }
});

Deno.test("number lists: rejects syntax errors, endless and very long lists", () => {
  const texts = [
    "",
    ",",
    "1,",
    "x",
    "-1",
    "1.5",
    "1-",
    "5-1",
    "1-4+0",
    "1-4*1",
    "0-8*2",
    "1-4*0",
    "1-4/2",
    "1e3",
    " 1",
    "0-1000000000",
    "1-99999999999999999999",
    "99999999999999999999",
  ];
  for (const text of texts) assertEquals(expandNumbers(text), undefined, text);
});
