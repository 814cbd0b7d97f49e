import { assertEquals } from "@std/assert";
import { expandNumbers } from "../../../src/bench/number_list.ts";

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
  for (const [text, expected] of Object.entries(cases)) {
    assertEquals(expandNumbers(text), expected, text);
  }
});

Deno.test("number lists: what is none, would never end or is far too long", () => {
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
  ];
  for (const text of texts) assertEquals(expandNumbers(text), undefined, text);
});
